/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder is listed when its watch says that something came or went, and at every safety poll. A
 * file or folder that has gone keeps its place here, so that it goes on where it was when it comes
 * back (rsync, checkpoint tools and object stores do that).
 *
 * Symbolic links to folders are followed after all real folders are known, and only to folders that
 * are not known yet: so loops end, and "latest -> trial-3" does not count twice.
 */
#include "event-dir.h"

#include "errors.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_FOLDERS = 100000 };

bool kji_is_event_name(const char *name)
{
    static const char *const others[] = {".profile-empty", ".gz", ".tmp", ".swp", ".part"};
    if (name[0] == '.' || !strstr(name, ".tfevents."))
        return false;
    size_t size = strlen(name);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        size_t tail = strlen(others[k]);
        if (size >= tail && strcmp(name + size - tail, others[k]) == 0)
            return false;
    }
    return true;
}

static void free_folder(kji_event_folder *folder)
{
    for (size_t k = 0; k < folder->n_files; k++)
        kji_event_file_free(folder->files[k]);
    free(folder->files);
    free(folder->path);
    free(folder);
}

void kji_event_dir_done(kji_event_dir *dir)
{
    for (size_t k = 0; k < dir->n_folders; k++)
        free_folder(dir->folders[k]);
    free(dir->folders);
    free(dir->by_wd);
    free(dir->root);
    free(dir->only);
    *dir = (kji_event_dir){0};
}

/* Index of the run's folder, or where it belongs. "." comes first. */
static size_t find_folder(const kji_event_dir *dir, const char *run, bool *ret_found)
{
    size_t low = 0, high = dir->n_folders;
    *ret_found = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order =
            middle == 0 ? strcmp(run, ".") == 0 ? 0 : -1 : strcmp(dir->folders[middle]->run, run);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Takes `path` over. NULL when memory is gone. */
static kji_event_folder *add_folder(kji_event_dir *dir, char *path, size_t at, int depth)
{
    size_t root_size = strlen(dir->root);
    kji_event_folder *folder = calloc(1, sizeof *folder);
    if (!path || !folder ||
        !kji_reserve(&dir->folders, &dir->folders_capacity, dir->n_folders + 1,
                     sizeof *dir->folders)) {
        free(path);
        free(folder);
        return NULL;
    }
    folder->path = path;
    folder->run = path[root_size] ? path + root_size + (path[root_size] == '/') : ".";
    folder->depth = depth;
    folder->wd = -1;
    memmove(dir->folders + at + 1, dir->folders + at, (dir->n_folders - at) * sizeof *dir->folders);
    dir->folders[at] = folder;
    dir->n_folders++;
    return folder;
}

/* Takes a path to one file apart, into its folder and its name. */
static bool take_root(kji_event_dir *dir, const char *root)
{
    struct stat st;
    dir->root = strdup(root);
    if (!dir->root || stat(root, &st) < 0 || !S_ISREG(st.st_mode))
        return dir->root;
    char *slash = strrchr(dir->root, '/');
    dir->only = strdup(slash ? slash + 1 : root);
    if (slash)
        slash[slash == dir->root] = 0;
    else
        strcpy(dir->root, ".");
    return dir->only;
}

int kji_event_dir_init(kji_event_dir *dir, const char *root, kji_watch *watch, kji_tag_table *tags,
                       kj_error *err)
{
    *dir = (kji_event_dir){.watch = watch, .tags = tags, .parent_wd = -1};
    if (!take_root(dir, root) || !add_folder(dir, strdup(dir->root), 0, 0))
        return kji_fail_memory(err);
    dir->folders[0]->dirty = true;
    return 0;
}

/* One file that was named is an event file, whatever its name. */
static bool is_wanted(const kji_event_dir *dir, const char *name)
{
    return dir->only ? strcmp(name, dir->only) == 0 : kji_is_event_name(name);
}

void kji_event_dir_touch(kji_event_dir *dir)
{
    for (size_t k = 0; k < dir->n_folders; k++) {
        kji_event_folder *folder = dir->folders[k];
        folder->dirty = folder->dirty || folder->present || k == 0;
        for (size_t j = 0; j < folder->n_files; j++)
            folder->files[j]->dirty = folder->files[j]->present;
    }
}

static size_t find_file(const kji_event_folder *folder, const char *name, bool *ret_found)
{
    size_t low = 0, high = folder->n_files;
    *ret_found = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(folder->files[middle]->name, name);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static char *join(const char *folder, const char *name)
{
    bool slash = folder[strlen(folder) - 1] == '/';
    return kji_format("%s%s%s", folder, slash ? "" : "/", name);
}

static bool take_file(kji_event_dir *dir, kji_event_folder *folder, const char *name)
{
    bool found;
    size_t at = find_file(folder, name, &found);
    if (!found) {
        if (!folder->known)
            folder->known = kji_tag_table_run(dir->tags, folder->run);
        char *path = join(folder->path, name);
        if (!folder->known || !path ||
            !kji_reserve(&folder->files, &folder->files_capacity, folder->n_files + 1,
                         sizeof *folder->files)) {
            free(path);
            return false;
        }
        kji_event_file *file = kji_event_file_new(path, folder->known);
        if (!file)
            return false;
        memmove(folder->files + at + 1, folder->files + at,
                (folder->n_files - at) * sizeof *folder->files);
        folder->files[at] = file;
        folder->n_files++;
    }
    kji_event_file *file = folder->files[at];
    file->dirty = file->dirty || !file->present;
    file->present = true;
    return true;
}

static void unwatch(kji_event_dir *dir, kji_event_folder *folder)
{
    if (folder->wd >= 0 && dir->by_wd[folder->wd] == folder) {
        dir->by_wd[folder->wd] = NULL;
        kji_watch_remove(dir->watch, folder->wd);
    }
    folder->wd = -1;
}

/* It does not exist any more, so what was below it does not, either. */
static void set_absent(kji_event_dir *dir, kji_event_folder *folder)
{
    unwatch(dir, folder);
    folder->present = false;
    for (size_t k = 0; k < folder->n_files; k++)
        folder->files[k]->present = false;
    size_t size = strlen(folder->path);
    for (size_t k = 0; k < dir->n_folders; k++) {
        kji_event_folder *below = dir->folders[k];
        if (below->present && strncmp(below->path, folder->path, size) == 0)
            below->dirty = true;
    }
}

/* Whether another folder is this one, under another name. */
static bool is_known(kji_event_dir *dir, const char *path, const struct stat *st)
{
    for (size_t k = 0; k < dir->n_folders; k++) {
        kji_event_folder *other = dir->folders[k];
        struct stat now;
        if (!other->present || other->ino != st->st_ino || other->dev != st->st_dev ||
            strcmp(other->path, path) == 0)
            continue;
        if (stat(other->path, &now) == 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev)
            return true;
        other->dirty = true; /* it was renamed */
    }
    return false;
}

static int take_subfolder(kji_event_dir *dir, const kji_event_folder *parent, const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = join(parent->path, name);
    if (!path)
        return KJ_EMEM;
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode) || parent->depth >= MAX_DEPTH)
        return 0;
    size_t root_size = strlen(dir->root);
    const char *run = path + root_size + (path[root_size] == '/');
    bool found;
    size_t at = find_folder(dir, run, &found);
    if ((found && dir->folders[at]->present) || is_known(dir, path, &st))
        return 0;
    if (!found && dir->n_folders >= MAX_FOLDERS) {
        if (!dir->full_told)
            kji_log(KJ_LOG_WARNING, "%s: more than %d folders: the rest is not followed", dir->root,
                    MAX_FOLDERS);
        dir->full_told = true;
        return 0;
    }
    kji_event_folder *folder =
        found ? dir->folders[at] : add_folder(dir, kji_take(&path), at, parent->depth + 1);
    if (!folder)
        return KJ_EMEM;
    folder->dev = st.st_dev;
    folder->ino = st.st_ino;
    folder->present = folder->dirty = true;
    return 0;
}

