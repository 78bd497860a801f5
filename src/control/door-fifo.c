/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FIFO is opened once, for reading and writing, and kept: a reader that opens anew for each
 * look loses what is written in between, and without a write end of our own every writer that
 * leaves looks like the end. Since the end of a writer does not show in the FIFO then, inotify
 * tells of it; where inotify cannot be had, a moment of silence does.
 *
 * A writer blocks in open() until there is a reader. One that has waited since before this run
 * speaks to a run that is gone, so before the real opening a reader without write end looks whether
 * anybody is there, and lets him talk to nobody.
 */
#include "door-fifo.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "mem.h"
#include "places.h"
#include "run-impl.h"
#include "strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

enum {
    SILENCE_MS = 200,  /* after which, without a watch, a line is taken to be whole */
    READ_BYTES = 1024, /* at once, so that a flood leaves room for the training and other doors */
    QUEUED_ENOUGH = 1000,
    QUEUE_REST_MS = 20, /* while so many of them wait */
    STALE_SILENCE_MS = 250,
    STALE_MAX_MS = 2000,
    STALE_KEPT = 1024
};

void kji_fifo_init(kji_fifo *fifo, const char *door)
{
    *fifo = (kji_fifo){.door = door, .fd = -1, .lock_fd = -1, .watch = -1};
}

void kji_fifo_close_fds(kji_fifo *fifo)
{
    kji_closep(&fifo->fd);
    kji_closep(&fifo->lock_fd);
}

/* Whether the path still leads to the FIFO that is open. The kernel reports that the last name is
 * gone (IN_ATTRIB) a moment before the path stops leading there, and then nothing more: the number
 * of names is right already. */
static bool is_at_path(const kji_fifo *fifo)
{
    struct stat by_path, by_fd;
    return stat(fifo->path, &by_path) == 0 && fstat(fifo->fd, &by_fd) == 0 && by_fd.st_nlink > 0 &&
           by_path.st_dev == by_fd.st_dev && by_path.st_ino == by_fd.st_ino;
}

void kji_fifo_done(kji_fifo *fifo)
{
    if (fifo->is_made && (fifo->fd < 0 || is_at_path(fifo)))
        unlink(fifo->path);
    kji_forks_close(&fifo->fd);
    kji_forks_close(&fifo->lock_fd);
    free(fifo->path);
    kji_fifo_init(fifo, fifo->door);
}

/* Some file systems make a FIFO, but each opening finds another pipe: a writer would wait for ever.
 */
static int check_delivers(int dir_fd, kj_error *err)
{
    KJI_CLEANUP(kji_closep)
    int fd = openat(dir_fd, "ctl", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENXIO) /* nobody reads, though we do */
        return kji_fail(err, KJ_EUNSUPPORTED, "FIFOs of the file system do not deliver");
    return 0;
}

