/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of this layer: points as rows that can be kept and compared. */
#ifndef KJI_METRIC_ROWS_H
#define KJI_METRIC_ROWS_H

#include <kajitori/events.h>

#include "kji-test.h"

#include <stdbool.h>

typedef struct kji_row {
    char *run, *tag;
    size_t tag_size;
    int64_t step;
    double wall_time, value;
    uint32_t flags;
} kji_row;

typedef struct kji_rows {
    kji_row *rows;
    size_t n, capacity;
    size_t stop_after; /* ask for no more after so many; 0: never */
} kji_rows;

void kji_rows_done(kji_rows *rows);

/* A kj_point_fn; userdata is a kji_rows. */
int kji_rows_collect(void *userdata, const kj_point *point);

/* The rows of a listing, one JSON object a line. */
void kji_rows_load(kji_rows *rows, const char *path);

/* Asserts that got[from, from + n) are the same as expected[from, from + n), to the bit. */
void kji_rows_assert_same(const kji_rows *got, const kji_rows *expected, size_t from, size_t n,
                          const char *what);

/* Everything that is there, without waiting; returns the number of points. */
size_t kji_rows_drain(kj_events *source, kji_rows *rows);

/* Waits on the source until `n` rows are there; fails after a long time. */
void kji_rows_await(kj_events *source, kji_rows *rows, size_t n);

#endif
