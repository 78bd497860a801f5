/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The median stopping rule: a trial is cut when the best value it has reported so far is worse
 * than the median of what the complete trials had reported at the same step. After the rule of
 * that name in D. Golovin et al., "Google Vizier: a service for black-box optimization", KDD 2017;
 * the details (best so far, NaN, warm-up, intervals) are those of Optuna's MedianPruner, whose
 * answers tests/data/pruners/MedianPruner.jsonl records.
 *
 * A rule consists of its options, of a function that decides, and of the table at the end, which
 * stands in the registry in pruner.c.
 */
#include "percentile-rule.h"

typedef struct median_options {
    int64_t n_startup_trials;
    int64_t n_warmup_steps;
    int64_t interval_steps;
    int64_t n_min_trials;
} median_options;

static const kji_option options[] = {
    {"n_startup_trials", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(median_options, n_startup_trials),
     "5", 0, 0, "no trial is cut before this many are complete"},
    {"n_warmup_steps", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(median_options, n_warmup_steps), "0",
     0, 0, "no trial is cut below this step"},
    {"interval_steps", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(median_options, interval_steps), "1",
     1, 0, "steps between two looks at a trial"},
    {"n_min_trials", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(median_options, n_min_trials), "1", 1, 0,
     "complete trials that must have reported the step"},
};

static int median_decide(const void *self, const kji_history *history, const kji_trial *trial,
                         kji_decision *ret_decision, kj_error *err)
{
    (void)err;
    const median_options *o = self;
    kji_percentile_rule rule = {
        .percent = 50,
        .what = "median",
        .n_startup_trials = o->n_startup_trials,
        .n_warmup_steps = o->n_warmup_steps,
        .interval_steps = o->interval_steps,
        .n_min_trials = o->n_min_trials,
    };
    kji_percentile_decide(&rule, history, trial, ret_decision);
    return 0;
}

const kji_pruner_ops kji_pruner_median = {
    .size = sizeof(kji_pruner_ops),
    .name = "median",
    .help = "cuts a trial whose best value is worse than the median of the others at its step",
    .instance_size = sizeof(median_options),
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .decide = median_decide,
};
