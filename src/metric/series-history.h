/* SPDX-License-Identifier: Apache-2.0 */
/* All points of one series in the order in which they were read, with KJ_EVENTS_KEEP. */
#ifndef KJI_SERIES_HISTORY_H
#define KJI_SERIES_HISTORY_H

#include "columns.h"

/* The steps of the restarts of one run. */
typedef struct kji_restarts {
    int64_t *steps;
    size_t n, capacity;
} kji_restarts;

/* What restarts took back: points before `at`, from `step` on. */
typedef struct kji_restart_mark {
    uint64_t at;
    int64_t step;
} kji_restart_mark;

typedef struct kji_series_history {
    kji_columns *columns; /* NULL: none yet */
    kji_restart_mark *marks;
    size_t n_marks, marks_capacity;
    size_t restarts_seen; /* of its run */
} kji_series_history;

void kji_series_history_done(kji_series_history *history);

bool kji_restarts_add(kji_restarts *restarts, int64_t step);

/* Puts a mark for the restarts that it has not seen. false when memory is gone. */
bool kji_series_history_mark(kji_series_history *history, const kji_restarts *restarts);

/* So that the next kji_series_history_add cannot fail; false when memory is gone. */
static inline bool kji_series_history_prepare(kji_series_history *history,
                                              const kji_restarts *restarts)
{
    if (history->restarts_seen != restarts->n && !kji_series_history_mark(history, restarts))
        return false;
    const kji_columns *columns = history->columns;
    return (columns && columns->seen.n < columns->capacity) || kji_columns_grow(&history->columns);
}

static inline void kji_series_history_add(kji_series_history *history, int64_t step,
                                          double wall_time, double value)
{
    kji_columns_put(history->columns, step, wall_time, value);
}

/* As kj_events_get_history. NULL when memory is gone. */
kji_columns *kji_series_history_merge(kji_series_history *history, const kji_restarts *restarts,
                                      enum kj_merge merge);

#endif
