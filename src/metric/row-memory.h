/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows of a file were, for files that are rewritten from their beginning (a new column, a
 * newer checkpoint): as far as the rows are the same as before, their points do not come again.
 */
#ifndef KJI_ROW_MEMORY_H
#define KJI_ROW_MEMORY_H

#include "cursor-text.h"

#include <stdbool.h>

typedef struct kji_row_memory {
    /* The first rows, when they were read by the reader whose cursor this one has: how many, the
     * hash of the first one, and the sum over all of them. */
    size_t n_old;
    uint64_t first, sum;
    uint64_t running; /* the sum over those that have been seen again so far */
    bool mistaken;    /* they were not the same after all: all of them are to be read again */
    /* Those behind them. */
    uint64_t *hashes;
    size_t n, capacity;
} kji_row_memory;

void kji_row_memory_done(kji_row_memory *memory);

/* Whether row k was there before with this hash. If not, it and those behind it are forgotten, and
 * it is kept. */
bool kji_row_memory_knows(kji_row_memory *memory, size_t k, uint64_t hash);

/* How many rows are known. */
size_t kji_row_memory_count(const kji_row_memory *memory);

/* For a cursor: the first n_rows of them, and the same back. */
void kji_row_memory_save(const kji_row_memory *memory, size_t n_rows, kji_strbuf *to);
void kji_row_memory_restore(kji_row_memory *memory, kji_cursor_items *items);

/* The hash of a row is the sum of those of its cells, so that their order does not count. */
uint64_t kji_row_hash(const char *name, size_t name_size, const char *value, size_t value_size);

#endif
