/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a source waits on: one epoll descriptor over inotify and a timer. Folders are watched, never
 * single files. Where inotify is refused or exhausted everything goes on by the timer alone.
 */
#ifndef KJI_WATCH_H
#define KJI_WATCH_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <sys/inotify.h>

typedef struct kji_watch {
    int epoll_fd, timer_fd;
    int inotify_fd;   /* -1: polling only */
    bool exhausted;   /* a folder could not be watched */
    int64_t armed_ms; /* monotonic: when the timer rings; INT64_MAX: never */
} kji_watch;

int kji_watch_init(kji_watch *watch, bool poll_only, kj_error *err);
void kji_watch_done(kji_watch *watch);

/* Whether changes are told by the timer only, at least for some folder. */
static inline bool kji_watch_polls(const kji_watch *watch)
{
    return watch->inotify_fd < 0 || watch->exhausted;
}

/* Watches a folder: its watch number, or -1 when it does not exist or cannot be watched. */
int kji_watch_add(kji_watch *watch, const char *path);
void kji_watch_remove(kji_watch *watch, int wd);

/* Watches the folder, or the nearest one above it that exists, so that its appearance is told. */
int kji_watch_nearest(kji_watch *watch, const char *path);

/* Also waits on a descriptor that somebody else opened; false when it cannot be waited on (regular
 * files, /dev/null). */
bool kji_watch_observe(const kji_watch *watch, int fd);
void kji_watch_forget(const kji_watch *watch, int fd);

/* Hands over what has come; an overflow has wd -1. */
typedef void (*kji_watch_fn)(void *userdata, const struct inotify_event *event);
void kji_watch_drain(kji_watch *watch, kji_watch_fn fn, void *userdata);

/* Readable in delay_ms, at once for 0; replaces the former time. */
void kji_watch_arm(kji_watch *watch, int64_t delay_ms);

/* The same, at a monotonic time; INT64_MAX: never. */
void kji_watch_arm_at(kji_watch *watch, int64_t at_ms);

/* Until something came: 1; 0 at the timeout (< 0: none) or when a signal came. */
int kji_watch_wait(kji_watch *watch, int timeout_ms);

#endif
