/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new file is written and locked under a hidden name. Then the old one gets its second name by
 * link(2), and one rename puts the new one in its place: at every moment journal.jsonl is there,
 * whole, and locked. After a death between the two, the next run finds one file under both names
 * and takes the second one away. Where there are no hard links the old one is renamed first.
 *
 * The new file begins with what the older ones left open, so that no other need be read to know
 * what a dead run did not do.
 */
#include "journal-rotate.h"

#include "errors.h"
#include "files.h"
#include "forks.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { LISTED_BYTES = 60000 }; /* of records in one line: an answer has at most 1 MiB */

/* `{"n":…,"time":…,"event":"continued",…`, without the brace that closes it. */
static void print_head(const kji_journal *journal, int64_t n, kji_journal_range removed,
                       kji_strbuf *to)
{
    struct json_object *line = json_object_new_object();
    json_object_object_add(line, "n", json_object_new_int64(n));
    json_object_object_add(line, "time", kji_json_new_double(kji_journal_time(journal)));
    json_object_object_add(line, "event", json_object_new_string("continued"));
    json_object_object_add(line, "last_seq", json_object_new_int64(journal->pending.last_seq));
    if (removed.last) {
        struct json_object *range = json_object_new_object();
        json_object_object_add(range, "first", json_object_new_int64(removed.first));
        json_object_object_add(range, "last", json_object_new_int64(removed.last));
        json_object_object_add(line, "removed", range);
    }
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(line);
    json_object_put(line);
    if (text)
        kji_strbuf_add(to, text, strlen(text) - 1);
    to->failed |= !text;
}

/* The records from `*k` on that fit into one line and are of one kind. */
static void print_list(const kji_pending *pending, size_t *k, kji_strbuf *to)
{
    bool is_old = *k < pending->n && pending->item[*k].is_old;
    size_t begin = to->size;
    kji_strbuf_printf(to, ",\"%s\":[", is_old ? "recoverable" : "waiting");
    for (const char *comma = ""; *k < pending->n && pending->item[*k].is_old == is_old; ++*k) {
        const char *record = pending->item[*k].line;
        if (*comma && to->size - begin + strlen(record) > LISTED_BYTES)
            break;
        kji_strbuf_puts(to, comma);
        kji_strbuf_puts(to, record);
        comma = ",";
    }
    kji_strbuf_puts(to, *k < pending->n ? "],\"more\":true}\n" : "]}\n");
}

/* The first lines of a file: *part becomes its description. */
static int print_continued(const kji_journal *journal, kji_journal_range removed,
                           kji_journal_part *part, kji_strbuf *to, kj_error *err)
{
    size_t k = 0;
    *part = (kji_journal_part){.first = journal->last + 1, .last = journal->last};
    do {
        size_t begin = to->size;
        print_head(journal, part->last + 1, removed, to);
        print_list(&journal->pending, &k, to);
        removed = (kji_journal_range){0};
        if (to->failed || !kji_journal_part_grow(part, to->size - begin))
            return kji_fail_memory(err);
    } while (k < journal->pending.n);
    return 0;
}

