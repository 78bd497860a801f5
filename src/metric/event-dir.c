/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an event tells is taken in by name; a folder is listed when it is new, when its watch says
 * that it changed its place, and when a look finds that it changed without an event. A file or
 * folder that has gone keeps its place here, so that it goes on where it was when it comes back
 * (rsync, checkpoint tools and object stores do that).
 *
 * Symbolic links to folders are followed after all real folders are known, and only to folders that
 * are not known yet: so loops end, and "latest -> trial-3" does not count twice.
 */
#include "event-dir.h"

#include "clock.h"
#include "errors.h"
#include "event-name.h"
#include "files.h"
#include "folder-files.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_DEPTH = 64,
    MAX_FOLDERS = 100000,
    FORGET_SHARE = 100,   /* that part of them must have gone before it is worth while */
    MTIME_DOUBT_MS = 2500 /* a folder can change again without another time of change */
};

void kji_event_dir_done(kji_event_dir *dir)
{
    kji_event_queue_done(&dir->queue);
    kji_folder_table_done(&dir->table);
    free(dir->to_list);
    free(dir->to_follow);
    free(dir->by_wd);
    free(dir->root);
    free(dir->only);
    *dir = (kji_event_dir){0};
}

/* Takes `path` over. NULL when memory is gone. */
static kji_event_folder *add_folder(kji_event_dir *dir, char *path, int depth)
{
    size_t root_size = strlen(dir->root), n = dir->table.n_folders + 1;
    kji_event_folder *folder = calloc(1, sizeof *folder);
    if (folder)
        *folder = (kji_event_folder){
            .path = path,
            .run = path[root_size] ? path + root_size + (path[root_size] == '/') : ".",
            .depth = depth,
            .wd = -1};
    if (!folder || !kji_reserve(&dir->to_list, &dir->to_list_capacity, n, sizeof *dir->to_list) ||
        !kji_reserve(&dir->to_follow, &dir->to_follow_capacity, n, sizeof *dir->to_follow) ||
        !kji_folder_table_add(&dir->table, folder)) {
        free(path);
        free(folder);
        return NULL;
    }
    return folder;
}

static void set_dirty(kji_event_dir *dir, kji_event_folder *folder)
{
    if (!folder->dirty)
        dir->to_list[dir->n_to_list++] = folder;
    folder->dirty = true;
}

/* The path to one file is taken apart, into its folder and its name. */
static bool split_root(kji_event_dir *dir)
{
    char *slash = strrchr(dir->root, '/');
    dir->only = strdup(slash ? slash + 1 : dir->root);
    if (!dir->only)
        return false;
    if (slash)
        slash[slash == dir->root] = 0;
    else
        strcpy(dir->root, ".");
    return true;
}

int kji_event_dir_init(kji_event_dir *dir, const char *root, kji_watch *watch, kj_error *err)
{
    struct stat st;
    *dir = (kji_event_dir){
        .watch = watch, .parent_wd = -1, .root = strdup(root), .max_folders = MAX_FOLDERS};
    bool is_file = stat(root, &st) == 0 && S_ISREG(st.st_mode);
    char *path = NULL;
    if (dir->root && (!is_file || split_root(dir)))
        path = strdup(dir->root);
    kji_event_folder *folder = path ? add_folder(dir, path, 0) : NULL;
    if (!folder || !kji_folder_table_settle(&dir->table))
        return kji_fail_memory(err);
    set_dirty(dir, folder);
    return 0;
}

/* What was not there when it was named turns out to be one file. */
static bool become_file(kji_event_dir *dir)
{
    if (!split_root(dir))
        return false;
    strcpy(dir->table.folders[0]->path, dir->root); /* which has become shorter */
    return true;
}

/* Nobody knows yet whether it is a folder or a file. */
static bool is_open_what(const kji_event_dir *dir)
{
    return !dir->only && dir->table.n_folders == 1 && dir->n_files == 0 &&
           dir->table.folders[0]->ino == 0;
}

