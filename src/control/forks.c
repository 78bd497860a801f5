/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A forked child has the run's descriptors but not its helper thread. If it kept them, a FIFO would
 * take commands that nobody reads, a client would never see the end of the run, and the lock that
 * says "alive" would outlive the training. So the child closes them, and its copy of the run
 * becomes deaf. The run's own lock may be held by a thread that does not exist in the child: the
 * child never takes it. The only lock around fork is the one of this list, which is never held for
 * longer than a few instructions.
 */
#include "forks.h"

#include "mem.h"
#include "run-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static kj_run *runs;

static void make_deaf(kj_run *run)
{
    run->forked = true;
    run->cell.pending = 0;
    run->cell.due_step = run->cell.due_epoch = INT64_MAX;
    kji_signals_forked(run);
    kji_closep(&run->wake_fd);
    kji_journal_close_fds(&run->journal);
    kji_closep(&run->place.lock_fd);
    kji_closep(&run->place.dir_fd);
    kji_helper_close_fds(&run->helper);
}

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&list_lock);
}

/* The list stays as it is, so that a copy that is never closed is no leak. */
static void after_fork_in_child(void)
{
    for (kj_run *run = runs; run; run = run->next_run)
        make_deaf(run);
    pthread_mutex_unlock(&list_lock);
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void kji_forks_add(kj_run *run)
{
    pthread_once(&once, install);
    pthread_mutex_lock(&list_lock);
    run->next_run = runs;
    runs = run;
    pthread_mutex_unlock(&list_lock);
}

void kji_forks_remove(kj_run *run)
{
    pthread_mutex_lock(&list_lock);
    for (kj_run **link = &runs; *link; link = &(*link)->next_run) {
        if (*link == run) {
            *link = run->next_run;
            break;
        }
    }
    pthread_mutex_unlock(&list_lock);
}

void kji_forks_hold(void)
{
    pthread_mutex_lock(&list_lock);
}

void kji_forks_release(void)
{
    pthread_mutex_unlock(&list_lock);
}

int kji_forks_open(int *fd, int dir_fd, const char *path, int flags, mode_t mode)
{
    kji_forks_hold();
    *fd = openat(dir_fd, path, flags | O_CLOEXEC, mode);
    int errnum = errno;
    kji_forks_release();
    errno = errnum;
    return *fd;
}

void kji_forks_close(int *fd)
{
    kji_forks_hold();
    kji_closep(fd);
    kji_forks_release();
}
