/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which runs are there: one folder per run below each runtime folder (docs/protocol.md section 1).
 *
 * A run holds an exclusive flock(2) on the file `lock` in its folder for life, so the kernel frees
 * it at any death. Whoever lists asks for a shared lock without waiting: refused means alive, and
 * nothing was disturbed; granted means dead, and while we hold it the known names are removed. A
 * run that opens takes its lock under a hidden name (.new-...) and renames its folder then, so that
 * no folder with a run's name is ever seen unlocked while its owner lives. Links are never
 * followed, and a folder that is not ours alone is not looked into.
 */
#include "registry.h"

#include "errors.h"
#include "files.h"
#include "json.h"
#include "mailbox.h"
#include "mem.h"
#include "places.h"
#include "publish.h"
#include "strbuf.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { RUN_JSON_LIMIT = 1024 * 1024, NAMES_SHOWN = 8 };

typedef struct run_entry {
    kj_run_info info;
    char *dir;
    char *json_text;
    struct json_object *json; /* what info's strings point into */
    char id[KJI_RUN_ID_MAX + 1];
} run_entry;

struct kj_run_list {
    run_entry **entries;
    size_t n_entries, capacity;
    kji_strbuf places; /* those looked in, for messages */
};

static void add_names(kji_strbuf *text, const char *const *ids, size_t n_ids, const char *prefix)
{
    size_t prefix_size = strlen(prefix), shown = 0, left = 0;
    for (size_t k = 0; k < n_ids; k++) {
        if (strncmp(ids[k], prefix, prefix_size) != 0)
            continue;
        if (shown == NAMES_SHOWN) {
            left++;
            continue;
        }
        kji_strbuf_printf(text, "%s%s", shown++ ? ", " : "", ids[k]);
    }
    if (left)
        kji_strbuf_printf(text, " and %zu more", left);
}

int kji_pick_run(const char *const *ids, size_t n_ids, const char *prefix, const char *what,
                 kj_error *err)
{
    if (!prefix)
        prefix = "";
    size_t prefix_size = strlen(prefix), n_found = 0, found = 0;
    for (size_t k = 0; k < n_ids; k++) {
        if (strncmp(ids[k], prefix, prefix_size) != 0)
            continue;
        if (prefix_size > 0 && strcmp(ids[k], prefix) == 0)
            return (int)k;
        found = k;
        n_found++;
    }
    if (n_found == 1)
        return (int)found;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf names = KJI_STRBUF_INIT;
    if (n_found > 1) {
        add_names(&names, ids, n_ids, prefix);
        if (prefix_size == 0)
            return kji_fail(err, KJ_EAMBIGUOUS, "there are %zu %ss, name one: %s", n_found, what,
                            names.text);
        return kji_fail(err, KJ_EAMBIGUOUS, "'%s' fits %zu %ss: %s", prefix, n_found, what,
                        names.text);
    }
    add_names(&names, ids, n_ids, "");
    if (n_ids == 0)
        return kji_fail(err, KJ_ENORUN, "there is no %s", what);
    return kji_fail(err, KJ_ENORUN, "no %s begins with '%s'; there is %s", what, prefix,
                    names.text);
}

static void free_entry(run_entry *entry)
{
    if (!entry)
        return;
    free(entry->dir);
    free(entry->json_text);
    json_object_put(entry->json);
    free(entry);
}

static bool is_ours_alone(int dir_fd)
{
    struct stat st;
    return fstat(dir_fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 077) == 0;
}

static const char *text_or(struct json_object *json, const char *key, const char *otherwise)
{
    const char *text = kji_json_string(json, key);
    return text ? text : otherwise;
}

static void fill_info(run_entry *entry)
{
    struct json_object *start;
    int64_t number;
    kj_run_info *info = &entry->info;
    info->size = sizeof *info;
    info->id = entry->id;
    info->dir = entry->dir;
    info->json = entry->json_text;
    info->name = text_or(entry->json, "name", "");
    info->framework = text_or(entry->json, "framework", "");
    info->study = text_or(entry->json, "study", "");
    info->trial = kji_json_int(entry->json, "trial", &number) ? number : -1;
    info->pid = kji_json_int(entry->json, "pid", &number) ? (int32_t)number : 0;
    if (!json_object_object_get_ex(entry->json, "start_time", &start) ||
        !kji_json_get_double(start, &info->start_time))
        info->start_time = 0;
}