/* One file that was named is an event file, whatever its name. */
static bool is_wanted(const kji_event_dir *dir, const char *name)
{
    return dir->only ? strcmp(name, dir->only) == 0 : kji_is_event_name(name);
}

void kji_event_dir_touch(kji_event_dir *dir)
{
    for (size_t k = 0; k < dir->table.n_folders; k++) {
        kji_event_folder *folder = dir->table.folders[k];
        if (folder->present || k == 0)
            set_dirty(dir, folder);
        for (size_t j = 0; j < folder->n_files; j++)
            if (folder->files[j]->present)
                kji_event_queue_add(&dir->queue, folder->files[j]);
    }
}

static void set_polled(kji_event_dir *dir, kji_event_folder *folder)
{
    bool polled = folder->present &&
                  (folder->wd < 0 || folder->network || folder->incomplete || folder->file_links);
    dir->n_polled += (size_t)polled - (size_t)folder->polled;
    folder->polled = polled;
}

static void unwatch(kji_event_dir *dir, kji_event_folder *folder)
{
    if (folder->wd >= 0 && dir->by_wd[folder->wd] == folder) {
        dir->by_wd[folder->wd] = NULL;
        kji_watch_remove(dir->watch, folder->wd);
    }
    folder->wd = -1;
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

/* It does not exist any more, so what was below it does not, either. */
static void set_absent(kji_event_dir *dir, kji_event_folder *folder)
{
    unwatch(dir, folder);
    dir->n_gone++;
    folder->present = false;
    set_polled(dir, folder);
    for (size_t k = 0; k < folder->n_files; k++)
        folder->files[k]->present = false;
    for (kji_event_folder *below = folder->first_child; below; below = below->next_sibling)
        if (below->present)
            set_dirty(dir, below);
}

/* Whether a folder of another path is this one. */
static bool is_known(kji_event_dir *dir, const char *path, const struct stat *st)
{
    kji_event_folder *twin;
    struct stat now;
    while ((twin = kji_folder_table_twin(&dir->table, st->st_dev, st->st_ino, path))) {
        if (stat(twin->path, &now) == 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev)
            return true;
        set_dirty(dir, twin); /* it was renamed */
        kji_folder_table_set_inode(&dir->table, twin, 0, 0);
    }
    return false;
}

/* Checkpoints come and go as long as a training runs: those that have gone make room. */
static bool is_full(kji_event_dir *dir)
{
    if (dir->table.n_folders < dir->max_folders)
        return false;
    if (dir->n_gone >= dir->max_folders / FORGET_SHARE) {
        kji_folder_table_forget(&dir->table);
        dir->n_gone = 0;
    }
    return dir->table.n_folders >= dir->max_folders;
}

/* A folder that was not known; takes `path` over. *ret_folder is NULL when there are too many, and
 * with KJ_EMEM. */
static int make_subfolder(kji_event_dir *dir, kji_event_folder *parent, char *path,
                          kji_event_folder **ret_folder)
{
    bool full = parent->depth >= MAX_DEPTH || is_full(dir);
    if (full && !dir->full_told) {
        kji_log(KJ_LOG_WARNING, "%s: more than %zu folders, or deeper than %d: not followed", path,
                dir->max_folders, MAX_DEPTH);
        dir->full_told = true;
    }
    *ret_folder = NULL;
    if (full) {
        free(path);
        return 0;
    }
    kji_event_folder *folder = add_folder(dir, path, parent->depth + 1);
    if (!folder)
        return KJ_EMEM;
    folder->next_sibling = parent->first_child;
    parent->first_child = folder;
    *ret_folder = folder;
    return 0;
}

/* `name` leads to a folder; what that is shows when it is listed. `came`: just now, so one that is
 * known by this name may be another one. */
static int take_subfolder(kji_event_dir *dir, kji_event_folder *parent, const char *name, bool came)
{
    KJI_CLEANUP(kji_freep) char *path = kji_path_below(parent->path, name);
    if (!path)
        return KJ_EMEM;
    size_t root_size = strlen(dir->root);
    kji_event_folder *folder =
        kji_folder_table_find(&dir->table, path + root_size + (path[root_size] == '/'));
    if (dir->only)
        return 0;
    if (!folder) {
        int r = make_subfolder(dir, parent, kji_take(&path), &folder);
        if (!folder)
            return r;
    }
    if (came || !folder->present)
        set_dirty(dir, folder);
    return 0;
}

/* The same for a link, which only counts when it leads to a folder that is not known. */
static int follow_link(kji_event_dir *dir, kji_event_folder *parent, const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = kji_path_below(parent->path, name);
    struct stat st;
    if (!path)
        return KJ_EMEM;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode) || is_known(dir, path, &st))
        return 0;
    return take_subfolder(dir, parent, name, false);
}

