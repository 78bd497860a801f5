/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history is only appended to, so that a view of its beginning stays true for ever; restarts are
 * marks beside it. A merge leaves out what a later restart took back, sorts by step, and takes one
 * point of each step. Most histories ascend and were never restarted: they are their own merge.
 */
#include "series-history.h"

#include "mem.h"

#include <string.h>

void kji_series_history_done(kji_series_history *history)
{
    kji_columns_unref(history->columns);
    free(history->marks);
    *history = (kji_series_history){0};
}

bool kji_restarts_add(kji_restarts *restarts, int64_t step)
{
    if (!kji_reserve(&restarts->steps, &restarts->capacity, restarts->n + 1,
                     sizeof *restarts->steps))
        return false;
    restarts->steps[restarts->n++] = step;
    return true;
}

bool kji_series_history_mark(kji_series_history *history, const kji_restarts *restarts)
{
    uint64_t n = history->columns ? history->columns->seen.n : 0;
    if (n) {
        if (!kji_reserve(&history->marks, &history->marks_capacity, history->n_marks + 1,
                         sizeof *history->marks))
            return false;
        int64_t lowest = INT64_MAX;
        for (size_t k = history->restarts_seen; k < restarts->n; k++)
            if (restarts->steps[k] < lowest)
                lowest = restarts->steps[k];
        history->marks[history->n_marks++] = (kji_restart_mark){n, lowest};
    }
    history->restarts_seen = restarts->n;
    return true;
}

struct entry {
    int64_t step;
    uint64_t at;
};

static int by_step(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static bool ascends(const kji_columns *columns)
{
    for (uint64_t k = 1; k < columns->seen.n; k++)
        if (columns->step[k] <= columns->step[k - 1])
            return false;
    return true;
}

/* The entries that no later restart took back, in their order. */
static size_t collect(const kji_series_history *history, bool obey_restarts, struct entry *entries)
{
    const kji_columns *columns = history->columns;
    size_t n_marks = obey_restarts ? history->n_marks : 0, n = 0;
    /* From the end, since a point is taken back by the lowest restart behind it. */
    bool any = false;
    int64_t lowest = 0;
    for (uint64_t k = columns->seen.n; k-- > 0;) {
        for (; n_marks && history->marks[n_marks - 1].at > k; n_marks--) {
            int64_t step = history->marks[n_marks - 1].step;
            lowest = any && lowest < step ? lowest : step;
            any = true;
        }
        if (!any || columns->step[k] < lowest)
            entries[n++] = (struct entry){columns->step[k], k};
    }
    return n;
}

static kji_columns *take_entries(const kji_columns *from, const struct entry *entries, size_t n,
                                 bool last)
{
    kji_columns *merged = kji_columns_new(n ? n : 1, false);
    if (!merged)
        return NULL;
    for (size_t k = 0; k < n; k++) {
        size_t neighbour = last ? k + 1 : k - 1; /* wraps at 0, which is beyond n, too */
        if (neighbour < n && entries[neighbour].step == entries[k].step)
            continue;
        uint64_t at = entries[k].at;
        kji_columns_put(merged, from->step[at], from->wall_time[at], from->value[at]);
    }
    return merged;
}

kji_columns *kji_series_history_merge(kji_series_history *history, const kji_restarts *restarts,
                                      enum kj_merge merge)
{
    kji_columns *columns = history->columns;
    if (!columns)
        return kji_columns_new(1, false);
    if (history->restarts_seen != restarts->n && !kji_series_history_mark(history, restarts))
        return NULL;
    bool obey_restarts = merge == KJ_MERGE_LAST;
    if (merge == KJ_MERGE_ALL || ((!obey_restarts || history->n_marks == 0) && ascends(columns)))
        return kji_columns_view(columns, columns->seen.n);
    KJI_CLEANUP(kji_freep)
    struct entry *entries = reallocarray(NULL, columns->seen.n, sizeof *entries);
    if (!entries)
        return NULL;
    size_t n = collect(history, obey_restarts, entries);
    qsort(entries, n, sizeof *entries, by_step);
    return take_entries(columns, entries, n, merge == KJ_MERGE_LAST);
}