/* Reads run.json. One that is missing or damaged does not hide a run that lives. */
static int load_entry(const char *place, const char *id, int run_fd, run_entry **ret_entry,
                      kj_error *err)
{
    run_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return kji_fail_memory(err);
    size_t size = 0;
    strcpy(entry->id, id);
    entry->dir = kji_format("%s/%s", place, id);
    if (kji_read_file(run_fd, "run.json", RUN_JSON_LIMIT, &entry->json_text, &size, NULL) < 0 ||
        kji_json_parse(entry->json_text, size, &entry->json, NULL) < 0 ||
        !json_object_is_type(entry->json, json_type_object)) {
        free(entry->json_text);
        json_object_put(entry->json);
        entry->json = json_object_new_object();
        entry->json_text = kji_format("{\"id\":\"%s\"}", id);
    }
    if (!entry->dir || !entry->json || !entry->json_text) {
        free_entry(entry);
        return kji_fail_memory(err);
    }
    fill_info(entry);
    *ret_entry = entry;
    return 0;
}

static int add_entry(kj_run_list *list, run_entry *entry, kj_error *err)
{
    if (!kji_reserve(&list->entries, &list->capacity, list->n_entries + 1, sizeof *list->entries)) {
        free_entry(entry);
        return kji_fail_memory(err);
    }
    list->entries[list->n_entries++] = entry;
    return 0;
}

