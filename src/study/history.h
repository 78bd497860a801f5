/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All trials of one study as samplers and pruners see them. A storage fills it and brings it up to
 * date; to everybody else it is read-only. Beside the trials it keeps, for each step, the values
 * of the COMPLETE trials in ascending order, so that a rule about a step needs no scan.
 */
#ifndef KJI_HISTORY_H
#define KJI_HISTORY_H

#include "trial.h"

/* One step over all COMPLETE trials that reported it. */
typedef struct kji_step_stats {
    int64_t step;
    double *values;   /* ascending, those that are NaN last */
    int64_t *numbers; /* of the trials, in the order of `values` */
    size_t n;
    size_t n_nan;
    size_t values_capacity, numbers_capacity;
} kji_step_stats;

typedef struct kji_history {
    int32_t direction;  /* enum kj_direction */
    kji_trial **trials; /* ascending by number */
    size_t n_trials, trials_capacity;
    size_t n_complete;
    kji_step_stats *steps; /* ascending by step */
    size_t n_steps, steps_capacity;
    int64_t max_id;   /* highest trial id seen, -1 for none */
    int64_t stamp[2]; /* the storage's own: what it needs to see that nothing has changed */
} kji_history;

kji_history *kji_history_new(int direction);
void kji_history_free(kji_history *history);

/*
 * Takes `trial` over, also when it fails: it replaces the one with its number, or is new. A
 * finished trial never changes again, so putting one a second time is an error of the caller.
 */
int kji_history_put(kji_history *history, kji_trial *trial, kj_error *err);

/* NULL when there is none. */
kji_trial *kji_history_find(const kji_history *history, int64_t number);
const kji_step_stats *kji_history_find_step(const kji_history *history, int64_t step);

#endif
