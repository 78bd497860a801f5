/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals are read without the run: STATE/runs/RUN-ID/journal.jsonl (docs/protocol.md section 5).
 * The newest one is the one whose run.json says the latest start; a journal without it counts by
 * its own time. Lines are handed over as they are; what follows the last newline was torn by a
 * crash, or is being written now, and is no line.
 */
#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "places.h"
#include "registry.h"
#include "strbuf.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINE_LIMIT = 4 * 1024 * 1024, RUN_JSON_LIMIT = 1024 * 1024, READ_SIZE = 65536 };

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

static bool has_journal(int runs_fd, const char *id)
{
    struct stat st;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/journal.jsonl", id);
    return path && fstatat(runs_fd, path, &st, 0) == 0 && S_ISREG(st.st_mode);
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

/* Hands over the whole lines of `buffer` and keeps the rest. Nonzero as soon as fn returns it. */
static int deliver_lines(kji_strbuf *buffer, size_t fresh, kj_journal_fn fn, void *userdata)
{
    size_t begin = 0, from = buffer->size - fresh;
    int stop = 0;
    for (char *end; !stop && (end = memchr(buffer->text + from, '\n', buffer->size - from));) {
        *end = 0;
        stop = fn(userdata, buffer->text + begin);
        begin = from = (size_t)(end - buffer->text) + 1;
    }
    kji_strbuf_consume(buffer, begin);
    return stop;
}

static int read_lines(int fd, const char *path, kj_journal_fn fn, void *userdata, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf buffer = KJI_STRBUF_INIT;
    KJI_CLEANUP(kji_freep) char *bytes = malloc(READ_SIZE);
    if (!bytes)
        return kji_fail_memory(err);
    for (;;) {
        ssize_t n = read(fd, bytes, READ_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot read %s", path);
        if (n == 0)
            return 0;
        kji_strbuf_add(&buffer, bytes, (size_t)n);
        if (buffer.failed)
            return kji_fail_memory(err);
        if (deliver_lines(&buffer, (size_t)n, fn, userdata))
            return 0;
        if (buffer.size > LINE_LIMIT)
            return kji_fail(err, KJ_EDATA, "%s: a line of more than %d bytes", path, LINE_LIMIT);
    }
}

int kj_journal_read(const char *state_dir, const char *prefix, kj_journal_fn fn, void *userdata,
                    char **ret_run_id, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *state = NULL, *id = NULL;
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
    r = find_journal(runs_fd, runs_dir, prefix, &id, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/journal.jsonl", id);
    if (!path)
        return kji_fail_memory(err);
    KJI_CLEANUP(kji_closep) int fd = openat(runs_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open %s/%s", runs_dir, path);
    r = read_lines(fd, path, fn, userdata, err);
    if (r >= 0 && ret_run_id)
        *ret_run_id = kji_take(&id);
    return r;
}

int kj_past_run_load(const char *state_dir, const char *prefix, char **ret_json, char **ret_run_id,
                     kj_error *err)
{
    (void)state_dir, (void)prefix, (void)ret_json, (void)ret_run_id;
    return kji_fail(err, KJ_EUNSUPPORTED, "past runs");
}
