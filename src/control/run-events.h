/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the run reports, as event files. Without the run's lock: a slow disk holds up nobody but
 * those who report.
 */
#ifndef KJI_RUN_EVENTS_H
#define KJI_RUN_EVENTS_H

#include <kajitori/event-writer.h>
#include <kajitori/run.h>

#include <pthread.h>
#include <stdbool.h>

typedef struct kji_run_events {
    pthread_mutex_t lock;    /* of the rest; never taken under the run's lock, nor in a fork */
    kj_event_writer *writer; /* NULL: not asked for, or it could not be opened */
    bool waits_for_step;     /* resumed: the first step to come is where the old points end */
    bool has_warned;
} kji_run_events;

/* `dir` NULL: $KAJITORI_EVENTS_DIR; nothing when there is none. */
int kji_run_events_open(kj_run *run, const char *dir, kj_error *err);
/* Nobody else uses it. */
void kji_run_events_close(kj_run *run);

/* A step has begun. */
void kji_run_events_begin(kj_run *run, int64_t step);
/* Any thread. A failure is a warning, once. */
void kji_run_events_put(kj_run *run, const char *tag, int64_t step, double wall_time, double value);

#endif
