/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All folders of an event source: found by run and by inode in constant time, and listed in the
 * order of delivery.
 */
#ifndef KJI_FOLDER_TABLE_H
#define KJI_FOLDER_TABLE_H

#include "event-file.h"

typedef struct kji_event_folder {
    char *path;
    const char *run; /* the part of path below the root, "." for the root */
    kji_run *known;  /* NULL until a file of it is read */
    size_t place;    /* in the order of delivery, once that is settled */
    int depth;
    int wd; /* -1: not watched */
    dev_t dev;
    ino_t ino;                     /* 0: not known */
    int64_t mtime_ns;              /* when it was listed last */
    int64_t listed_ms, settled_ms; /* listed after settled: an equal mtime says no change */
    bool present;                  /* false: it has gone, or has not come yet */
    bool dirty;                    /* list it again */
    bool links_due;                /* follow its symbolic links to folders */
    bool incomplete;               /* it could not be listed, or holds links to nothing */
    bool file_links;               /* it holds links to event files */
    bool network;                  /* others may write to it unseen */
    bool polled;                   /* no event tells all its changes */
    bool told;                     /* that it cannot be listed */
    bool forgotten;                /* it is about to be dropped */
    uint32_t listing;              /* number of the last one */
    kji_event_file **files;        /* sorted by name */
    size_t n_files, n_sorted, files_capacity; /* while it is listed, new ones are at the end */
    struct kji_event_folder *first_child, *next_sibling;
    struct kji_event_folder *next_of_run, *next_of_inode; /* in the chains of the table */
} kji_event_folder;

typedef struct kji_folder_table {
    kji_event_folder **folders; /* [0] is the root; [0, n_settled) are in the order of delivery */
    size_t n_folders, n_settled, capacity;
    kji_event_folder **by_run, **by_inode; /* heads of chains */
    size_t n_chains;                       /* a power of 2 */
} kji_folder_table;

void kji_folder_table_done(kji_folder_table *table);

/* Takes `folder` over; false when memory is gone, then it is still the caller's. */
bool kji_folder_table_add(kji_folder_table *table, kji_event_folder *folder);

/* NULL: there is none. */
kji_event_folder *kji_folder_table_find(const kji_folder_table *table, const char *run);

/* A folder with this inode and another path, which is present; NULL: there is none. */
kji_event_folder *kji_folder_table_twin(const kji_folder_table *table, dev_t dev, ino_t ino,
                                        const char *path);
void kji_folder_table_set_inode(kji_folder_table *table, kji_event_folder *folder, dev_t dev,
                                ino_t ino);

/* Drops the folders that have gone, never held a file or folder that is still known, and are not to
 * be looked at: nothing is lost with them. What points to one of them must not be used any more. */
void kji_folder_table_forget(kji_folder_table *table);

/* Puts the folders that were added since the last time where they belong. false when memory is
 * gone. */
bool kji_folder_table_settle(kji_folder_table *table);

#endif
