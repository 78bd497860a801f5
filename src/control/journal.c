/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, appending, reading back. Lines are numbered by their place, so the numbers need not be
 * read; journal-rotate.c begins new files.
 *
 * The lock is that of the newest file. Whoever gets it looks whether the file is still the one at
 * the path: the run that had it may have begun a new one, or `gc` may have removed it. A run has an
 * exclusive lock, for life; `gc` a shared one, for a moment, which is waited for.
 */
#include "journal.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "journal-rotate.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

enum {
    OPEN_ATTEMPTS = 2500,
    MAKE_ATTEMPTS = 50,
    DEATH_ATTEMPTS = 50,
    OPEN_AGAIN_MS = 2,
    LOOK_MS = 1000
};

static const int64_t rotate_bytes = INT64_C(64) << 20, keep_bytes = INT64_C(1) << 30;

static bool is_at(int dir_fd, const char *path, int fd)
{
    struct stat by_path, by_fd;
    return fstatat(dir_fd, path, &by_path, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &by_fd) == 0 &&
           by_path.st_dev == by_fd.st_dev && by_path.st_ino == by_fd.st_ino;
}

/* Takes the lock: 1; 0 when somebody has it who will not keep it. Where there are no locks, as on
 * some network file systems, the file is used without. */
static int take_lock(const kji_journal *journal, int attempt, kj_error *err)
{
    if (flock(journal->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 1;
    bool is_run = flock(journal->fd, LOCK_SH | LOCK_NB) < 0;
    if (is_run && attempt < DEATH_ATTEMPTS) /* its folder is free already: it may be dying now */
        return 0;
    if (is_run && is_at(journal->dir_fd, KJI_JOURNAL_NAME, journal->fd))
        return kji_fail(err, KJ_EBUSY,
                        "a live run of this id, in another runtime folder, writes it");
    return 0;
}

/* Opens and locks the newest file: 1, or 0 when it went away meanwhile, or is held for a moment. */
static int try_to_open(kji_journal *journal, int attempt, kj_error *err)
{
    enum { FLAGS = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY };
    kj_error why = KJ_ERROR_INIT;
    int r = kji_open_dir(journal->dir, true, &journal->dir_fd, &why);
    if (r < 0) /* it may have been removed just after it was made */
        return why.native == ENOENT && attempt < MAKE_ATTEMPTS ? 0 : kji_forward(err, &why);
    kji_forks_open(&journal->fd, journal->dir_fd, KJI_JOURNAL_NAME, FLAGS, 0600);
    if (journal->fd < 0 && errno != ENOENT) /* that: the folder went away meanwhile */
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open " KJI_JOURNAL_NAME);
    r = journal->fd < 0 ? 0 : take_lock(journal, attempt, err);
    if (r == 1 && is_at(journal->dir_fd, KJI_JOURNAL_NAME, journal->fd) &&
        is_at(AT_FDCWD, journal->dir, journal->dir_fd))
        return 1;
    kji_journal_close_fds(journal);
    return r < 0 ? r : 0;
}

static int open_newest(kji_journal *journal, kj_error *err)
{
    for (int k = 0; k < OPEN_ATTEMPTS; k++) {
        int r = try_to_open(journal, k, err);
        if (r != 0)
            return r;
        nanosleep(&(struct timespec){0, OPEN_AGAIN_MS * 1000000}, NULL);
    }
    return kji_fail(err, KJ_EBUSY, "somebody holds " KJI_JOURNAL_NAME);
}

typedef struct file_scan {
    kji_journal_part *part;
    kji_pending *pending; /* NULL: lines are only counted */
    int64_t ended_at;     /* offset of the newest line that closes all before it */
    bool failed;
} file_scan;

static bool says_all_ended(const char *text, size_t size)
{
    struct json_object *line = NULL;
    if (!memmem(text, size, "run_ended", 9) || kji_json_parse(text, size, &line, NULL) < 0)
        return false;
    const char *event = kji_json_string(line, "event");
    int64_t last_seq;
    bool ended =
        event && strcmp(event, "run_ended") == 0 && kji_json_int(line, "last_seq", &last_seq);
    json_object_put(line);
    return ended;
}

static int count_line(void *userdata, char *text, size_t size)
{
    file_scan *scan = userdata;
    if (scan->pending && text && says_all_ended(text, size))
        scan->ended_at = scan->part->size;
    scan->failed = !kji_journal_part_grow(scan->part, size + 1);
    return scan->failed;
}

static int take_line(void *userdata, char *text, size_t size)
{
    struct json_object *line = NULL;
    if (text && kji_json_parse(text, size, &line, NULL) >= 0)
        kji_pending_take(userdata, line, text, size);
    json_object_put(line);
    return 0;
}

/* Counts the lines of a file, and finds out what they leave open. Only what stands behind the last
 * end of a run is parsed. */
static int scan_file(int fd, kji_journal_part *part, kji_pending *pending, kj_error *err)
{
    file_scan scan = {.part = part, .pending = pending};
    int r = kji_each_line(fd, 0, count_line, &scan, NULL, err);
    if (scan.failed)
        r = kji_fail_memory(err);
    if (r >= 0 && pending)
        r = kji_each_line(fd, scan.ended_at, take_line, pending, NULL, err);
    return r;
}

static int open_older(const kji_journal *journal, const kji_journal_part *part)
{
    char name[KJI_JOURNAL_NAME_MAX];
    return openat(journal->dir_fd, kji_journal_part_name(part->first, name),
                  O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

/* The sizes of the older files; a name that was given just before a crash is taken back. */
static int list_older(kji_journal *journal, kj_error *err)
{
    KJI_CLEANUP(kji_freep) int64_t *numbers = NULL;
    size_t n = 0;
    int r = kji_journal_list_parts(journal->dir_fd, &numbers, &n, err);
    if (r >= 0 &&
        !kji_reserve(&journal->older, &journal->older_capacity, n + 1, sizeof *journal->older))
        r = kji_fail_memory(err);
    for (size_t k = 0; r >= 0 && k < n; k++) {
        char name[KJI_JOURNAL_NAME_MAX];
        struct stat st;
        kji_journal_part_name(numbers[k], name);
        if (is_at(journal->dir_fd, name, journal->fd))
            unlinkat(journal->dir_fd, name, 0);
        else if (fstatat(journal->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                 S_ISREG(st.st_mode))
            journal->older[journal->n_older++] =
                (kji_journal_part){.first = numbers[k], .last = numbers[k] - 1, .size = st.st_size};
    }
    return r;
}

/* Counts the newest of the older files: the number of the line behind it. Its `pending` counts
 * where journal.jsonl has no line. */
static int scan_newest_older(kji_journal *journal, kji_pending *pending, int64_t *ret_next,
                             kj_error *err)
{
    kji_journal_part *part = &journal->older[journal->n_older - 1];
    KJI_CLEANUP(kji_closep) int fd = open_older(journal, part);
    part->size = 0;
    int r = fd < 0 ? 0 : scan_file(fd, part, pending, err);
    *ret_next = part->last + 1;
    return r;
}

static int scan_all(kji_journal *journal, kj_error *err)
{
    struct stat st;
    int64_t first = 0;
    int r = list_older(journal, err);
    if (r >= 0)
        r = kji_journal_first_number(journal->fd, &first, err);
    bool is_empty = r == 0;
    if (r >= 0 && journal->n_older && first <= journal->older[journal->n_older - 1].first)
        r = scan_newest_older(journal, is_empty ? &journal->pending : NULL, &first, err);
    if (r < 0)
        return r;
    journal->now.first = first ? first : 1;
    journal->now.last = journal->now.first - 1;
    r = scan_file(journal->fd, &journal->now, &journal->pending, err);
    if (r >= 0 && fstat(journal->fd, &st) == 0 && st.st_size > journal->now.size &&
        ftruncate(journal->fd, journal->now.size) < 0)
        r = kji_fail_errno(err, KJ_EIO, errno, "cannot cut a torn line off the journal");
    journal->last = journal->now.last;
    kji_pending_make_old(&journal->pending);
    if (r >= 0 && is_empty && journal->n_older)
        r = kji_journal_begin_file(journal, (kji_journal_range){0}, err);
    return r;
}

int kji_journal_open(kji_journal *journal, const char *dir, kj_error *err)
{
    struct rlimit limit;
    *journal = (kji_journal)KJI_JOURNAL_INIT;
    journal->rotate_bytes = rotate_bytes;
    journal->keep_bytes = keep_bytes;
    journal->file_bytes_max = INT64_MAX;
    journal->looked_ms = kji_monotonic_ms();
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)INT64_MAX)
        journal->file_bytes_max = (int64_t)limit.rlim_cur;
    journal->dir = strdup(dir);
    int r = journal->dir ? open_newest(journal, err) : kji_fail_memory(err);
    if (r >= 0)
        r = scan_all(journal, err);
    if (r < 0)
        kji_journal_done(journal);
    return r < 0 ? r : 0;
}

void kji_journal_close_fds(kji_journal *journal)
{
    kji_closep(&journal->fd);
    kji_closep(&journal->dir_fd);
    kji_closep(&journal->next_fd);
}

void kji_journal_done(kji_journal *journal)
{
    kji_forks_hold();
    kji_journal_close_fds(journal);
    kji_forks_release();
    kji_journal_part_done(&journal->now);
    for (size_t k = 0; k < journal->n_older; k++)
        kji_journal_part_done(&journal->older[k]);
    free(journal->older);
    kji_pending_done(&journal->pending);
    free(journal->dir);
    *journal = (kji_journal)KJI_JOURNAL_INIT;
}

double kji_journal_time(const kji_journal *journal)
{
    double time = journal->wall_time ? journal->wall_time() : kji_wall_time();
    return round(time * 1e6) / 1e6;
}

/* {"n": …, "time": …, members of record}, for free; the time in microseconds. `record` is printed
 * once, as it is: this is the work of every command. */
static char *line_text(const kji_journal *journal, struct json_object *record)
{
    const char *members = json_object_to_json_string_ext(
        record, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    long long us = llround(kji_journal_time(journal) * 1e6), n = journal->last + 1;
    if (!members)
        return NULL;
    return kji_format("{\"n\":%lld,\"time\":%s%lld.%06lld%s%s", n, us < 0 ? "-" : "",
                      llabs(us) / 1000000, llabs(us) % 1000000,
                      json_object_object_length(record) ? "," : "", members + 1);
}

static int write_line(kji_journal *journal, const char *text, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf line = KJI_STRBUF_INIT;
    kji_strbuf_puts(&line, text);
    kji_strbuf_putc(&line, '\n');
    if (line.failed)
        return kji_fail_memory(err);
    if ((int64_t)line.size > journal->file_bytes_max - journal->now.size)
        return kji_fail_errno(err, KJ_EIO, EFBIG, "write");
    int r = kji_write_all(journal->fd, line.text, line.size, err);
    if (r >= 0 && !kji_journal_part_grow(&journal->now, line.size))
        r = kji_fail_memory(err);
    return r;
}

/* Whether the file, or its folder, was deleted; looked at once a second. */
static bool is_deleted(kji_journal *journal)
{
    struct stat st;
    int64_t now_ms = kji_monotonic_ms();
    if (now_ms - journal->looked_ms < LOOK_MS)
        return false;
    journal->looked_ms = now_ms;
    return fstat(journal->fd, &st) == 0 && st.st_nlink == 0;
}

/* What comes before a line: a new file, when it is time. As kji_journal_append; `err` is not NULL.
 */
static int prepare(kji_journal *journal, kj_error *err)
{
    int64_t limit = journal->rotate_bytes;
    if (is_deleted(journal)) {
        int r = kji_journal_begin_anew(journal, err);
        return r < 0 ? r : 1;
    }
    if (limit > journal->file_bytes_max / 2)
        limit = journal->file_bytes_max / 2;
    if (journal->now.size < limit || journal->now.size < journal->rotate_again_at)
        return 0;
    if (kji_journal_rotate(journal, err) >= 0)
        return 0;
    journal->rotate_again_at = journal->now.size + limit;
    /* A disk that is full is told of when a line does not fit, and only then. */
    return err->native == ENOSPC || err->native == EDQUOT ? 0 : 1;
}

int kji_journal_append(kji_journal *journal, struct json_object *record, char **ret_line,
                       kj_error *err)
{
    bool is_written = journal->fd >= 0 && !journal->failed;
    kj_error beside = KJ_ERROR_INIT;
    int r = is_written ? prepare(journal, &beside) : 0, said = r;
    char *text = line_text(journal, record);
    if (!text)
        return kji_fail_memory(err);
    if (r < 0)
        kji_forward(err, &beside);
    else if (is_written)
        r = write_line(journal, text, err);
    journal->failed |= r < 0;
    if (journal->fd >= 0)
        kji_pending_take(&journal->pending, record, text, strlen(text));
    journal->last++;
    *ret_line = text;
    if (r < 0)
        return kji_fail_prefix(err, r, KJI_JOURNAL_NAME " ends here");
    if (said > 0)
        kji_forward(err, &beside);
    return said;
}

struct json_object *kji_journal_missing(int64_t first, int64_t last, const char *why)
{
    struct json_object *line = json_object_new_object();
    json_object_object_add(line, "n", json_object_new_int64(last));
    json_object_object_add(line, "event", json_object_new_string("missing"));
    json_object_object_add(line, "first", json_object_new_int64(first));
    json_object_object_add(line, "text", json_object_new_string(why));
    return line;
}

typedef struct collection {
    struct json_object *lines;
    int64_t n; /* number of the line that comes next */
    int64_t after;
    int64_t limit;
    size_t limit_bytes;
    size_t used;
} collection;

static bool is_full(const collection *to)
{
    return (int64_t)json_object_array_length(to->lines) >= to->limit || to->used >= to->limit_bytes;
}

static int collect_line(void *userdata, char *text, size_t size)
{
    collection *to = userdata;
    struct json_object *line = NULL;
    if (to->n++ > to->after && text && kji_json_parse(text, size, &line, NULL) >= 0) {
        json_object_array_add(to->lines, line);
        to->used += size;
    }
    return is_full(to);
}

/* The lines of one file; an older one is counted when it is first read. */
static int collect_part(int fd, kji_journal_part *part, collection *to, kj_error *err)
{
    int r = 0;
    if (part->last < part->first) {
        part->size = 0;
        r = scan_file(fd, part, NULL, err);
    }
    if (r < 0 || part->last <= to->after)
        return r;
    int64_t offset = kji_journal_part_seek(part, to->after + 1, &to->n);
    return kji_each_line(fd, offset, collect_line, to, NULL, err);
}

/* Lines from to->after + 1 up to `last`, if any, are in no file. */
static void collect_missing(collection *to, int64_t last, const char *why)
{
    if (last > to->after)
        json_object_array_add(to->lines, kji_journal_missing(to->after + 1, last, why));
    if (last > to->after)
        to->after = last;
}

static const char gone[] = "the file with these lines is gone, or damaged";

static int collect_older(kji_journal *journal, size_t index, collection *to, kj_error *err)
{
    kji_journal_part *part = &journal->older[index];
    int64_t next = index + 1 < journal->n_older ? part[1].first : journal->now.first;
    if (next <= to->after + 1)
        return 0;
    KJI_CLEANUP(kji_closep) int fd = open_older(journal, part);
    if (fd >= 0) {
        collect_missing(to, part->first - 1, gone);
        int r = collect_part(fd, part, to, err);
        if (r < 0 || is_full(to))
            return r;
        to->after = part->last > to->after ? part->last : to->after;
    }
    collect_missing(to, next - 1, gone);
    return 0;
}

int kji_journal_read_back(kji_journal *journal, int64_t after, int64_t limit, size_t limit_bytes,
                          struct json_object **ret_lines, kj_error *err)
{
    collection to = {.after = after < 0 ? 0 : after, .limit = limit, .limit_bytes = limit_bytes};
    to.lines = json_object_new_array();
    if (!to.lines)
        return kji_fail_memory(err);
    *ret_lines = to.lines;
    if (journal->fd < 0 || limit <= 0)
        return 0;
    int r = 0;
    for (size_t k = 0; r >= 0 && k < journal->n_older && !is_full(&to); k++)
        r = collect_older(journal, k, &to, err);
    if (r >= 0 && !is_full(&to) && journal->now.first > 1)
        collect_missing(&to, journal->now.first - 1, gone);
    if (r >= 0 && !is_full(&to) && journal->now.last > to.after)
        r = collect_part(journal->fd, &journal->now, &to, err);
    if (r < 0) {
        json_object_put(to.lines);
        *ret_lines = NULL;
        return r;
    }
    return 0;
}
