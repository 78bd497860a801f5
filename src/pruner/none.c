/* SPDX-License-Identifier: Apache-2.0 */
/* Never prunes; Optuna's NopPruner. */
#include "pruner.h"

#include <stdio.h>

static int none_decide(const void *self, const kji_history *history, const kji_trial *trial,
                       kji_decision *ret_decision, kj_error *err)
{
    (void)self, (void)history, (void)err;
    ret_decision->step = kji_trial_last_step(trial);
    snprintf(ret_decision->reason, sizeof ret_decision->reason, "this rule never prunes");
    return 0;
}

const kji_pruner_ops kji_pruner_none = {
    .size = sizeof(kji_pruner_ops),
    .name = "none",
    .help = "never prunes",
    .decide = none_decide,
};