int kji_fifo_open_own(kji_fifo *fifo, int dir_fd, const char *dir, kj_error *err)
{
    fifo->path = kji_format("%s/ctl", dir);
    if (!fifo->path)
        return kji_fail_memory(err);
    int made = mkfifoat(dir_fd, "ctl", 0600);
    if (made < 0 && kji_is_refusal(errno))
        return kji_fail_errno(err, KJ_EUNSUPPORTED, errno, "the file system refuses FIFOs");
    if (made < 0 || fchmodat(dir_fd, "ctl", 0600, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make the FIFO %s", fifo->path);
    if (kji_forks_open(&fifo->fd, dir_fd, "ctl", O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open the FIFO %s", fifo->path);
    return check_delivers(dir_fd, err);
}

static int fail_not_fifo(const struct stat *st, const char *path, kj_error *err)
{
    const char *what = S_ISREG(st->st_mode)   ? "a regular file"
                       : S_ISDIR(st->st_mode) ? "a folder"
                                              : "something else";
    return kji_fail(err, KJ_EARG, "%s is %s, not a FIFO; it is left as it is (mkfifo makes one)",
                    path, what);
}

/* Finds the FIFO or makes it. */
static int find_or_make(kji_fifo *fifo, kj_error *err)
{
    struct stat st;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (stat(fifo->path, &st) == 0)
            return S_ISFIFO(st.st_mode) ? 0 : fail_not_fifo(&st, fifo->path, err);
        if (errno != ENOENT)
            break;
        if (mkfifo(fifo->path, 0600) == 0) {
            fifo->is_made = true;
            return 0;
        }
        if (errno != EEXIST) /* else somebody was faster, or it is a link to nowhere */
            break;
    }
    if (kji_is_refusal(errno))
        return kji_fail_errno(err, KJ_EUNSUPPORTED, errno, "the file system of %s refuses FIFOs",
                              fifo->path);
    return kji_fail_errno(err, errno == ENOENT ? KJ_ENOENT : KJ_EIO, errno,
                          "there is no FIFO %s and none can be made", fifo->path);
}

/* Reads until all writers have left or nothing comes any more. */
static void drain_stale(int fd, kji_strbuf *stale)
{
    int64_t end = kji_monotonic_ms() + STALE_MAX_MS;
    do {
        char bytes[4096];
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n == 0)
            return;
        if (n > 0 && stale->size < STALE_KEPT)
            kji_strbuf_add(stale, bytes, (size_t)n);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (n < 0 && errno == EAGAIN && poll(&ready, 1, STALE_SILENCE_MS) == 0)
            return;
    } while (kji_monotonic_ms() < end);
}

static int open_found(kji_fifo *fifo, kji_strbuf *stale, kj_error *err)
{
    const char *path = fifo->path;
    struct stat st;
    kji_forks_open(&fifo->lock_fd, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fifo->lock_fd < 0 || fstat(fifo->lock_fd, &st) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open the FIFO %s", path);
    if (!S_ISFIFO(st.st_mode))
        return fail_not_fifo(&st, path, err);
    if (flock(fifo->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return kji_fail(err, KJ_EBUSY,
                        "another run reads the FIFO %s; two would take each other's commands",
                        path);
    drain_stale(fifo->lock_fd, stale);
    if (kji_forks_open(&fifo->fd, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_NOCTTY, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open the FIFO %s", path);
    if (fstat(fifo->fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return fail_not_fifo(&st, path, err);
    return 0;
}

int kji_fifo_open_user(kji_fifo *fifo, const char *path, char **ret_stale, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf stale = KJI_STRBUF_INIT;
    fifo->path = kji_absolute_path(path);
    if (!fifo->path)
        return kji_fail_memory(err);
    int r = find_or_make(fifo, err);
    if (r >= 0)
        r = open_found(fifo, &stale, err);
    *ret_stale = stale.size ? kji_strbuf_take(&stale) : NULL;
    if (r < 0)
        kji_fifo_done(fifo);
    return r;
}

int kji_fifo_watch(const kji_fifo *fifo, int inotify_fd, uint32_t events)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fifo->fd);
    int watch = inotify_add_watch(inotify_fd, path, events);
    return watch >= 0 ? watch : inotify_add_watch(inotify_fd, fifo->path, events);
}

static void end_line(kji_fifo *fifo, kj_run *run)
{
    if (fifo->skipping || fifo->size > KJI_LINE_MAX) {
        char problem[80];
        snprintf(problem, sizeof problem, "line of more than %d bytes", KJI_LINE_MAX);
        kji_run_take_line(run, fifo, fifo->line, fifo->size, problem);
    } else {
        kji_run_take_line(run, fifo, fifo->line, fifo->size, NULL);
    }
    fifo->size = 0;
    fifo->skipping = false;
}

/* Keeps a part of a line, up to one byte more than a line may have. */
static void keep(kji_fifo *fifo, const char *bytes, size_t size)
{
    size_t room = sizeof fifo->line - fifo->size;
    fifo->skipping = fifo->skipping || size > room;
    size = size < room ? size : room;
    memcpy(fifo->line + fifo->size, bytes, size);
    fifo->size += size;
}

void kji_fifo_feed(kji_fifo *fifo, kj_run *run, const char *bytes, size_t size)
{
    while (size) {
        const char *newline = memchr(bytes, '\n', size);
        size_t part = newline ? (size_t)(newline - bytes) : size;
        keep(fifo, bytes, part);
        if (!newline)
            return;
        end_line(fifo, run);
        bytes += part + 1;
        size -= part + 1;
    }
}

bool kji_fifo_read(kji_fifo *fifo, kj_run *run)
{
    char bytes[READ_BYTES];
    int64_t before = run->last_seq;
    ssize_t n = read(fifo->fd, bytes, sizeof bytes);
    if (n > 0)
        kji_fifo_feed(fifo, run, bytes, (size_t)n);
    if (run->last_seq != before)
        kji_flood_take(&fifo->flood, kji_monotonic_ms(), run->last_seq - before);
    if (n == sizeof bytes)
        return false;
    if (fifo->writer_left && (fifo->size || fifo->skipping))
        end_line(fifo, run);
    fifo->writer_left = false;
    bool waits = fifo->watch < 0 && (fifo->size || fifo->skipping);
    fifo->due_ms = waits ? kji_monotonic_ms() + SILENCE_MS : 0;
    return true;
}

/* Whether enough commands, of any door, wait for the training: a FIFO's writer is never told that
 * one more was rejected. Those of a paused run are carried out at once. */
static bool is_queue_full(const kj_run *run)
{
    size_t n = 0;
    if (run->n_queued < QUEUED_ENOUGH)
        return false;
    for (const kji_command *command = run->queue; command && n < QUEUED_ENOUGH;
         command = command->next)
        n += command->at.kind == KJI_AT_NOW;
    return n == QUEUED_ENOUGH;
}

int64_t kji_fifo_rest_ms(kji_fifo *fifo, const kj_run *run)
{
    int64_t ms = kji_flood_rest_ms(&fifo->flood, kji_monotonic_ms());
    return ms < QUEUE_REST_MS && is_queue_full(run) ? QUEUE_REST_MS : ms;
}

void kji_fifo_writer_closed(kji_fifo *fifo, kj_run *run)
{
    if (fifo->fd < 0)
        return;
    fifo->writer_left = true;
    if (fifo->rests_until_ms == 0)
        kji_fifo_read(fifo, run);
}

void kji_fifo_check_path(kji_fifo *fifo, kj_run *run)
{
    if (fifo->is_gone || fifo->fd < 0 || is_at_path(fifo))
        return;
    fifo->is_gone = true;
    kji_run_warn(run,
                 "run %s: the FIFO %s was deleted or replaced; the training goes on, but commands "
                 "cannot be sent there any more",
                 run->id, fifo->path);
}
