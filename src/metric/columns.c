/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One type for three uses: the blocks of kj_events_next, the history of a series, and views of such
 * a history. All are counted by their references alone, so there is no lock, and no way back to a
 * reader: the pool of a reader holds one reference to each of its blocks, and a block whose only
 * reference is that one is free.
 */
#include "columns.h"

#include "mem.h"

#include <string.h>

enum { FIRST_CAPACITY = 16 };

static bool resize(void *pointer_to_column, uint64_t capacity, size_t element_size)
{
    void *grown = reallocarray(*(void **)pointer_to_column, capacity, element_size);
    if (!grown)
        return false;
    *(void **)pointer_to_column = grown;
    return true;
}

static void show(kji_columns *columns)
{
    columns->seen.step = columns->step;
    columns->seen.wall_time = columns->wall_time;
    columns->seen.value = columns->value;
    columns->seen.series = columns->series;
    columns->seen.flags = columns->flags;
}

/* A column that did grow when another could not keeps what it holds, and is only larger. */
static bool reserve(kji_columns *columns, uint64_t capacity)
{
    bool done = resize(&columns->step, capacity, sizeof *columns->step) &&
                resize(&columns->wall_time, capacity, sizeof *columns->wall_time) &&
                resize(&columns->value, capacity, sizeof *columns->value);
    if (done && columns->series)
        done = resize(&columns->series, capacity, sizeof *columns->series) &&
               resize(&columns->flags, capacity, sizeof *columns->flags);
    if (done)
        columns->capacity = capacity;
    show(columns);
    return done;
}

static kji_columns *new_empty(void)
{
    kji_columns *columns = calloc(1, sizeof *columns);
    if (!columns)
        return NULL;
    columns->seen.size = sizeof columns->seen;
    atomic_init(&columns->refs, 1);
    return columns;
}

kji_columns *kji_columns_new(uint64_t capacity, bool with_series)
{
    kji_columns *columns = new_empty();
    if (!columns)
        return NULL;
    if (with_series) {
        columns->series = calloc(1, sizeof *columns->series);
        columns->flags = calloc(1, sizeof *columns->flags);
    }
    if ((with_series && (!columns->series || !columns->flags)) || !reserve(columns, capacity)) {
        kji_columns_unref(columns);
        return NULL;
    }
    return columns;
}

kj_columns *kj_columns_ref(kj_columns *columns)
{
    atomic_fetch_add_explicit(&((kji_columns *)columns)->refs, 1, memory_order_relaxed);
    return columns;
}

void kji_columns_unref(kji_columns *columns)
{
    if (!columns || atomic_fetch_sub_explicit(&columns->refs, 1, memory_order_acq_rel) != 1)
        return;
    kji_columns *base = columns->base;
    if (!base) {
        free(columns->step);
        free(columns->wall_time);
        free(columns->value);
        free(columns->series);
        free(columns->flags);
    }
    free(columns);
    if (base)
        kji_columns_unref(base);
}

void kj_columns_unref(kj_columns *columns)
{
    kji_columns_unref((kji_columns *)columns);
}

/* What others did with it before they let go of it has happened when this is true. */
static bool is_ours_alone(kji_columns *columns)
{
    return atomic_load_explicit(&columns->refs, memory_order_acquire) == 1;
}

kji_columns *kji_columns_view(kji_columns *base, uint64_t n)
{
    kji_columns *view = new_empty();
    if (!view)
        return NULL;
    kj_columns_ref(&base->seen);
    view->base = base;
    view->seen = base->seen;
    view->seen.n = n;
    return view;
}

/* By half only: what is copied into memory that was used before is resident as a whole. */
bool kji_columns_grow(kji_columns **columns)
{
    kji_columns *old = *columns;
    uint64_t capacity = old ? old->capacity + old->capacity / 2 : FIRST_CAPACITY;
    if (old && is_ours_alone(old))
        return reserve(old, capacity);
    kji_columns *grown = kji_columns_new(capacity, false);
    if (!grown)
        return false;
    if (old) {
        memcpy(grown->step, old->step, old->seen.n * sizeof *old->step);
        memcpy(grown->wall_time, old->wall_time, old->seen.n * sizeof *old->wall_time);
        memcpy(grown->value, old->value, old->seen.n * sizeof *old->value);
        grown->seen.n = old->seen.n;
    }
    kji_columns_unref(old);
    *columns = grown;
    return true;
}

/* Where the pool is to hold a block of this size: one that is free, or an empty place; NULL when
 * all are in use. */
static kji_columns **find_place(kji_columns_pool *pool, uint64_t capacity)
{
    kji_columns **place = NULL;
    for (size_t k = 0; k < KJI_POOL_BLOCKS; k++) {
        kji_columns *block = pool->blocks[k];
        if (!block || !is_ours_alone(block))
            continue;
        if (block->capacity >= capacity)
            return &pool->blocks[k];
        place = &pool->blocks[k];
    }
    for (size_t k = 0; !place && k < KJI_POOL_BLOCKS; k++)
        if (!pool->blocks[k])
            place = &pool->blocks[k];
    return place;
}

kji_columns *kji_columns_take(kji_columns_pool *pool, uint64_t capacity)
{
    kji_columns **place = find_place(pool, capacity);
    if (!place)
        return kji_columns_new(capacity, true);
    if (!*place || (*place)->capacity < capacity) {
        kji_columns *block = kji_columns_new(capacity, true);
        if (!block)
            return NULL;
        kji_columns_unref(*place);
        *place = block;
    }
    (*place)->seen.n = 0;
    kj_columns_ref(&(*place)->seen);
    return *place;
}

void kji_columns_pool_done(kji_columns_pool *pool)
{
    for (size_t k = 0; k < KJI_POOL_BLOCKS; k++)
        kji_columns_unref(pool->blocks[k]);
    *pool = (kji_columns_pool){0};
}
