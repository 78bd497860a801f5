/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as a door, only when asked for (docs/protocol.md, section 8). */
#ifndef KJI_DOOR_SIGNAL_H
#define KJI_DOOR_SIGNAL_H

#include <kajitori/run.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct kji_signal {
    int number;
    bool is_ending; /* its command ends the training: further ones of its kind are passed on */
    bool is_for_all_ranks; /* as of its verb */
    char *command;         /* text */
} kji_signal;

typedef struct kji_signals {
    char *spec; /* as given, NULL: none */
    kji_signal *item;
    size_t n;
    bool are_ours; /* atomic: handlers are installed */
} kji_signals;

/* Reads "INT,TERM,USR1=checkpoint,HUP=stop save=yes"; NULL and "" are none. KJ_EARG says what would
 * be right. */
int kji_signals_parse(const char *spec, kji_signals *ret_signals, kj_error *err);
void kji_signals_done(kji_signals *signals);

/* Takes out those whose command one rank of several would refuse: they mean what they meant before.
 * KJ_EUNSUPPORTED names the first. Nothing to do once kji_signals_take has taken them. */
int kji_signals_leave_to_all_ranks(kj_run *run, kj_error *err);

/*
 * Installs the handlers of run->signals, if there are any and the run is served. Nothing to do when
 * that was done. KJ_EBUSY when another run of this process has the signals. Training thread, no
 * lock.
 */
int kji_signals_take(kj_run *run, kj_error *err);

/* What was there before comes back, where our handler is still in place; afterwards no handler
 * knows of the run. */
void kji_signals_give_back(kj_run *run);
/* The same in a forked child, which has one thread. */
void kji_signals_forked(kj_run *run);

/* Sends the commands of the signals that came. Helper thread, lock not held. */
void kji_signals_submit(kj_run *run);

#endif
