/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of one folder are sorted by name. A listing appends what it finds, and sorts once at
 * its end. A file that has gone keeps its place, so that it goes on where it was when it comes
 * back.
 */
#include "folder-files.h"

#include "mem.h"

#include <string.h>
#include <sys/stat.h>

enum { MAX_RENAMED = 100 }; /* of so many that have gone it is found out which were renamed */

char *kji_path_below(const char *folder, const char *name)
{
    bool slash = folder[strlen(folder) - 1] == '/';
    return kji_format("%s%s%s", folder, slash ? "" : "/", name);
}

size_t kji_folder_find_file(const kji_event_folder *folder, size_t n, const char *name,
                            kji_event_file **ret_file)
{
    size_t low = 0, high = n;
    *ret_file = NULL;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(folder->files[middle]->name, name);
        if (order == 0) {
            *ret_file = folder->files[middle];
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

kji_event_file *kji_folder_add_file(kji_event_dir *dir, kji_event_folder *folder, size_t at,
                                    const char *name)
{
    char *path = kji_path_below(folder->path, name);
    if (!path || !kji_event_queue_reserve(&dir->queue, dir->n_files + 1) ||
        !kji_reserve(&folder->files, &folder->files_capacity, folder->n_files + 1,
                     sizeof *folder->files)) {
        free(path);
        return NULL;
    }
    kji_event_file *file = kji_event_file_new(path, folder->known);
    if (!file)
        return NULL;
    file->folder = folder;
    memmove(folder->files + at + 1, folder->files + at,
            (folder->n_files - at) * sizeof *folder->files);
    folder->files[at] = file;
    folder->n_files++;
    dir->n_files++;
    return file;
}

static void keep_place(kji_event_file *file, const kji_event_file *of)
{
    file->path = of->path;
    file->name = of->name;
    file->present = of->present;
    file->dirty = of->dirty;
    file->listing = of->listing;
    file->timed_at = of->timed_at;
    file->due_ms = of->due_ms;
}

/* The file takes over where the other one is; paths and places in queues stay. */
static void swap_readings(kji_event_file *file, kji_event_file *other)
{
    kji_event_file kept = *file, kept_other = *other;
    *file = kept_other;
    *other = kept;
    keep_place(file, &kept);
    keep_place(other, &kept_other);
}

void kji_folder_inherit(const kji_event_folder *folder, kji_event_file *file)
{
    struct stat st = {0};
    for (size_t k = 0; k < folder->n_files; k++) {
        kji_event_file *gone = folder->files[k];
        if (gone->present || gone->ino == 0)
            continue;
        if (st.st_ino == 0 && stat(file->path, &st) < 0)
            return;
        if (gone->ino == st.st_ino && gone->dev == st.st_dev) {
            swap_readings(file, gone);
            return;
        }
    }
}

void kji_folder_set_present(kji_event_dir *dir, kji_event_file *file)
{
    if (!file->present)
        kji_event_queue_add(&dir->queue, file);
    file->present = true;
}

static int by_name(const void *a, const void *b)
{
    const kji_event_file *x = *(kji_event_file *const *)a, *y = *(kji_event_file *const *)b;
    return strcmp(x->name, y->name);
}

/* The files that were appended come where they belong; one that was listed twice counts once. */
static void settle_files(kji_event_dir *dir, kji_event_folder *folder)
{
    size_t n = 0;
    qsort(folder->files, folder->n_files, sizeof *folder->files, by_name);
    for (size_t k = 0; k < folder->n_files; k++) {
        kji_event_file *file = folder->files[k];
        if (n > 0 && strcmp(folder->files[n - 1]->name, file->name) == 0) {
            kji_event_file_free(file);
            dir->n_files--;
        } else {
            folder->files[n++] = file;
        }
    }
    folder->n_files = folder->n_sorted = n;
}

void kji_folder_note_files(kji_event_dir *dir, kji_event_folder *folder, bool whole)
{
    size_t n_gone = 0;
    if (folder->n_files > folder->n_sorted)
        settle_files(dir, folder);
    for (size_t k = 0; k < folder->n_files; k++) {
        kji_event_file *file = folder->files[k];
        if (file->listing != folder->listing) {
            n_gone++;
            file->present = file->present && !whole;
        }
    }
    for (size_t k = 0; k < folder->n_files; k++) {
        kji_event_file *file = folder->files[k];
        if (file->listing != folder->listing)
            continue;
        if (file->ino == 0 && n_gone > 0 && n_gone <= MAX_RENAMED)
            kji_folder_inherit(folder, file);
        kji_folder_set_present(dir, file);
    }
}