static int load_run(kj_run_list *list, const char *place, int place_fd, const char *id,
                    kj_error *err)
{
    KJI_CLEANUP(kji_closep)
    int run_fd = openat(place_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (run_fd < 0 || !is_ours_alone(run_fd) || !kji_publish_is_live(place_fd, id, run_fd))
        return 0;
    run_entry *entry = NULL;
    int r = load_entry(place, id, run_fd, &entry, err);
    return r < 0 ? r : add_entry(list, entry, err);
}

/* A folder whose maker died before it had its name. */
static void sweep_unfinished(int place_fd, const char *name)
{
    KJI_CLEANUP(kji_closep)
    int fd = openat(place_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && is_ours_alone(fd))
        kji_publish_is_live(place_fd, name, fd);
}

static int load_place(kj_run_list *list, const char *place, kj_error *err)
{
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return kji_fail_errno(err, errno == EACCES ? KJ_EPERM : KJ_EIO, errno,
                              "cannot look into the runtime folder %s", place);
    if (!is_ours_alone(fd)) {
        close(fd);
        return kji_fail(err, KJ_EPERM,
                        "the runtime folder %s must be a folder of ours with mode 700", place);
    }
    DIR *listing = fdopendir(fd);
    if (!listing) {
        close(fd);
        return kji_fail_memory(err);
    }
    int r = 0;
    for (struct dirent *item; r >= 0 && (item = readdir(listing));) {
        if (kji_run_id_valid(item->d_name))
            r = load_run(list, place, dirfd(listing), item->d_name, err);
        else if (strncmp(item->d_name, ".new-", 5) == 0)
            sweep_unfinished(dirfd(listing), item->d_name);
    }
    closedir(listing);
    return r;
}

static void add_place_name(kj_run_list *list, const char *place)
{
    kji_strbuf_printf(&list->places, "%s%s", list->places.size ? ", " : "", place);
}

/* Whether the run of this mailbox was found by its doors. */
static bool is_listed(const kj_run_list *list, const run_entry *entry)
{
    for (size_t k = 0; k < list->n_entries; k++) {
        const kj_run_info *info = &list->entries[k]->info;
        if (strcmp(info->id, entry->info.id) == 0 && info->pid == entry->info.pid &&
            info->start_time == entry->info.start_time)
            return true;
    }
    return false;
}

/* Whether the folder was made by a run of its name, and is not somebody's own in and out. */
static bool is_mailbox_of(int box_fd, const run_entry *entry)
{
    const char *id = kji_json_string(entry->json, "id");
    return id && strcmp(id, entry->id) == 0 &&
           json_object_object_get_ex(entry->json, "protocol", NULL) &&
           faccessat(box_fd, "alive", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* *now is that of kji_mail_clock, 0 as long as nobody has asked. */
static int load_mailbox(kj_run_list *list, const char *root, int root_fd, const char *id,
                        double *now, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int box_fd = -1;
    run_entry *entry;
    if (kji_mail_open_folder(root_fd, id, &box_fd, NULL) < 0 ||
        faccessat(box_fd, "in", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (*now == 0)
        *now = kji_mail_clock(box_fd);
    int r = load_entry(root, id, box_fd, &entry, err);
    if (r < 0)
        return r;
    bool is_live = kji_mail_check_alive(box_fd, entry->json, *now, NULL) >= 0;
    if (is_live && !is_listed(list, entry))
        return add_entry(list, entry, err);
    if (!is_live && is_mailbox_of(box_fd, entry) &&
        kji_mail_silence(box_fd, *now) > KJI_MAIL_KEPT_S)
        kji_mail_remove(root_fd, id);
    free_entry(entry);
    return 0;
}

/* Runs whose doors are not on this host, or not in the places that were looked into. */
static int load_mailboxes(kj_run_list *list, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *root = NULL;
    double now = 0;
    int r = kji_mailbox_root(NULL, &root, err);
    if (r < 0 || !root)
        return r;
    add_place_name(list, root);
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        if (errno != ENOENT)
            kji_log(KJ_LOG_WARNING, "cannot look into the mailboxes in %s: %s", root,
                    strerrordesc_np(errno));
        kji_closep(&fd);
        return 0;
    }
    for (struct dirent *item; r >= 0 && (item = readdir(listing));)
        if (kji_run_id_valid(item->d_name))
            r = load_mailbox(list, root, fd, item->d_name, &now, err);
    closedir(listing);
    return r;
}

static int by_age(const void *a, const void *b)
{
    const kj_run_info *x = &(*(run_entry *const *)a)->info, *y = &(*(run_entry *const *)b)->info;
    if (x->start_time != y->start_time)
        return x->start_time < y->start_time ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* Says where runs would be when none of the folders is there. Something else in the only place is
 * an error. */
static int name_choices(kj_run_list *list, const char *runtime_dir, kj_error *err)
{
    char **paths;
    size_t n;
    struct stat st;
    int r = kji_runtime_choices(runtime_dir, &paths, &n, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < n; k++)
        add_place_name(list, paths[k]);
    if (n == 1 && stat(paths[0], &st) == 0 && !S_ISDIR(st.st_mode))
        r = kji_fail(err, KJ_EIO, "the runtime folder %s is not a folder", paths[0]);
    kji_places_free(paths, n);
    return r;
}

/* A place that cannot be used is an error when it is the only one; among several (anybody can put
 * something at a path in /tmp) a warning. */
static int load_all(kj_run_list *list, const char *runtime_dir, kj_error *err)
{
    char **paths;
    size_t n;
    int r = kji_runtime_dirs(runtime_dir, &paths, &n, err);
    if (r < 0)
        return r;
    for (size_t k = 0; r >= 0 && k < n; k++) {
        kj_error why = KJ_ERROR_INIT;
        add_place_name(list, paths[k]);
        r = load_place(list, paths[k], n == 1 ? err : &why);
        if (r < 0 && r != KJ_EMEM && n > 1) {
            kji_log(KJ_LOG_WARNING, "%s", why.message);
            r = 0;
        }
    }
    kji_places_free(paths, n);
    return r < 0 || n > 0 ? r : name_choices(list, runtime_dir, err);
}

int kj_run_list_load(const char *runtime_dir, kj_run_list **ret_list, kj_error *err)
{
    kj_run_list *list = calloc(1, sizeof *list);
    if (!list)
        return kji_fail_memory(err);
    list->places = (kji_strbuf)KJI_STRBUF_INIT;
    int r = load_all(list, runtime_dir, err);
    if (r >= 0 && !(runtime_dir && *runtime_dir))
        r = load_mailboxes(list, err);
    if (r < 0) {
        kj_run_list_free(list);
        return r;
    }
    if (list->n_entries > 1)
        qsort(list->entries, list->n_entries, sizeof *list->entries, by_age);
    *ret_list = list;
    return 0;
}

void kj_run_list_free(kj_run_list *list)
{
    if (!list)
        return;
    for (size_t k = 0; k < list->n_entries; k++)
        free_entry(list->entries[k]);
    free(list->entries);
    kji_strbuf_done(&list->places);
    free(list);
}

uint64_t kj_run_list_size(const kj_run_list *list)
{
    return list->n_entries;
}

const kj_run_info *kj_run_list_get(const kj_run_list *list, uint64_t index)
{
    return &list->entries[index]->info;
}

int kj_run_list_find(const kj_run_list *list, const char *prefix, const kj_run_info **ret_info,
                     kj_error *err)
{
    if (list->n_entries == 0)
        return kji_fail(err, KJ_ENORUN, "no run is live (looked in %s)", list->places.text);
    KJI_CLEANUP(kji_freep) const char **ids = calloc(list->n_entries, sizeof *ids);
    if (!ids)
        return kji_fail_memory(err);
    for (size_t k = 0; k < list->n_entries; k++)
        ids[k] = list->entries[k]->id;
    int r = kji_pick_run(ids, list->n_entries, prefix, "live run", err);
    if (r < 0)
        return r;
    *ret_info = &list->entries[r]->info;
    return 0;
}
