/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include "clock.h"
#include "errors.h"
#include "mem.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum {
    WATCHED = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE |
              IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK
};

bool kji_watch_observe(const kji_watch *watch, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void kji_watch_forget(const kji_watch *watch, int fd)
{
    epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int kji_watch_init(kji_watch *watch, bool poll_only, kj_error *err)
{
    *watch = (kji_watch){.epoll_fd = -1, .timer_fd = -1, .inotify_fd = -1, .armed_ms = INT64_MAX};
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->epoll_fd >= 0)
        watch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (watch->timer_fd < 0 || !kji_watch_observe(watch, watch->timer_fd)) {
        int r = kji_fail_errno(err, KJ_EIO, errno, "cannot follow files");
        kji_watch_done(watch);
        return r;
    }
    if (poll_only)
        return 0;
    watch->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch->inotify_fd >= 0 && !kji_watch_observe(watch, watch->inotify_fd)) {
        close(watch->inotify_fd);
        watch->inotify_fd = -1;
    }
    if (watch->inotify_fd < 0)
        kji_log(KJ_LOG_WARNING, "no inotify (fs.inotify.max_user_instances?): polling instead");
    return 0;
}

void kji_watch_done(kji_watch *watch)
{
    kji_closep(&watch->inotify_fd);
    kji_closep(&watch->timer_fd);
    kji_closep(&watch->epoll_fd);
    watch->inotify_fd = watch->timer_fd = watch->epoll_fd = -1;
}

int kji_watch_add(kji_watch *watch, const char *path)
{
    if (watch->inotify_fd < 0)
        return -1;
    int wd = inotify_add_watch(watch->inotify_fd, path, WATCHED);
    if (wd >= 0 || errno == ENOENT || errno == ENOTDIR || errno == EACCES)
        return wd;
    if (!watch->exhausted)
        kji_log(KJ_LOG_WARNING, "%s: cannot be watched (fs.inotify.max_user_watches?): polling",
                path);
    watch->exhausted = true;
    return -1;
}

void kji_watch_remove(kji_watch *watch, int wd)
{
    if (watch->inotify_fd >= 0 && wd >= 0)
        inotify_rm_watch(watch->inotify_fd, wd);
}

/* Cuts the last component off: "a/b" to "a", "/a" to "/", "a" to ".". */
static void to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, ".");
    else if (slash == path)
        slash[1] = 0;
    else
        *slash = 0;
}

int kji_watch_nearest(kji_watch *watch, const char *path)
{
    char at[PATH_MAX];
    size_t size = strlen(path);
    if (watch->inotify_fd < 0 || size == 0 || size >= sizeof at)
        return -1;
    /* What appears below the watched folder before its watch is set raises no event: so the way
     * down is tried again until the answer stays the same. */
    for (int last = -1;;) {
        memcpy(at, path, size + 1);
        int wd = kji_watch_add(watch, at);
        while (wd < 0 && strcmp(at, "/") != 0 && strcmp(at, ".") != 0) {
            to_parent(at);
            wd = kji_watch_add(watch, at);
        }
        if (wd == last)
            return wd;
        kji_watch_remove(watch, last);
        last = wd;
    }
}

void kji_watch_drain(kji_watch *watch, kji_watch_fn fn, void *userdata)
{
    uint64_t ticks;
    if (watch->armed_ms <= kji_monotonic_ms() &&
        read(watch->timer_fd, &ticks, sizeof ticks) == sizeof ticks)
        watch->armed_ms = INT64_MAX;
    char buffer[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t size;
    while (watch->inotify_fd >= 0 && (size = read(watch->inotify_fd, buffer, sizeof buffer)) > 0) {
        for (char *at = buffer; at < buffer + size;) {
            const struct inotify_event *event = (const void *)at;
            fn(userdata, event);
            at += sizeof *event + event->len;
        }
        if ((size_t)size < sizeof buffer - sizeof(struct inotify_event) - NAME_MAX - 1)
            return; /* that was all; what comes now raises the descriptor again */
    }
}

void kji_watch_arm(kji_watch *watch, int64_t delay_ms)
{
    kji_watch_arm_at(watch, delay_ms > 0 ? kji_monotonic_ms() + delay_ms : 0);
}

void kji_watch_arm_at(kji_watch *watch, int64_t at_ms)
{
    if (at_ms == watch->armed_ms)
        return;
    struct itimerspec when = {0};
    if (at_ms <= 0)
        when.it_value.tv_nsec = 1; /* long ago; zero would disarm it */
    else if (at_ms < INT64_MAX)
        when.it_value = (struct timespec){at_ms / 1000, at_ms % 1000 * 1000000};
    timerfd_settime(watch->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    watch->armed_ms = at_ms;
}

int kji_watch_wait(kji_watch *watch, int timeout_ms)
{
    struct epoll_event event;
    return epoll_wait(watch->epoll_fd, &event, 1, timeout_ms) > 0;
}