/* The folder of the part of `run` up to `end`, whose parent is known; *ret_folder is NULL as with
 * make_subfolder. */
static int restore_folder(kji_event_dir *dir, kji_event_folder *parent, const char *run, size_t end,
                          kji_event_folder **ret_folder)
{
    KJI_CLEANUP(kji_freep) char *part = strndup(run, end);
    if (!part)
        return KJ_EMEM;
    *ret_folder = kji_folder_table_find(&dir->table, part);
    if (*ret_folder)
        return 0;
    char *path = kji_path_below(dir->root, part);
    return path ? make_subfolder(dir, parent, path, ret_folder) : KJ_EMEM;
}

static bool is_component(const char *name, size_t size)
{
    return size > 0 && !(size <= 2 && strncmp(name, "..", size) == 0);
}

/* Whether the last part of the root's path is this name, and nothing is there now: then a cursor
 * means the file itself. */
static bool names_root(const kji_event_dir *dir, const char *name)
{
    const char *slash = strrchr(dir->root, '/');
    return strcmp(slash ? slash + 1 : dir->root, name) == 0 && access(dir->root, F_OK) < 0;
}

kji_event_file *kji_event_dir_restore(kji_event_dir *dir, const char *run, const char *name,
                                      int *ret_r)
{
    kji_event_folder *folder = dir->table.folders[0];
    *ret_r = 0;
    for (size_t at = 0, end; strcmp(run, ".") != 0; at = end + 1) {
        end = at + strcspn(run + at, "/");
        kji_event_folder *parent = folder;
        folder = NULL;
        if (is_component(run + at, end - at))
            *ret_r = restore_folder(dir, parent, run, end, &folder);
        if (!folder)
            return NULL;
        if (!run[end])
            break;
    }
    if (is_open_what(dir) && names_root(dir, name) && !become_file(dir)) {
        *ret_r = KJ_EMEM;
        return NULL;
    }
    kji_event_file *file;
    size_t at = kji_folder_find_file(folder, folder->n_files, name, &file);
    if (file || at < folder->n_files || strchr(name, '/') || !is_wanted(dir, name))
        return NULL;
    file = kji_folder_add_file(dir, folder, at, name);
    folder->n_sorted = folder->n_files;
    *ret_r = file ? 0 : KJ_EMEM;
    return file;
}

enum entry { ENTRY_OTHER, ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK, ENTRY_MISSING };

static enum entry entry_of_mode(mode_t mode)
{
    return S_ISREG(mode)   ? ENTRY_FILE
           : S_ISDIR(mode) ? ENTRY_FOLDER
           : S_ISLNK(mode) ? ENTRY_LINK
                           : ENTRY_OTHER;
}

/* What a name in the folder is, and behind a link, what that leads to. */
static enum entry look_at_name(const kji_event_folder *folder, const char *name, bool behind)
{
    KJI_CLEANUP(kji_freep) char *path = kji_path_below(folder->path, name);
    struct stat st;
    if (!path || (behind ? stat(path, &st) : lstat(path, &st)) < 0)
        return ENTRY_MISSING;
    return entry_of_mode(st.st_mode);
}

