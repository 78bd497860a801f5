/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a writer writes: a new one, or the one that was left. */
#ifndef KJI_EVENT_PLACE_H
#define KJI_EVENT_PLACE_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <sys/types.h>

/* Ends the writer's name in the first record of a file that several processes may write. */
#define KJI_EVENT_SHARED " append"

typedef struct kji_event_place {
    int dir_fd; /* -1: not open */
    const char *suffix;
    char host[128];
    int64_t newest;     /* the newest TIME of any event file that is there, 0 for none */
    char *found;        /* name of the newest one of this host and suffix; NULL: none */
    int64_t found_time; /* its TIME */
} kji_event_place;

#define KJI_EVENT_PLACE_INIT     \
    {                            \
        -1, NULL, "", 0, NULL, 0 \
    }

/*
 * Makes the folder where it is missing and looks what is in it. With `lock` the folder is locked
 * until kji_event_place_done, so that of several who look for a file one makes it. `suffix` is
 * borrowed.
 */
int kji_event_place_open(kji_event_place *place, const char *dir, const char *suffix, bool lock,
                         kj_error *err);
void kji_event_place_done(kji_event_place *place);

/* A new file, behind all that are there in the order of names. *ret_name is for free. */
int kji_event_place_create(kji_event_place *place, int *ret_fd, char **ret_name, kj_error *err);

/*
 * The file that was found, if its first record has KJI_EVENT_SHARED and it ends with a whole
 * record: 1, the file open and locked, its size and its name (for free). 0: there is no such file.
 */
int kji_event_place_join(kji_event_place *place, int *ret_fd, off_t *ret_size, char **ret_name);

/* flock(2), whatever signal comes meanwhile. Where the file system has no such locks it goes on
 * without. */
void kji_lock_file(int fd);
void kji_unlock_file(int fd);

#endif
