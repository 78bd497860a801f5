/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows of a file were, for files that are rewritten from their beginning (a new column, a
 * newer checkpoint): as far as the rows are the same as before, their points do not come again.
 */
#ifndef KJI_ROW_MEMORY_H
#define KJI_ROW_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kji_row_memory {
    uint64_t *hashes;
    size_t n, capacity;
} kji_row_memory;

void kji_row_memory_done(kji_row_memory *memory);

/* Whether row k was there before with this hash. If not, it and those behind it are forgotten, and
 * it is kept. */
bool kji_row_memory_knows(kji_row_memory *memory, size_t k, uint64_t hash);

/* The hash of a row is the sum of those of its cells, so that their order does not count. */
uint64_t kji_row_hash(const char *name, size_t name_size, const char *value, size_t value_size);

#endif
