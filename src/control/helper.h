/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one helper thread of a run. It owns the doors: waits on them with epoll, without a time-out
 * as long as nothing floods, and is woken by the training thread through an eventfd when there is
 * something to tell.
 */
#ifndef KJI_HELPER_H
#define KJI_HELPER_H

#include "door-fifo.h"
#include "door-socket.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct kji_helper {
    kj_run *run;
    pthread_t thread;
    bool is_running;
    int quit;  /* atomic: the helper ends at its next wake-up */
    int woken; /* atomic: a wake-up is on its way already */
    int epoll_fd;
    int event_fd;
    int inotify_fd; /* -1: no inotify; then a last line without newline waits for one */
    kji_fifo ctl;
    kji_fifo user;
    kji_socket_door socket;
    kji_socket_door monitor;
} kji_helper;

/* All descriptors -1. */
void kji_helper_init(kji_helper *helper, kj_run *run);

/* Prepares to wait at the doors that are open. */
int kji_helper_prepare(kji_helper *helper, kj_error *err);
/* Starts the thread. Nothing to do when it runs, or when nothing was prepared. */
int kji_helper_start(kji_helper *helper, kj_error *err);

/* Any thread. */
void kji_helper_wake(kji_helper *helper);

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