/* Opens journal->next_fd, locked, under the hidden name, and writes the first lines. */
static int write_hidden(kji_journal *journal, kji_journal_range removed, kji_journal_part *part,
                        kj_error *err)
{
    enum { FLAGS = O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY };
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    int r = print_continued(journal, removed, part, &text, err);
    if (r < 0)
        return r;
    unlinkat(journal->dir_fd, KJI_JOURNAL_HIDDEN_NAME, 0); /* left by a death */
    if (kji_forks_open(&journal->next_fd, journal->dir_fd, KJI_JOURNAL_HIDDEN_NAME, FLAGS, 0600) <
        0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a file");
    flock(journal->next_fd, LOCK_EX | LOCK_NB);
    if ((int64_t)text.size > journal->file_bytes_max)
        return kji_fail_errno(err, KJ_EIO, EFBIG, "write");
    return kji_write_all(journal->next_fd, text.text, text.size, err);
}

static bool has_links(int errnum)
{
    return errnum != EPERM && errnum != EOPNOTSUPP && errnum != ENOSYS && errnum != EMLINK;
}

/* The newest file gets its second name. */
static int name_older(kji_journal *journal, const char *name, kj_error *err)
{
    struct stat by_path, by_fd;
    int dir_fd = journal->dir_fd;
    if (fstatat(dir_fd, KJI_JOURNAL_NAME, &by_path, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstat(journal->fd, &by_fd) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, KJI_JOURNAL_NAME);
    if (by_path.st_ino != by_fd.st_ino || by_path.st_dev != by_fd.st_dev)
        return kji_fail(err, KJ_EIO, "another file took the place of " KJI_JOURNAL_NAME);
    if (linkat(dir_fd, KJI_JOURNAL_NAME, dir_fd, name, 0) == 0)
        return 0;
    if (has_links(errno))
        return kji_fail_errno(err, KJ_EIO, errno, "cannot name %s", name);
    if (faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return kji_fail_errno(err, KJ_EIO, EEXIST, "cannot name %s", name);
    if (renameat(dir_fd, KJI_JOURNAL_NAME, dir_fd, name) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot name %s", name);
    return 0;
}

static void take_name_back(kji_journal *journal, const char *name)
{
    int dir_fd = journal->dir_fd;
    if (faccessat(dir_fd, KJI_JOURNAL_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        unlinkat(dir_fd, name, 0);
    else
        renameat(dir_fd, name, dir_fd, KJI_JOURNAL_NAME);
}

static void drop_hidden(kji_journal *journal, kji_journal_part *part)
{
    if (journal->next_fd >= 0)
        unlinkat(journal->dir_fd, KJI_JOURNAL_HIDDEN_NAME, 0);
    kji_forks_close(&journal->next_fd);
    kji_journal_part_done(part);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The hidden file becomes journal.jsonl. Where much waits, the lines that a file begins with may
 * already be as long as a file may be: the next one waits until as much again was written. */
static int show_hidden(kji_journal *journal, kji_journal_part *part, kj_error *err)
{
    int64_t room = journal->file_bytes_max - part->size;
    if (renameat(journal->dir_fd, KJI_JOURNAL_HIDDEN_NAME, journal->dir_fd, KJI_JOURNAL_NAME) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot name the new file");
    kji_forks_hold();
    kji_closep(&journal->fd);
    journal->fd = journal->next_fd;
    journal->next_fd = -1;
    kji_forks_release();
    journal->now = *part;
    journal->last = part->last;
    journal->rotate_again_at = part->size + smaller(part->size, room / 2);
    return 0;
}

int kji_journal_begin_file(kji_journal *journal, kji_journal_range removed, kj_error *err)
{
    kji_journal_part before = journal->now, part = {0};
    int r = write_hidden(journal, removed, &part, err);
    if (r >= 0)
        r = show_hidden(journal, &part, err);
    if (r < 0)
        drop_hidden(journal, &part);
    else
        kji_journal_part_done(&before);
    return r;
}

/* How many of the older files are too many, once the newest is one of them. */
static size_t count_surplus(const kji_journal *journal, kji_journal_range *ret_removed)
{
    int64_t total = journal->now.size;
    size_t n = 0;
    for (size_t k = 0; k < journal->n_older; k++)
        total += journal->older[k].size;
    for (; n < journal->n_older && total > journal->keep_bytes; n++)
        total -= journal->older[n].size;
    *ret_removed = (kji_journal_range){0};
    if (n > 0) {
        int64_t next = n < journal->n_older ? journal->older[n].first : journal->now.first;
        *ret_removed = (kji_journal_range){journal->older[0].first, next - 1};
    }
    return n;
}

static void remove_oldest(kji_journal *journal, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        char name[KJI_JOURNAL_NAME_MAX];
        unlinkat(journal->dir_fd, kji_journal_part_name(journal->older[k].first, name), 0);
        kji_journal_part_done(&journal->older[k]);
    }
    journal->n_older -= n;
    memmove(journal->older, journal->older + n, journal->n_older * sizeof *journal->older);
}

static int rotate(kji_journal *journal, kj_error *err)
{
    kji_journal_range removed;
    kji_journal_part before = journal->now, part = {0};
    char name[KJI_JOURNAL_NAME_MAX];
    size_t surplus = count_surplus(journal, &removed);
    if (!kji_reserve(&journal->older, &journal->older_capacity, journal->n_older + 1,
                     sizeof *journal->older))
        return kji_fail_memory(err);
    kji_journal_part_name(before.first, name);
    int r = write_hidden(journal, removed, &part, err);
    if (r >= 0)
        r = name_older(journal, name, err);
    if (r < 0) {
        drop_hidden(journal, &part);
        return r;
    }
    r = show_hidden(journal, &part, err);
    if (r < 0) {
        take_name_back(journal, name);
        drop_hidden(journal, &part);
        return r;
    }
    journal->older[journal->n_older++] = before;
    remove_oldest(journal, surplus);
    return 0;
}

int kji_journal_rotate(kji_journal *journal, kj_error *err)
{
    int r = rotate(journal, err);
    return r < 0 ? kji_fail_prefix(err, r, "no new file for the journal, which goes on in the old")
                 : 0;
}

/* Older files that are still there, when only journal.jsonl went, stay. */
static bool is_folder_gone(const kji_journal *journal)
{
    struct stat st;
    return fstat(journal->dir_fd, &st) == 0 && st.st_nlink == 0;
}

int kji_journal_begin_anew(kji_journal *journal, kj_error *err)
{
    kji_journal_range removed = {journal->now.first, journal->last};
    int r = 0;
    if (is_folder_gone(journal)) {
        removed.first = 1;
        remove_oldest(journal, journal->n_older);
        kji_forks_close(&journal->dir_fd);
        r = kji_open_dir(journal->dir, true, &journal->dir_fd, err);
    }
    if (r >= 0 && faccessat(journal->dir_fd, KJI_JOURNAL_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        r = kji_fail(err, KJ_EBUSY, "another one is in its place");
    if (r >= 0)
        r = kji_journal_begin_file(journal, removed, err);
    if (r < 0)
        return kji_fail_prefix(err, r, KJI_JOURNAL_NAME " was deleted and cannot be made anew");
    kji_fail(err, KJ_EIO,
             KJI_JOURNAL_NAME " was deleted: lines %" PRId64 " to %" PRId64
                              " are gone, it goes on in a new file",
             removed.first, removed.last);
    return 0;
}
