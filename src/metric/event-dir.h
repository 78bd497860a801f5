/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folders and event files below one folder: what there is, and what may have changed. It may be
 * absent, come and go, and change its shape at any time.
 */
#ifndef KJI_EVENT_DIR_H
#define KJI_EVENT_DIR_H

#include "event-file.h"
#include "watch.h"

typedef struct kji_event_folder {
    char *path;
    const char *run; /* the part of path below the root, "." for the root */
    kji_run *known;  /* NULL until it has a file */
    int depth;
    int wd; /* -1: not watched */
    dev_t dev;
    ino_t ino;
    bool present;
    bool dirty;     /* list it again */
    bool links_due; /* the same, for symbolic links to folders */
    bool told;      /* that it cannot be listed */
    kji_event_file **files;
    size_t n_files, files_capacity;
} kji_event_folder;

typedef struct kji_event_dir {
    char *root;
    char *only; /* of one file its name, `root` being its folder; NULL: all below the root */
    kji_watch *watch;
    kji_tag_table *tags;
    kji_event_folder **folders; /* sorted by run; [0] is the root */
    size_t n_folders, folders_capacity;
    kji_event_folder **by_wd;
    size_t by_wd_capacity;
    int parent_wd; /* while the root is absent: of what is watched instead */
    bool full_told;
} kji_event_dir;

/* `root` is a folder, or one file, which then is all there is. */
int kji_event_dir_init(kji_event_dir *dir, const char *root, kji_watch *watch, kji_tag_table *tags,
                       kj_error *err);
void kji_event_dir_done(kji_event_dir *dir);

/* Marks everything as possibly changed. */
void kji_event_dir_touch(kji_event_dir *dir);

/* Takes in what the watch tells, and lists the folders that have changed. KJ_EMEM, or KJ_EPERM when
 * the root itself may not be listed. */
int kji_event_dir_update(kji_event_dir *dir, kj_error *err);

/* Whether a file of this name is an event file. */
bool kji_is_event_name(const char *name);

#endif