static void set_links_due(kji_event_dir *dir, kji_event_folder *folder)
{
    if (!folder->links_due)
        dir->to_follow[dir->n_to_follow++] = folder;
    folder->links_due = true;
}

/* Whether the link counts as an event file. One to a folder is followed later; what is behind one
 * that leads nowhere yet raises no event here. */
static bool is_file_link(kji_event_dir *dir, kji_event_folder *folder, const char *name)
{
    enum entry entry = look_at_name(folder, name, true);
    if (entry == ENTRY_FOLDER && !dir->only)
        set_links_due(dir, folder);
    if (entry == ENTRY_MISSING)
        folder->incomplete = true;
    if (entry != ENTRY_FILE || !is_wanted(dir, name))
        return false;
    folder->file_links = true;
    return true;
}

/* A name that a listing told; new files are appended behind the `n_sorted` known ones. */
static int take_entry(kji_event_dir *dir, kji_event_folder *folder, const char *name,
                      enum entry entry)
{
    if (entry == ENTRY_FOLDER)
        return take_subfolder(dir, folder, name, false);
    if (entry == ENTRY_LINK ? !is_file_link(dir, folder, name)
                            : entry != ENTRY_FILE || !is_wanted(dir, name))
        return 0;
    kji_event_file *file;
    kji_folder_find_file(folder, folder->n_sorted, name, &file);
    if (!file)
        file = kji_folder_add_file(dir, folder, folder->n_files, name);
    if (!file)
        return KJ_EMEM;
    file->listing = folder->listing;
    return 0;
}

static int follow_entry(kji_event_dir *dir, kji_event_folder *folder, const char *name,
                        enum entry entry)
{
    return entry == ENTRY_LINK ? follow_link(dir, folder, name) : 0;
}

typedef int (*entry_fn)(kji_event_dir *, kji_event_folder *, const char *name, enum entry);

/* Calls `take` for all that is in the open folder. KJ_EMEM; 1: the system could not tell all. */
static int read_entries(kji_event_dir *dir, kji_event_folder *folder, int fd, entry_fn take)
{
    char buffer[32768] __attribute__((aligned(__alignof__(struct dirent64))));
    ssize_t size;
    while ((size = getdents64(fd, buffer, sizeof buffer)) > 0) {
        const struct dirent64 *at;
        for (ssize_t k = 0; k < size; k += at->d_reclen) {
            at = (const void *)(buffer + k);
            if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0)
                continue;
            int r = take(dir, folder, at->d_name,
                         at->d_type == DT_UNKNOWN ? look_at_name(folder, at->d_name, false)
                                                  : entry_of_mode(DTTOIF(at->d_type)));
            if (r < 0)
                return r;
        }
    }
    return size < 0;
}

