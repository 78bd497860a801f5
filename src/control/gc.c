/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs that have ended left behind. First everything is looked at, and nothing touched: the
 * dry run ends there. A run counts as live when its folder of doors is locked or its journal is.
 * What goes is locked first and looked at again; the journal goes last of the files, so that a run
 * that begins meanwhile under this id finds a journal whole, or none. Links are never followed, and
 * only files that kajitori makes are removed.
 */
#include "clock.h"
#include "errors.h"
#include "files.h"
#include "journal-part.h"
#include "mem.h"
#include "places.h"
#include "publish.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

typedef struct leftover {
    int kind; /* enum kj_gc_kind */
    char *root;
    char *name; /* the run's id, or the hidden name of doors that were never shown */
    int64_t bytes;
    double heard_of; /* time of the newest file */
    bool has_others; /* files that are not kajitori's, too */
    const char *reason;
} leftover;

typedef struct gc_pass {
    const kj_gc_options *options;
    double now;
    leftover *item;
    size_t n, capacity;
    char **live; /* ids */
    size_t n_live, live_capacity;
    int64_t live_bytes; /* of their journals */
    char age_reason[64];
    char size_reason[64];
} gc_pass;

static void gc_done(gc_pass *gc)
{
    for (size_t k = 0; k < gc->n; k++) {
        free(gc->item[k].root);
        free(gc->item[k].name);
    }
    for (size_t k = 0; k < gc->n_live; k++)
        free(gc->live[k]);
    free(gc->item);
    free(gc->live);
}

static int open_folder(int root_fd, const char *name)
{
    enum { FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    struct stat st;
    int fd = openat(root_fd, name, FLAGS);
    if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_uid != geteuid()))
        kji_closep(&fd);
    return fd;
}

