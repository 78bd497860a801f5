/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one helper thread of a run. It owns the doors: waits on them with epoll, without a time-out
 * as long as nothing floods, and is woken by the training thread through an eventfd when there is
 * something to tell. With KJ_RUN_THREADLESS the training thread does the same at its safe points.
 */
#ifndef KJI_HELPER_H
#define KJI_HELPER_H

#include "door-fifo.h"
#include "door-mailbox.h"
#include "door-socket.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    KJI_MAILBOX_SHARED, /* that was asked for */
    KJI_MAILBOX_OWN,    /* in the run's folder, where the file system has no FIFOs or sockets */
    KJI_MAILBOXES
};

typedef struct kji_helper {
    kj_run *run;
    pthread_t thread;
    bool is_running;
    bool is_threadless;   /* the training thread serves the doors, at its safe points */
    int64_t next_look_ms; /* of that, coarse monotonic time */
    int quit;             /* atomic: the helper ends at its next wake-up */
    int woken;            /* atomic: a wake-up is on its way already */
    int epoll_fd;
    int event_fd;
    int inotify_fd; /* -1: no inotify */
    kji_fifo ctl;
    kji_fifo user;
    kji_socket_door socket;
    kji_socket_door monitor;
    kji_mailbox mailbox[KJI_MAILBOXES];
} kji_helper;

/* All descriptors -1. */
void kji_helper_init(kji_helper *helper, kj_run *run);

/* Prepares to wait at the doors that are open. */
int kji_helper_prepare(kji_helper *helper, kj_error *err);
/* Starts the thread, if there is to be one. Nothing to do when it runs, or when nothing was
 * prepared. */
int kji_helper_start(kji_helper *helper, kj_error *err);

/* Something is to be told to those who watch. Any thread. */
void kji_helper_wake(kji_helper *helper);
/* The same when the doors are served by the training thread, which may wait; from a signal handler,
 * too. */
void kji_helper_alarm(kji_helper *helper);

/* Without a thread, and without the lock: serves the doors, if that was not done within the last 50
 * ms. */
void kji_helper_look(kji_helper *helper);
/* The same at once, and waits up to timeout_ms (-1: as long as it takes) for something to serve.
 * How many came, 0 for none, less than 0 when a signal handler ended the wait. */
int kji_helper_wait(kji_helper *helper, int timeout_ms);
/* Brings the clients what is new. Whoever serves the doors, without the lock. */
void kji_helper_push(kji_helper *helper);

/* Brings all clients what is due to them, as far as they take it at once. The helper has ended. */
void kji_helper_tell(kji_helper *helper);

/* Ends and joins the thread; what still lies in the FIFOs is taken in, so that it is answered in
 * the journal, and nobody's next run finds it. */
void kji_helper_join(kji_helper *helper);

/* The same if it is still to be done (clients get what is due to them first, as far as they read it
 * at once), closes everything. */
void kji_helper_stop(kji_helper *helper);

/* In a forked child: closes all descriptors, touches nothing else. */
void kji_helper_close_fds(kji_helper *helper);

#endif
