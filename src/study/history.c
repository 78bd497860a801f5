/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials are immutable once finished, so the order statistics only ever grow: when a trial becomes
 * COMPLETE its reports are inserted, one binary search and one memmove per step.
 */
#include "history.h"

#include "errors.h"
#include "mem.h"

#include <math.h>
#include <string.h>

kji_history *kji_history_new(int direction)
{
    kji_history *history = calloc(1, sizeof *history);
    if (history) {
        history->direction = direction;
        history->max_id = history->stamp[0] = history->stamp[1] = -1;
    }
    return history;
}

void kji_history_free(kji_history *history)
{
    if (!history)
        return;
    for (size_t k = 0; k < history->n_trials; k++)
        kji_trial_free(history->trials[k]);
    for (size_t k = 0; k < history->n_steps; k++) {
        free(history->steps[k].values);
        free(history->steps[k].numbers);
    }
    free(history->trials);
    free(history->steps);
    free(history);
}

/* The first trial with this or a higher number. */
static size_t lower_bound(const kji_history *history, int64_t number)
{
    size_t low = 0, high = history->n_trials;
    /* Numbers are 0, 1, 2, …: it is nearly always where it says. */
    if (number >= 0 && (uint64_t)number < high && history->trials[number]->number == number)
        return (size_t)number;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->trials[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

kji_trial *kji_history_find(const kji_history *history, int64_t number)
{
    size_t at = lower_bound(history, number);
    return at < history->n_trials && history->trials[at]->number == number ? history->trials[at]
                                                                           : NULL;
}

static size_t step_bound(const kji_history *history, int64_t step)
{
    return kji_lower_bound(history->steps, history->n_steps, sizeof *history->steps,
                           offsetof(kji_step_stats, step), step);
}

const kji_step_stats *kji_history_find_step(const kji_history *history, int64_t step)
{
    size_t at = step_bound(history, step);
    /* One that only had room made for it is none. */
    bool found =
        at < history->n_steps && history->steps[at].step == step && history->steps[at].n > 0;
    return found ? &history->steps[at] : NULL;
}

static kji_step_stats *need_step(kji_history *history, int64_t step)
{
    size_t at = step_bound(history, step);
    if (at < history->n_steps && history->steps[at].step == step)
        return &history->steps[at];
    if (!kji_reserve(&history->steps, &history->steps_capacity, history->n_steps + 1,
                     sizeof *history->steps))
        return NULL;
    memmove(&history->steps[at + 1], &history->steps[at],
            (history->n_steps - at) * sizeof *history->steps);
    history->n_steps++;
    history->steps[at] = (kji_step_stats){.step = step};
    return &history->steps[at];
}

/* Behind the values that are not greater; NaN at the very end. */
static size_t value_bound(const kji_step_stats *stats, double value)
{
    size_t low = 0, high = stats->n - stats->n_nan;
    if (isnan(value))
        return stats->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stats->values[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Room for the reports of `trial`, so that count_complete cannot fail half way. */
static bool make_room(kji_history *history, const kji_trial *trial)
{
    for (size_t k = 0; k < trial->n_reports; k++) {
        kji_step_stats *stats = need_step(history, trial->reports[k].step);
        if (!stats ||
            !kji_reserve(&stats->values, &stats->values_capacity, stats->n + 1,
                         sizeof *stats->values) ||
            !kji_reserve(&stats->numbers, &stats->numbers_capacity, stats->n + 1,
                         sizeof *stats->numbers))
            return false;
    }
    return true;
}

static void insert_value(kji_step_stats *stats, double value, int64_t number)
{
    size_t at = value_bound(stats, value), behind = stats->n - at;
    memmove(&stats->values[at + 1], &stats->values[at], behind * sizeof *stats->values);
    memmove(&stats->numbers[at + 1], &stats->numbers[at], behind * sizeof *stats->numbers);
    stats->values[at] = value;
    stats->numbers[at] = number;
    stats->n++;
    stats->n_nan += isnan(value) ? 1 : 0;
}

static void count_complete(kji_history *history, const kji_trial *trial)
{
    for (size_t k = 0; k < trial->n_reports; k++) {
        size_t at = step_bound(history, trial->reports[k].step);
        insert_value(&history->steps[at], trial->reports[k].value, trial->number);
    }
    history->n_complete++;
}

static int place(kji_history *history, kji_trial *trial, kj_error *err)
{
    size_t at = lower_bound(history, trial->number);
    if (at < history->n_trials && history->trials[at]->number == trial->number) {
        kji_trial *old = history->trials[at];
        if (old->id != trial->id || kji_trial_is_finished(old)) {
            kji_trial_free(trial);
            return kji_fail(err, KJ_EDATA, "there are two trials with number %lld",
                            (long long)old->number);
        }
        history->trials[at] = trial;
        kji_trial_free(old);
        return 0;
    }
    if (!kji_reserve(&history->trials, &history->trials_capacity, history->n_trials + 1,
                     sizeof *history->trials)) {
        kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    memmove(&history->trials[at + 1], &history->trials[at],
            (history->n_trials - at) * sizeof *history->trials);
    history->trials[at] = trial;
    history->n_trials++;
    return 0;
}

int kji_history_put(kji_history *history, kji_trial *trial, kj_error *err)
{
    bool is_complete = trial->state == KJ_TRIAL_COMPLETE;
    if (is_complete && !make_room(history, trial)) {
        kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    int r = place(history, trial, err);
    if (r < 0)
        return r;
    if (trial->id > history->max_id)
        history->max_id = trial->id;
    if (is_complete)
        count_complete(history, trial);
    return 0;
}
