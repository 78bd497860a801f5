/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of points: the memory behind kj_columns. Whoever holds a reference may read elements
 * [0, n) of it in any thread; one owner, who holds one too, may write behind them.
 */
#ifndef KJI_COLUMNS_H
#define KJI_COLUMNS_H

#include <kajitori/events.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct kji_columns {
    kj_columns seen; /* first: what the caller has is its address */
    atomic_uint refs;
    struct kji_columns *base; /* not NULL: the columns are another one's, of which this is a view */
    uint64_t capacity;
    int64_t *step;
    double *wall_time, *value;
    uint32_t *series, *flags;
} kji_columns;

/* Empty, for `capacity` points, one reference. NULL when memory is gone. `with_series`: series and
 * flags too. */
kji_columns *kji_columns_new(uint64_t capacity, bool with_series);

/* The first n points as they are now. NULL when memory is gone. */
kji_columns *kji_columns_view(kji_columns *base, uint64_t n);

/*
 * Makes room for more. When nobody else holds them they grow where they are; otherwise *columns
 * becomes a copy and the others keep what they have. false when memory is gone: nothing has
 * changed.
 */
bool kji_columns_grow(kji_columns **columns);

/* There must be room. */
static inline void kji_columns_put(kji_columns *columns, int64_t step, double wall_time,
                                   double value)
{
    uint64_t n = columns->seen.n;
    columns->step[n] = step;
    columns->wall_time[n] = wall_time;
    columns->value[n] = value;
    columns->seen.n = n + 1;
}

/* Blocks that are filled again as soon as nobody else holds them. */
enum { KJI_POOL_BLOCKS = 4 };

typedef struct kji_columns_pool {
    kji_columns *blocks[KJI_POOL_BLOCKS];
} kji_columns_pool;

/* An empty block with series and flags, one reference for the caller. NULL when memory is gone. */
kji_columns *kji_columns_take(kji_columns_pool *pool, uint64_t capacity);
/* The blocks that are still held elsewhere live on. */
void kji_columns_pool_done(kji_columns_pool *pool);

void kji_columns_unref(kji_columns *columns);

#endif
