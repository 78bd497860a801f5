/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folders and event files below one folder: what there is, and what may have changed. It may be
 * absent, come and go, and change its shape at any time.
 */
#ifndef KJI_EVENT_DIR_H
#define KJI_EVENT_DIR_H

#include "event-queue.h"
#include "folder-table.h"
#include "watch.h"

typedef struct kji_event_dir {
    char *root;
    char *only; /* of one file its name, `root` being its folder; NULL: all below the root */
    kji_watch *watch;
    kji_folder_table table;
    kji_event_queue queue; /* the files that are to be looked at */
    size_t n_files;
    size_t n_polled;    /* folders */
    size_t max_folders; /* that are known at a time */
    size_t n_gone;      /* at most so many have gone since such were forgotten */
    kji_event_folder **to_list, **to_follow; /* that may have changed; whose links are due */
    size_t n_to_list, n_to_follow, to_list_capacity, to_follow_capacity;
    kji_event_folder **by_wd;
    size_t by_wd_capacity;
    int parent_wd; /* while the root is absent: of what is watched instead */
    bool network;  /* some folder is on a network file system */
    bool full_told;
    bool no_memory; /* when it was to take in an event */
} kji_event_dir;

/* `root` is a folder, or one file, which then is all there is. */
int kji_event_dir_init(kji_event_dir *dir, const char *root, kji_watch *watch, kj_error *err);
void kji_event_dir_done(kji_event_dir *dir);

/* A file of an earlier life, gone until it is seen: for the restore slot. It must come behind the
 * others of its run by name. NULL: `name` or `run` is none, or memory is gone (*ret_r). */
kji_event_file *kji_event_dir_restore(kji_event_dir *dir, const char *run, const char *name,
                                      int *ret_r);

/* Marks everything as possibly changed. */
void kji_event_dir_touch(kji_event_dir *dir);

/* Looks whether the folder or a file in it has changed without an event: one stat(2) each. */
void kji_event_dir_look(kji_event_dir *dir, kji_event_folder *folder);

/* Takes in what the watch tells, and lists the folders that have changed. KJ_EMEM, or KJ_EPERM when
 * the root itself may not be listed. */
int kji_event_dir_update(kji_event_dir *dir, kj_error *err);

/* Whether something here has to be looked at more often than where every change raises an event. */
static inline bool kji_event_dir_polls(const kji_event_dir *dir)
{
    return dir->n_polled > 0 || (!dir->table.folders[0]->present && dir->parent_wd < 0);
}

#endif
