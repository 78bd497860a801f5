/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a live run (docs/protocol.md, sections 1 and 6). It is built under a name that
 * listing does not look at and put in place by one rename, so that nobody sees half of one.
 */
#ifndef KJI_PUBLISH_H
#define KJI_PUBLISH_H

#include <kajitori/run.h>

#include <json-c/json.h>
#include <stdbool.h>

typedef struct kji_publication {
    char *root;  /* RUNTIME; NULL: not published */
    char *dir;   /* RUNTIME/RUN-ID; with the building name until kji_publish_show */
    int dir_fd;  /* the folder, wherever it is by now */
    int lock_fd; /* locked for life */
    bool is_shown;
} kji_publication;

#define KJI_PUBLICATION_INIT      \
    {                             \
        NULL, NULL, -1, -1, false \
    }

/* Makes the folder, with its lock taken, in the RUNTIME place `root`. */
int kji_publish_prepare(kji_publication *place, const char *root, kj_error *err);

/*
 * Puts it in place as `id`. Doors of a dead run of this id are removed. KJ_EBUSY when the id is in
 * use.
 */
int kji_publish_show(kji_publication *place, const char *id, kj_error *err);

/* Removes the folder and its doors, if it is still ours, and lets go of the lock. */
void kji_publish_remove(kji_publication *place);

enum kji_doors {
    KJI_DOORS_DEAD,
    KJI_DOORS_UNFINISHED, /* still being made, or nobody knows */
    KJI_DOORS_LIVE
};

/* What the folder `name`, open as dir_fd, is the folder of; nothing is touched. */
int kji_publish_look(const char *name, int dir_fd);

/* A file that a run's folder of doors has. */
bool kji_publish_is_door(const char *name);

/*
 * Whether the run of the folder root_fd/name, open as dir_fd, lives. The doors and the folder of a
 * dead one are removed; one that is still being made (hidden or without a lock, and less than a
 * minute old) is let alone, and is not live yet. An empty one that is not hidden is removed, too: a
 * folder is shown with all that it has, so whoever was about to remove it has died.
 */
bool kji_publish_is_live(int root_fd, const char *name, int dir_fd);

/* `name` made fit to be the beginning of an id, and six random characters; for free. */
char *kji_make_run_id(const char *name);

/* run.json of this process. `fifo` may be NULL. */
struct json_object *kji_describe_run(const char *id, const char *name, const char *framework,
                                     const char *fifo, double start_time);

/* The arguments of this process as run.json has them, secrets masked. `ret_cut`: not all of them,
 * or not all of one: too many, too long, no UTF-8. */
struct json_object *kji_describe_argv(const char *cmdline, size_t size, bool *ret_cut);

/* The process's own command line as it is in /proc: arguments with a NUL behind each; for free. */
char *kji_read_cmdline(size_t *ret_size);

#endif
