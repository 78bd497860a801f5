/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison behind the percentile rules: a trial against the COMPLETE trials at its step. */
#ifndef KJI_PERCENTILE_RULE_H
#define KJI_PERCENTILE_RULE_H

#include "pruner.h"

typedef struct kji_percentile_rule {
    double percent;   /* of the trials, best first, that are kept: 50 for the median */
    const char *what; /* for the reason: "median" */
    int64_t n_startup_trials;
    int64_t n_warmup_steps;
    int64_t interval_steps;
    int64_t n_min_trials;
} kji_percentile_rule;

/* Fills *decision (see kji_pruner_ops.decide) with Optuna's answer. */
void kji_percentile_decide(const kji_percentile_rule *rule, const kji_history *history,
                           const kji_trial *trial, kji_decision *decision);

/* Whether a rule that looks once per `interval` steps, from step `warmup` on, looks at `trial` now:
 * its newest step is the first that it reported since the last boundary. */
bool kji_is_first_in_interval(const kji_trial *trial, int64_t warmup, int64_t interval);

/* The best value a trial has reported so far, whatever the step; NaN when all are NaN. */
double kji_best_report(const kji_trial *trial, int direction);

#endif