/* Real folders and files in the first pass, links to folders in the second. */
static int take_entry(kji_event_dir *dir, kji_event_folder *folder, const struct dirent *entry,
                      bool links)
{
    const char *name = entry->d_name;
    unsigned char type = entry->d_type;
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (dir->only && !is_wanted(dir, name)))
        return 0;
    KJI_CLEANUP(kji_freep) char *path = NULL;
    if (type == DT_UNKNOWN) {
        path = join(folder->path, name);
        if (!path)
            return KJ_EMEM;
        if (lstat(path, &st) < 0)
            return 0;
        type = IFTODT(st.st_mode);
    }
    if (type == DT_DIR || (type == DT_LNK && links))
        return type == DT_DIR && links ? 0 : take_subfolder(dir, folder, name);
    if (links || (type != DT_REG && type != DT_LNK) || !is_wanted(dir, name))
        return 0;
    if (type == DT_LNK) {
        path = join(folder->path, name);
        if (!path)
            return KJ_EMEM;
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            return 0;
    }
    return take_file(dir, folder, name) ? 0 : KJ_EMEM;
}

static int cannot_list(kji_event_dir *dir, kji_event_folder *folder, kj_error *err)
{
    int errnum = errno;
    if (errnum == ENOENT || errnum == ENOTDIR) {
        set_absent(dir, folder);
        return 0;
    }
    if (folder == dir->folders[0] && (errnum == EACCES || errnum == EPERM))
        return kji_fail_errno(err, KJ_EPERM, errnum, "cannot list folder %s", folder->path);
    if (!folder->told) {
        char text[128];
        kji_log(KJ_LOG_WARNING, "cannot list folder %s: %s; tried again later", folder->path,
                strerror_r(errnum, text, sizeof text));
    }
    folder->told = true;
    return 0;
}

