/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals are read without the run: STATE/runs/RUN-ID/journal*.jsonl (docs/protocol.md section 5).
 * The newest one is the one whose run.json says the latest start; a journal without it counts by
 * its own time. Lines are handed over as they are. The newest file is opened before the others are
 * listed, so that what a run renames meanwhile is read once, and nothing is left out.
 */
#include "errors.h"
#include "files.h"
#include "journal.h"
#include "json.h"
#include "mem.h"
#include "places.h"
#include "registry.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RUN_JSON_LIMIT = 1024 * 1024 };

typedef struct id_list {
    char **ids;
    size_t n, capacity;
} id_list;

static void free_ids(id_list *list)
{
    for (size_t k = 0; k < list->n; k++)
        free(list->ids[k]);
    free(list->ids);
}

static int open_folder(int runs_fd, const char *id)
{
    return openat(runs_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool has_journal(int runs_fd, const char *id)
{
    struct stat st;
    KJI_CLEANUP(kji_freep) int64_t *numbers = NULL;
    KJI_CLEANUP(kji_closep) int dir_fd = open_folder(runs_fd, id);
    size_t n = 0;
    if (dir_fd < 0)
        return false;
    if (fstatat(dir_fd, KJI_JOURNAL_NAME, &st, 0) == 0)
        return S_ISREG(st.st_mode);
    return kji_journal_list_parts(dir_fd, &numbers, &n, NULL) >= 0 && n > 0;
}

static int add_id(id_list *list, const char *id, kj_error *err)
{
    char *copy = strdup(id);
    if (!copy || !kji_reserve(&list->ids, &list->capacity, list->n + 1, sizeof *list->ids)) {
        free(copy);
        return kji_fail_memory(err);
    }
    list->ids[list->n++] = copy;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_journals(int runs_fd, id_list *list, kj_error *err)
{
    int fd = openat(runs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        kji_closep(&fd);
        return kji_fail_errno(err, KJ_EIO, errno, "cannot list the journals");
    }
    int r = 0;
    for (struct dirent *item; r >= 0 && (item = readdir(listing));)
        if (kji_run_id_valid(item->d_name) && has_journal(runs_fd, item->d_name))
            r = add_id(list, item->d_name, err);
    closedir(listing);
    if (list->n > 1)
        qsort(list->ids, list->n, sizeof *list->ids, by_name);
    return r;
}

static double start_of(int runs_fd, const char *id)
{
    double start;
    size_t size;
    struct json_object *member;
    KJI_CLEANUP(kji_freep) char *text = NULL;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/run.json", id);
    if (path && kji_read_file(runs_fd, path, RUN_JSON_LIMIT, &text, &size, NULL) >= 0 &&
        kji_json_parse(text, size, &json, NULL) >= 0 &&
        json_object_is_type(json, json_type_object) &&
        json_object_object_get_ex(json, "start_time", &member) &&
        kji_json_get_double(member, &start))
        return start;
    struct stat st;
    if (fstatat(runs_fd, id, &st, 0) < 0)
        return 0;
    return (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9;
}

static size_t find_newest(int runs_fd, const id_list *list)
{
    size_t newest = 0;
    double latest = -1;
    for (size_t k = 0; k < list->n; k++) {
        double start = start_of(runs_fd, list->ids[k]);
        if (start > latest) {
            latest = start;
            newest = k;
        }
    }
    return newest;
}

static int find_journal(int runs_fd, const char *runs_dir, const char *prefix, char **ret_id,
                        kj_error *err)
{
    KJI_CLEANUP(free_ids) id_list list = {0};
    int r = list_journals(runs_fd, &list, err);
    if (r < 0)
        return r;
    if (list.n == 0)
        return kji_fail(err, KJ_ENORUN, "there is no journal in %s", runs_dir);
    size_t index;
    if (!prefix || !*prefix) {
        index = find_newest(runs_fd, &list);
    } else {
        r = kji_pick_run((const char *const *)list.ids, list.n, prefix, "journal", err);
        if (r < 0)
            return r;
        index = (size_t)r;
    }
    *ret_id = kji_take(&list.ids[index]);
    return 0;
}

typedef struct journal_reading {
    int dir_fd;
    const char *path; /* of the folder, for messages */
    kj_journal_fn fn;
    void *userdata;
    int64_t next;  /* number of the line that comes next */
    char *trouble; /* why lines before it are not there; NULL: not known */
    bool is_ended; /* fn wants no more */
} journal_reading;

/* Lines from reading->next up to `last` are not there. */
static void tell_missing(journal_reading *reading, int64_t last)
{
    if (last < reading->next || reading->is_ended)
        return;
    const char *why = reading->trouble ? reading->trouble : "these lines are gone";
    struct json_object *line = kji_journal_missing(reading->next, last, why);
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(line);
    json_object_put(line);
    if (text)
        reading->is_ended = reading->fn(reading->userdata, text);
    reading->next = last + 1;
}

static void set_trouble(journal_reading *reading, char *text)
{
    free(reading->trouble);
    reading->trouble = text;
}

static int hand_over(void *userdata, char *text, size_t size)
{
    journal_reading *reading = userdata;
    if (text) {
        reading->is_ended = reading->fn(reading->userdata, text);
        reading->next++;
    } else {
        set_trouble(reading, kji_format("a line of %zu bytes", size));
        tell_missing(reading, reading->next);
    }
    return reading->is_ended;
}

/* An older file. What cannot be read of it is told of with the next one, whose number shows it. */
static void read_older(journal_reading *reading, int64_t number)
{
    char name[KJI_JOURNAL_NAME_MAX];
    kj_error err = KJ_ERROR_INIT;
    tell_missing(reading, number - 1);
    set_trouble(reading, NULL);
    KJI_CLEANUP(kji_closep)
    int fd = openat(reading->dir_fd, kji_journal_part_name(number, name),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    reading->next = number;
    if (fd < 0)
        set_trouble(reading, kji_format("%s: %s", name, strerrordesc_np(errno)));
    else if (kji_each_line(fd, 0, hand_over, reading, NULL, &err) < 0)
        set_trouble(reading, kji_format("%s: %s", name, err.message));
}

static int read_newest(journal_reading *reading, int fd, int64_t number, kj_error *err)
{
    if (number != INT64_MAX) {
        tell_missing(reading, number - 1);
        reading->next = number;
    }
    int r = reading->is_ended ? 0 : kji_each_line(fd, 0, hand_over, reading, NULL, err);
    return r < 0 ? kji_fail_prefix(err, r, "%s/" KJI_JOURNAL_NAME, reading->path) : 0;
}

static bool is_same_file(int dir_fd, const char *name, int fd)
{
    struct stat by_name, by_fd;
    return fd >= 0 && fstatat(dir_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino &&
           by_name.st_dev == by_fd.st_dev;
}

/* The number of the newest file's first line: it says so, or it has got another name since it was
 * opened. INT64_MAX when it is not known. The numbers of `list` become those of the others. */
static int64_t number_of_newest(int dir_fd, int fd, int64_t *list, size_t *n)
{
    int64_t number = INT64_MAX;
    size_t kept = 0;
    if (fd >= 0)
        kji_journal_first_number(fd, &number, NULL);
    for (size_t k = 0; k < *n; k++) {
        char name[KJI_JOURNAL_NAME_MAX];
        if (is_same_file(dir_fd, kji_journal_part_name(list[k], name), fd))
            number = list[k];
        else
            list[kept++] = list[k];
    }
    *n = kept;
    return number;
}

static int read_files(journal_reading *reading, kj_error *err)
{
    KJI_CLEANUP(kji_freep) int64_t *numbers = NULL;
    size_t n = 0, k = 0;
    KJI_CLEANUP(kji_closep)
    int fd = openat(reading->dir_fd, KJI_JOURNAL_NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open %s/" KJI_JOURNAL_NAME,
                              reading->path);
    int r = kji_journal_list_parts(reading->dir_fd, &numbers, &n, err);
    if (r < 0)
        return r;
    int64_t newest = number_of_newest(reading->dir_fd, fd, numbers, &n);
    for (; k < n && numbers[k] < newest && !reading->is_ended; k++)
        read_older(reading, numbers[k]);
    if (fd >= 0)
        r = read_newest(reading, fd, newest, err);
    for (; r >= 0 && k < n && !reading->is_ended; k++)
        read_older(reading, numbers[k]);
    return r;
}

/* A run that has left a journal. */
typedef struct past_run {
    char *id;
    char *path;
    int dir_fd;
} past_run;

static void past_run_done(past_run *past)
{
    free(past->id);
    free(past->path);
    kji_closep(&past->dir_fd);
}

static int find_past_run(const char *state_dir, const char *prefix, past_run *past, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *state = NULL;
    int r = kji_state_dir(state_dir, &state, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep) char *runs_dir = kji_format("%s/runs", state);
    if (!runs_dir)
        return kji_fail_memory(err);
    KJI_CLEANUP(kji_closep) int runs_fd = open(runs_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (runs_fd < 0 && errno == ENOENT)
        return kji_fail(err, KJ_ENORUN, "there is no journal: no folder %s", runs_dir);
    if (runs_fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open %s", runs_dir);
    r = find_journal(runs_fd, runs_dir, prefix, &past->id, err);
    if (r < 0)
        return r;
    past->path = kji_format("%s/%s", runs_dir, past->id);
    if (!past->path)
        return kji_fail_memory(err);
    past->dir_fd = open_folder(runs_fd, past->id);
    if (past->dir_fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open %s", past->path);
    return 0;
}

int kj_journal_read(const char *state_dir, const char *prefix, kj_journal_fn fn, void *userdata,
                    char **ret_run_id, kj_error *err)
{
    KJI_CLEANUP(past_run_done) past_run past = {.dir_fd = -1};
    int r = find_past_run(state_dir, prefix, &past, err);
    if (r < 0)
        return r;
    journal_reading reading = {
        .dir_fd = past.dir_fd, .path = past.path, .fn = fn, .userdata = userdata, .next = 1};
    r = read_files(&reading, err);
    free(reading.trouble);
    if (r >= 0 && ret_run_id)
        *ret_run_id = kji_take(&past.id);
    return r;
}

/* What is read here may be started again: nobody else may have been able to write it. */
static int check_is_ours(const past_run *past, kj_error *err)
{
    struct stat st, above;
    if (fstat(past->dir_fd, &st) < 0 || fstatat(past->dir_fd, "..", &above, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "%s", past->path);
    if (st.st_uid != geteuid() || (above.st_uid != geteuid() && above.st_uid != 0))
        return kji_fail(err, KJ_EPERM, "%s belongs to another user", past->path);
    if (st.st_mode & 022 || (above.st_mode & 022 && !(above.st_mode & S_ISVTX)))
        return kji_fail(err, KJ_EPERM, "others may write to %s, or to the folder that it is in",
                        past->path);
    return 0;
}

int kj_past_run_load(const char *state_dir, const char *prefix, char **ret_json, char **ret_run_id,
                     kj_error *err)
{
    KJI_CLEANUP(past_run_done) past_run past = {.dir_fd = -1};
    KJI_CLEANUP(kji_freep) char *text = NULL;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    size_t size;
    int r = find_past_run(state_dir, prefix, &past, err);
    if (r < 0)
        return r;
    r = check_is_ours(&past, err);
    if (r < 0)
        return r;
    r = kji_read_file(past.dir_fd, "run.json", RUN_JSON_LIMIT, &text, &size, err);
    if (r == KJ_ENOENT) /* not: no such run */
        r = kji_fail(err, KJ_EDATA, "run %s has left a journal, but no run.json", past.id);
    if (r >= 0)
        r = kji_json_parse(text, size, &json, err);
    if (r >= 0 && !json_object_is_type(json, json_type_object))
        r = kji_fail(err, KJ_EDATA, "it is no object");
    if (r < 0)
        return r == KJ_EMEM ? r : kji_fail_prefix(err, r, "%s/run.json", past.path);
    *ret_json = kji_take(&text);
    if (ret_run_id)
        *ret_run_id = kji_take(&past.id);
    return 0;
}
