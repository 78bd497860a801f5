/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial is compared by its best report so far, not by its newest, with what the COMPLETE trials
 * reported at exactly its newest step. The history holds those values in order, so the threshold
 * costs two array reads.
 */
#include "percentile-rule.h"

#include "number.h"
#include "quantile.h"

#include <math.h>
#include <stdio.h>

double kji_best_report(const kji_trial *trial, int direction)
{
    double best = NAN;
    for (size_t k = 0; k < trial->n_reports; k++) {
        double value = trial->reports[k].value;
        best = direction == KJ_DIRECTION_MAXIMIZE ? fmax(best, value) : fmin(best, value);
    }
    return best;
}

bool kji_is_first_in_interval(const kji_trial *trial, int64_t warmup, int64_t interval)
{
    int64_t step = kji_trial_last_step(trial);
    if (step < warmup)
        return false;
    int64_t boundary = (step - warmup) / interval * interval + warmup;
    return trial->n_reports < 2 || trial->reports[trial->n_reports - 2].step < boundary;
}

/* Why the rule does not look at the trial at all, or NULL. */
static const char *why_not_now(const kji_percentile_rule *rule, const kji_history *history,
                               const kji_trial *trial)
{
    if (trial->n_reports == 0)
        return "nothing was reported yet";
    if (history->n_complete == 0)
        return "no trial is complete yet";
    if (history->n_complete < (uint64_t)rule->n_startup_trials)
        return "fewer than n_startup_trials trials are complete";
    if (kji_trial_last_step(trial) < rule->n_warmup_steps)
        return "the step is below n_warmup_steps";
    if (!kji_is_first_in_interval(trial, rule->n_warmup_steps, rule->interval_steps))
        return "this interval of interval_steps was looked at before";
    return NULL;
}

/* To six digits, for people. */
static double rounded(double value)
{
    double digits = 5 - floor(log10(fabs(value)));
    if (!isfinite(digits) || fabs(digits) > 22) /* beyond, powers of ten are not exact */
        return value;
    double power = pow(10, fabs(digits));
    return digits < 0 ? round(value / power) * power : round(value * power) / power;
}

/* The decision has the exact numbers; they are shown where rounding would make them equal. */
static void explain(const kji_percentile_rule *rule, kji_decision *decision)
{
    char value_text[KJI_DOUBLE_TEXT], threshold_text[KJI_DOUBLE_TEXT];
    double value = rounded(decision->value), threshold = rounded(decision->threshold);
    if (value == threshold) {
        value = decision->value;
        threshold = decision->threshold;
    }
    snprintf(decision->reason, sizeof decision->reason,
             "best %s until step %lld is %s than the %s %s of %llu trial%s",
             kji_double_text(value, value_text), (long long)decision->step,
             decision->prune ? "worse" : "not worse", rule->what,
             kji_double_text(threshold, threshold_text), (unsigned long long)decision->n_peers,
             decision->n_peers == 1 ? "" : "s");
}

static void compare(const kji_percentile_rule *rule, const kji_history *history,
                    const kji_step_stats *stats, kji_decision *decision)
{
    bool maximize = history->direction == KJ_DIRECTION_MAXIMIZE;
    size_t n = stats->n - stats->n_nan;
    decision->threshold =
        kji_percentile_sorted(stats->values, n, maximize ? 100 - rule->percent : rule->percent);
    decision->n_peers = n;
    decision->peers = stats->numbers;
    if (isnan(decision->threshold)) {
        snprintf(decision->reason, sizeof decision->reason,
                 "the values of the other trials at step %lld have no %s",
                 (long long)decision->step, rule->what);
        return;
    }
    decision->prune =
        maximize ? decision->value < decision->threshold : decision->value > decision->threshold;
    explain(rule, decision);
}

void kji_percentile_decide(const kji_percentile_rule *rule, const kji_history *history,
                           const kji_trial *trial, kji_decision *decision)
{
    decision->step = kji_trial_last_step(trial);
    const char *why_not = why_not_now(rule, history, trial);
    if (why_not) {
        snprintf(decision->reason, sizeof decision->reason, "%s", why_not);
        return;
    }
    decision->value = kji_best_report(trial, history->direction);
    if (isnan(decision->value)) {
        decision->prune = 1;
        snprintf(decision->reason, sizeof decision->reason, "every report until step %lld is NaN",
                 (long long)decision->step);
        return;
    }
    const kji_step_stats *stats = kji_history_find_step(history, decision->step);
    size_t n = stats ? stats->n : 0;
    if (!stats || n < (uint64_t)rule->n_min_trials) {
        snprintf(decision->reason, sizeof decision->reason,
                 "only %zu complete trials reported step %lld", n, (long long)decision->step);
        return;
    }
    compare(rule, history, stats, decision);
}