static bool watch_folder(kji_event_dir *dir, kji_event_folder *folder)
{
    int wd = kji_watch_add(dir->watch, folder->path);
    if (folder->wd >= 0 && folder->wd != wd)
        unwatch(dir, folder);
    folder->wd = wd;
    if (wd < 0)
        return true;
    size_t old = dir->by_wd_capacity;
    if (!kji_reserve(&dir->by_wd, &dir->by_wd_capacity, (size_t)wd + 1, sizeof *dir->by_wd)) {
        kji_watch_remove(dir->watch, wd);
        folder->wd = -1;
        return false;
    }
    if (dir->by_wd_capacity > old)
        memset(dir->by_wd + old, 0, (dir->by_wd_capacity - old) * sizeof *dir->by_wd);
    dir->by_wd[wd] = folder;
    return true;
}

static int list(kji_event_dir *dir, kji_event_folder *folder, bool links, kj_error *err)
{
    /* The watch comes first, so that nothing slips in between. */
    if (!links && !watch_folder(dir, folder))
        return kji_fail_memory(err);
    DIR *stream = opendir(folder->path);
    struct stat st;
    if (!stream || fstat(dirfd(stream), &st) < 0) {
        int r = cannot_list(dir, folder, err);
        if (stream)
            closedir(stream);
        return r;
    }
    folder->dev = st.st_dev;
    folder->ino = st.st_ino;
    folder->present = true;
    folder->told = false;
    if (!links)
        for (size_t k = 0; k < folder->n_files; k++)
            if (stat(folder->files[k]->path, &st) < 0 && errno == ENOENT)
                folder->files[k]->present = false;
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(stream)))
        r = take_entry(dir, folder, entry, links);
    closedir(stream);
    return r < 0 ? kji_fail_memory(err) : 0;
}

static bool is_link(const kji_event_folder *folder, const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = join(folder->path, name);
    struct stat st;
    return path && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

static void take_event(void *userdata, const struct inotify_event *event)
{
    kji_event_dir *dir = userdata;
    if (event->mask & IN_Q_OVERFLOW) {
        kji_event_dir_touch(dir);
        return;
    }
    if (event->wd == dir->parent_wd)
        dir->folders[0]->dirty = true;
    if (event->wd < 0 || (size_t)event->wd >= dir->by_wd_capacity || !dir->by_wd[event->wd])
        return;
    kji_event_folder *folder = dir->by_wd[event->wd];
    if (event->mask & IN_IGNORED) {
        dir->by_wd[event->wd] = NULL;
        folder->wd = -1;
        folder->dirty = true;
    }
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_ISDIR)) {
        folder->dirty = true;
        return;
    }
    if (event->len == 0)
        return;
    bool is_event_file = is_wanted(dir, event->name), found;
    size_t at = find_file(folder, event->name, &found);
    if (found)
        folder->files[at]->dirty = true;
    bool came_or_went = event->mask & (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE);
    if ((is_event_file && (!found || came_or_went)) ||
        (came_or_went && is_link(folder, event->name)))
        folder->dirty = true;
}

/* While the root is absent, what is above it is watched. */
static void watch_root(kji_event_dir *dir)
{
    kji_event_folder *root = dir->folders[0];
    int wd = root->present ? -1 : kji_watch_nearest(dir->watch, dir->root);
    if (dir->parent_wd != wd && dir->parent_wd != root->wd)
        kji_watch_remove(dir->watch, dir->parent_wd);
    dir->parent_wd = wd;
    if (root->present)
        return;
    struct stat st;
    root->dirty = stat(dir->root, &st) == 0 && S_ISDIR(st.st_mode);
}

static int list_real(kji_event_dir *dir, kj_error *err)
{
    for (bool again = true; again;) {
        again = false;
        for (size_t k = 0; k < dir->n_folders; k++) {
            kji_event_folder *folder = dir->folders[k];
            if (!folder->dirty)
                continue;
            folder->dirty = false;
            int r = list(dir, folder, false, err);
            if (r < 0)
                return r;
            folder->links_due = folder->present;
            again = true; /* folders may have come in before this one */
        }
    }
    return 0;
}

/* True when there may be new folders. */
static int list_links(kji_event_dir *dir, kj_error *err)
{
    size_t n_before = dir->n_folders;
    for (size_t k = 0; k < dir->n_folders; k++) {
        kji_event_folder *folder = dir->folders[k];
        if (!folder->links_due)
            continue;
        folder->links_due = false;
        int r = list(dir, folder, true, err);
        if (r < 0)
            return r;
        if (dir->n_folders != n_before)
            return 1;
    }
    return 0;
}

int kji_event_dir_update(kji_event_dir *dir, kj_error *err)
{
    kji_watch_drain(dir->watch, take_event, dir);
    /* The root may appear between the look at it and the watch above it. */
    for (int round = 0; round < 2; round++) {
        int r = 1;
        while (r > 0) {
            r = list_real(dir, err);
            if (r == 0)
                r = list_links(dir, err);
        }
        if (r < 0)
            return r;
        watch_root(dir);
        if (!dir->folders[0]->dirty)
            break;
    }
    return 0;
}