/* Calls `fn` for each name in a folder, until it fails. */
static int each_name(int dir_fd, int (*fn)(void *userdata, const char *name, kj_error *err),
                     void *userdata, kj_error *err)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        kji_closep(&fd);
        return kji_fail_errno(err, KJ_EIO, errno, "cannot list a folder");
    }
    for (struct dirent *entry; r >= 0 && (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = fn(userdata, entry->d_name, err);
    closedir(listing);
    return r;
}

static bool is_of_a_run(const char *name)
{
    return strcmp(name, KJI_JOURNAL_NAME) == 0 || kji_journal_part_number(name) > 0 ||
           strcmp(name, "output.log") == 0 || strcmp(name, "run.json") == 0 ||
           strncmp(name, ".run.json.", 10) == 0 || strcmp(name, KJI_JOURNAL_HIDDEN_NAME) == 0;
}

/* What is in a folder. */
typedef struct folder_survey {
    int dir_fd;
    bool (*is_known)(const char *name);
    int64_t bytes; /* of the files that are known */
    size_t n_known, n_others;
    double newest; /* time of the newest one that is known */
} folder_survey;

static double time_of(const struct stat *st)
{
    return (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec * 1e-9;
}

static int survey_name(void *userdata, const char *name, kj_error *err)
{
    (void)err;
    folder_survey *survey = userdata;
    struct stat st;
    if (fstatat(survey->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* it went meanwhile */
    bool is_door = S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode);
    if (!survey->is_known(name) || !(S_ISREG(st.st_mode) || is_door)) {
        survey->n_others++;
        return 0;
    }
    survey->n_known++;
    survey->bytes += S_ISREG(st.st_mode) ? st.st_size : 0;
    if (time_of(&st) > survey->newest)
        survey->newest = time_of(&st);
    return 0;
}

static int survey_folder(int dir_fd, bool (*is_known)(const char *name), folder_survey *survey,
                         kj_error *err)
{
    struct stat st;
    *survey = (folder_survey){.dir_fd = dir_fd, .is_known = is_known};
    int r = each_name(dir_fd, survey_name, survey, err);
    if (r >= 0 && survey->n_known == 0 && fstat(dir_fd, &st) == 0)
        survey->newest = time_of(&st);
    return r;
}

static int add(gc_pass *gc, int kind, const char *root, const char *name,
               const folder_survey *survey, kj_error *err)
{
    leftover item = {.kind = kind,
                     .bytes = survey->bytes,
                     .heard_of = survey->newest,
                     .has_others = survey->n_others > 0};
    item.root = strdup(root);
    item.name = strdup(name);
    if (!item.root || !item.name ||
        !kji_reserve(&gc->item, &gc->capacity, gc->n + 1, sizeof *gc->item)) {
        free(item.root);
        free(item.name);
        return kji_fail_memory(err);
    }
    gc->item[gc->n++] = item;
    return 0;
}

static int add_live(gc_pass *gc, const char *id, kj_error *err)
{
    char *copy = strdup(id);
    if (!copy || !kji_reserve(&gc->live, &gc->live_capacity, gc->n_live + 1, sizeof *gc->live)) {
        free(copy);
        return kji_fail_memory(err);
    }
    gc->live[gc->n_live++] = copy;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_live(const gc_pass *gc, const char *id)
{
    return gc->n_live && bsearch(&id, gc->live, gc->n_live, sizeof *gc->live, by_text);
}

/* A place that is being looked at. */
typedef struct gc_place {
    gc_pass *gc;
    const char *root;
    int root_fd;
} gc_place;

static int look_at_doors(void *userdata, const char *name, kj_error *err)
{
    gc_place *place = userdata;
    folder_survey survey;
    if (!kji_run_id_valid(name) && strncmp(name, ".new-", 5) != 0)
        return 0;
    KJI_CLEANUP(kji_closep) int dir_fd = open_folder(place->root_fd, name);
    if (dir_fd < 0)
        return 0;
    switch (kji_publish_look(name, dir_fd)) {
    case KJI_DOORS_LIVE:
        return add_live(place->gc, name, err);
    case KJI_DOORS_UNFINISHED:
        return 0;
    }
    int r = survey_folder(dir_fd, kji_publish_is_door, &survey, err);
    if (r < 0 || (survey.n_known == 0 && survey.n_others > 0))
        return r;
    return add(place->gc, KJ_GC_DOORS, place->root, name, &survey, err);
}

/* A shared lock, for a moment: a run that opens its journal just then asks again. */
static bool is_journal_locked(int dir_fd)
{
    enum { FLAGS = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
    KJI_CLEANUP(kji_closep) int fd = openat(dir_fd, KJI_JOURNAL_NAME, FLAGS);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int look_at_run(void *userdata, const char *name, kj_error *err)
{
    gc_place *place = userdata;
    folder_survey survey;
    if (!kji_run_id_valid(name))
        return 0;
    KJI_CLEANUP(kji_closep) int dir_fd = open_folder(place->root_fd, name);
    if (dir_fd < 0)
        return 0;
    int r = survey_folder(dir_fd, is_of_a_run, &survey, err);
    if (r < 0 || (survey.n_known == 0 && survey.n_others > 0))
        return r;
    if (is_live(place->gc, name) || is_journal_locked(dir_fd)) {
        place->gc->live_bytes += survey.bytes;
        return 0;
    }
    return add(place->gc, KJ_GC_RUN, place->root, name, &survey, err);
}

/* Looks into one place, if it is there. */
static int look_into(gc_pass *gc, const char *root,
                     int (*look)(void *userdata, const char *name, kj_error *err), kj_error *err)
{
    KJI_CLEANUP(kji_closep) int root_fd = open_folder(AT_FDCWD, root);
    if (root_fd < 0 && errno == ENOENT)
        return 0;
    if (root_fd < 0)
        return kji_fail(err, KJ_EPERM, "%s: cannot be opened, or is not ours", root);
    gc_place place = {gc, root, root_fd};
    int r = each_name(root_fd, look, &place, err);
    return r < 0 ? kji_fail_prefix(err, r, "%s", root) : 0;
}

/* Returns the first error; what can be looked at is. */
static int look_everywhere(gc_pass *gc, kj_error *err)
{
    char **roots;
    size_t n;
    KJI_CLEANUP(kji_freep) char *state = NULL;
    KJI_CLEANUP(kji_freep) char *runs = NULL;
    int r = kji_runtime_dirs(gc->options->runtime_dir, &roots, &n, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < n; k++) {
        int r2 = look_into(gc, roots[k], look_at_doors, r < 0 ? NULL : err);
        r = r < 0 ? r : r2;
    }
    kji_places_free(roots, n);
    if (gc->n_live > 1)
        qsort(gc->live, gc->n_live, sizeof *gc->live, by_text);
    int r2 = kji_state_dir(gc->options->state_dir, &state, r < 0 ? NULL : err);
    if (r2 >= 0) {
        runs = kji_format("%s/runs", state);
        r2 = runs ? look_into(gc, runs, look_at_run, r < 0 ? NULL : err) : kji_fail_memory(err);
    }
    return r < 0 ? r : r2;
}

/* Doors first, then the oldest. */
static int by_age(const void *a, const void *b)
{
    const leftover *left = a, *right = b;
    if (left->kind != right->kind)
        return right->kind - left->kind;
    if (left->heard_of != right->heard_of)
        return left->heard_of < right->heard_of ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* "30 days", "12 hours", "90 s". */
static void print_age(double seconds, char *text, size_t size)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        int64_t n = (int64_t)(seconds / units[k].seconds);
        if (n > 0 && (double)n * units[k].seconds == seconds) {
            snprintf(text, size, "older than %" PRId64 " %s%s", n, units[k].name,
                     n == 1 ? "" : "s");
            return;
        }
    }
    snprintf(text, size, "older than %.0f s", seconds);
}

/* Says of each thing why it goes; those without a reason stay. */
static void judge(gc_pass *gc)
{
    const kj_gc_options *options = gc->options;
    int64_t total = gc->live_bytes;
    print_age(options->older_than_s, gc->age_reason, sizeof gc->age_reason);
    snprintf(gc->size_reason, sizeof gc->size_reason, "the oldest beyond %" PRId64 " bytes",
             options->keep_bytes);
    for (size_t k = 0; k < gc->n; k++) {
        leftover *item = &gc->item[k];
        if (item->kind == KJ_GC_DOORS)
            item->reason = "the run is dead";
        else if (options->older_than_s >= 0 && gc->now - item->heard_of >= options->older_than_s)
            item->reason = gc->age_reason;
        else
            total += item->bytes;
    }
    for (size_t k = 0; k < gc->n && options->keep_bytes >= 0 && total > options->keep_bytes; k++) {
        if (gc->item[k].reason)
            continue;
        gc->item[k].reason = gc->size_reason;
        total -= gc->item[k].bytes;
    }
}

static int unlink_known(void *userdata, const char *name, kj_error *err)
{
    folder_survey *survey = userdata;
    struct stat st;
    if (!survey->is_known(name) || strcmp(name, KJI_JOURNAL_NAME) == 0 ||
        fstatat(survey->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    if (unlinkat(survey->dir_fd, name, 0) < 0 && errno != ENOENT)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot remove %s", name);
    return 0;
}

/* Locks the journal, which is made when there is none, with a shared lock, for which a run waits:
 * nobody begins to write it meanwhile. False: somebody does. */
static bool lock_journal(int dir_fd, int *ret_fd)
{
    enum { FLAGS = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
    struct stat by_name, by_fd;
    *ret_fd = openat(dir_fd, KJI_JOURNAL_NAME, FLAGS, 0600);
    if (*ret_fd < 0)
        return true; /* a link or a folder has its name: no run can write that, either */
    if (flock(*ret_fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return false;
    return fstatat(dir_fd, KJI_JOURNAL_NAME, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(*ret_fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino;
}

static int remove_run(int root_fd, const leftover *item, kj_error *err)
{
    folder_survey survey;
    struct stat st;
    KJI_CLEANUP(kji_closep) int lock_fd = -1;
    KJI_CLEANUP(kji_closep) int dir_fd = open_folder(root_fd, item->name);
    if (dir_fd < 0)
        return 0;
    int r = survey_folder(dir_fd, is_of_a_run, &survey, err);
    if (r < 0 || survey.newest > item->heard_of || !lock_journal(dir_fd, &lock_fd))
        return r;
    r = each_name(dir_fd, unlink_known, &survey, err);
    if (r < 0)
        return r;
    if (fstatat(dir_fd, KJI_JOURNAL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        unlinkat(dir_fd, KJI_JOURNAL_NAME, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot remove " KJI_JOURNAL_NAME);
    if (unlinkat(root_fd, item->name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot remove the folder");
    return 0;
}

static int remove_item(const leftover *item, kj_error *err)
{
    int r = 0;
    KJI_CLEANUP(kji_closep) int root_fd = open_folder(AT_FDCWD, item->root);
    if (root_fd < 0)
        return 0;
    if (item->kind == KJ_GC_RUN) {
        r = remove_run(root_fd, item, err);
    } else {
        KJI_CLEANUP(kji_closep) int dir_fd = open_folder(root_fd, item->name);
        if (dir_fd >= 0)
            kji_publish_is_live(root_fd, item->name, dir_fd); /* removes it when it is not */
    }
    return r < 0 ? kji_fail_prefix(err, r, "%s/%s", item->root, item->name) : 0;
}

/* Tells of one thing: nonzero when `fn` ends it. */
static int tell(const gc_pass *gc, const leftover *item, kj_gc_fn fn, void *userdata)
{
    double age = gc->now - item->heard_of;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", item->root, item->name);
    KJI_CLEANUP(kji_freep)
    char *reason = kji_format("%s%s", item->reason,
                              item->has_others ? "; other files in its folder stay" : "");
    kj_gc_item told = {.size = sizeof told,
                       .kind = item->kind,
                       .path = path ? path : item->name,
                       .run_id = item->name,
                       .bytes = item->bytes,
                       .age_s = age > 0 ? age : 0,
                       .reason = reason ? reason : item->reason};
    return fn ? fn(userdata, &told) : 0;
}

/* `result`: of looking, when that failed; *err is kept then. */
static int remove_all(const gc_pass *gc, kj_gc_fn fn, void *userdata, int result, kj_error *err)
{
    bool is_dry = gc->options->flags & KJ_GC_DRY_RUN;
    for (size_t k = 0; k < gc->n; k++) {
        if (!gc->item[k].reason)
            continue;
        if (tell(gc, &gc->item[k], fn, userdata))
            break;
        int r = is_dry ? 0 : remove_item(&gc->item[k], result < 0 ? NULL : err);
        result = result < 0 ? result : r;
    }
    return result;
}

int kj_gc(const kj_gc_options *from, kj_gc_fn fn, void *userdata, kj_error *err)
{
    kj_gc_options options = KJ_GC_OPTIONS_INIT;
    int r = from ? kji_check_size(from->size, sizeof *from, "kj_gc_options", err) : 0;
    if (r < 0)
        return r;
    if (from)
        options = *from;
    if (options.flags & ~(uint32_t)KJ_GC_DRY_RUN)
        return kji_fail(err, KJ_EARG, "flags 0x%x: unknown bits", options.flags);
    KJI_CLEANUP(gc_done) gc_pass gc = {.options = &options, .now = kji_wall_time()};
    r = look_everywhere(&gc, err);
    if (r == KJ_EMEM)
        return r;
    if (gc.n > 1)
        qsort(gc.item, gc.n, sizeof *gc.item, by_age);
    judge(&gc);
    return remove_all(&gc, fn, userdata, r, err);
}