static int open_folder(const kji_event_folder *folder)
{
    return open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int cannot_list(kji_event_dir *dir, kji_event_folder *folder, kj_error *err)
{
    int errnum = errno;
    if (errnum == ENOENT || errnum == ENOTDIR) {
        set_absent(dir, folder);
        return 0;
    }
    folder->present = folder->incomplete = true;
    set_polled(dir, folder);
    if (folder == dir->table.folders[0] && (errnum == EACCES || errnum == EPERM))
        return kji_fail_errno(err, KJ_EPERM, errnum, "cannot list folder %s", folder->path);
    if (!folder->told) {
        char text[128];
        kji_log(KJ_LOG_WARNING, "cannot list folder %s: %s; tried again later", folder->path,
                strerror_r(errnum, text, sizeof text));
    }
    folder->told = true;
    return 0;
}

/* What fstat(2) tells of a folder that is being listed. */
static void note_folder(kji_event_dir *dir, kji_event_folder *folder, const struct stat *st)
{
    const kji_event_folder *root = dir->table.folders[0];
    int64_t mtime_ns = kji_event_mtime_ns(st);
    int64_t now = kji_monotonic_ms();
    if (mtime_ns != folder->mtime_ns)
        folder->settled_ms = now + MTIME_DOUBT_MS;
    folder->mtime_ns = mtime_ns;
    folder->listed_ms = now;
    folder->network = folder == root || st->st_dev != root->dev ? kji_is_network_path(folder->path)
                                                                : root->network;
    dir->network = dir->network || folder->network;
    folder->present = true;
    folder->told = folder->incomplete = folder->file_links = false;
    folder->listing++;
}

static int list(kji_event_dir *dir, kji_event_folder *folder, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int fd = open_folder(folder);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cannot_list(dir, folder, err);
    if (folder->ino != st.st_ino || folder->dev != st.st_dev) {
        if (is_known(dir, folder->path, &st)) {
            set_absent(dir, folder);
            return 0;
        }
        kji_folder_table_set_inode(&dir->table, folder, st.st_dev, st.st_ino);
    }
    /* The watch comes first, so that nothing slips in between. */
    if (!watch_folder(dir, folder))
        return kji_fail_memory(err);
    note_folder(dir, folder, &st);
    int r = read_entries(dir, folder, fd, take_entry);
    folder->incomplete = folder->incomplete || r != 0;
    kji_folder_note_files(dir, folder, r == 0);
    set_polled(dir, folder);
    return r < 0 ? kji_fail_memory(err) : 0;
}

static int follow_links(kji_event_dir *dir, kji_event_folder *folder)
{
    KJI_CLEANUP(kji_closep) int fd = open_folder(folder);
    return fd < 0 ? 0 : read_entries(dir, folder, fd, follow_entry);
}

static int take_file(kji_event_dir *dir, kji_event_folder *folder, const char *name)
{
    kji_event_file *file;
    size_t at = kji_folder_find_file(folder, folder->n_files, name, &file);
    if (!file)
        file = kji_folder_add_file(dir, folder, at, name);
    if (!file)
        return KJ_EMEM;
    folder->n_sorted = folder->n_files;
    if (file->ino == 0)
        kji_folder_inherit(folder, file);
    kji_folder_set_present(dir, file);
    kji_event_queue_add(&dir->queue, file);
    return 0;
}

/* A name has come, gone, or is that of a file that was not known. */
static int take_name(kji_event_dir *dir, kji_event_folder *folder, const char *name)
{
    enum entry entry = look_at_name(folder, name, false);
    kji_event_file *file;
    kji_folder_find_file(folder, folder->n_files, name, &file);
    if (file && entry != ENTRY_FILE && entry != ENTRY_LINK)
        file->present = false;
    if (entry == ENTRY_FOLDER)
        return take_subfolder(dir, folder, name, true);
    bool is_file = entry == ENTRY_FILE ? is_wanted(dir, name)
                                       : entry == ENTRY_LINK && is_file_link(dir, folder, name);
    set_polled(dir, folder);
    return is_file ? take_file(dir, folder, name) : 0;
}

static void take_folder_event(kji_event_dir *dir, kji_event_folder *folder,
                              const struct inotify_event *event)
{
    enum { CAME_OR_WENT = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE };
    if (event->mask & IN_IGNORED) {
        dir->by_wd[event->wd] = NULL;
        folder->wd = -1;
    }
    if (event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF))
        set_dirty(dir, folder);
    if (event->len == 0)
        return;
    kji_event_file *file;
    kji_folder_find_file(folder, folder->n_files, event->name, &file);
    if (event->mask & CAME_OR_WENT ? true : !file && is_wanted(dir, event->name))
        dir->no_memory = take_name(dir, folder, event->name) < 0 || dir->no_memory;
    else if (file)
        kji_event_queue_add(&dir->queue, file);
}

static void take_event(void *userdata, const struct inotify_event *event)
{
    kji_event_dir *dir = userdata;
    if (event->mask & IN_Q_OVERFLOW)
        kji_event_dir_touch(dir);
    if (event->wd < 0)
        return;
    if (event->wd == dir->parent_wd)
        set_dirty(dir, dir->table.folders[0]);
    if ((size_t)event->wd < dir->by_wd_capacity && dir->by_wd[event->wd])
        take_folder_event(dir, dir->by_wd[event->wd], event);
}

/* While the root is absent, what is above it is watched. false when memory is gone. */
static bool watch_root(kji_event_dir *dir)
{
    kji_event_folder *root = dir->table.folders[0];
    if (root->present && dir->parent_wd < 0)
        return true;
    int wd = root->present ? -1 : kji_watch_nearest(dir->watch, dir->root);
    if (dir->parent_wd != wd && dir->parent_wd != root->wd)
        kji_watch_remove(dir->watch, dir->parent_wd);
    dir->parent_wd = wd;
    struct stat st;
    if (root->present || stat(dir->root, &st) < 0)
        return true;
    bool is_file = S_ISREG(st.st_mode) && is_open_what(dir);
    if (is_file && !become_file(dir))
        return false;
    if (is_file || S_ISDIR(st.st_mode))
        set_dirty(dir, root);
    return true;
}

static int list_all(kji_event_dir *dir, kj_error *err)
{
    while (dir->n_to_list > 0 || dir->n_to_follow > 0) {
        if (dir->n_to_list > 0) {
            kji_event_folder *folder = dir->to_list[--dir->n_to_list];
            folder->dirty = false;
            int r = list(dir, folder, err);
            if (r == KJ_EMEM)
                set_dirty(dir, folder);
            if (r < 0)
                return r;
        } else {
            kji_event_folder *folder = dir->to_follow[--dir->n_to_follow];
            folder->links_due = false;
            if (follow_links(dir, folder) < 0) {
                set_links_due(dir, folder);
                return kji_fail_memory(err);
            }
        }
    }
    return kji_folder_table_settle(&dir->table) ? 0 : kji_fail_memory(err);
}

int kji_event_dir_update(kji_event_dir *dir, kj_error *err)
{
    kji_watch_drain(dir->watch, take_event, dir);
    if (dir->no_memory) {
        dir->no_memory = false;
        kji_event_dir_touch(dir);
        return kji_fail_memory(err);
    }
    /* The root may appear between the look at it and the watch above it. */
    for (int round = 0; round < 2; round++) {
        int r = list_all(dir, err);
        if (r < 0)
            return r;
        if (!watch_root(dir))
            return kji_fail_memory(err);
        if (dir->n_to_list == 0)
            break;
    }
    return 0;
}

/* Over a network an open file tells more than its name. */
static bool file_differs(const kji_event_folder *folder, const kji_event_file *file)
{
    struct stat st;
    int r;
    if (folder->network) {
        KJI_CLEANUP(kji_closep)
        int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        r = fd < 0 ? -1 : fstat(fd, &st);
    } else {
        r = stat(file->path, &st);
    }
    return r < 0 || !kji_event_file_is_as_seen(file, &st);
}

void kji_event_dir_look(kji_event_dir *dir, kji_event_folder *folder)
{
    struct stat st;
    bool changed = stat(folder->path, &st) < 0 || st.st_ino != folder->ino ||
                   st.st_dev != folder->dev || kji_event_mtime_ns(&st) != folder->mtime_ns;
    bool doubtful = folder->polled && folder->listed_ms < folder->settled_ms;
    bool watchable = folder->wd < 0 && dir->watch->inotify_fd >= 0 && watch_folder(dir, folder) &&
                     folder->wd >= 0;
    if (changed || doubtful || watchable || folder->incomplete)
        set_dirty(dir, folder);
    for (size_t k = 0; k < folder->n_files; k++)
        if (folder->files[k]->present && file_differs(folder, folder->files[k]))
            kji_event_queue_add(&dir->queue, folder->files[k]);
}
