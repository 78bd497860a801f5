/* SPDX-License-Identifier: Apache-2.0 */
#include "row-memory.h"

#include "mem.h"

void kji_row_memory_done(kji_row_memory *memory)
{
    free(memory->hashes);
    *memory = (kji_row_memory){0};
}

static uint64_t sum_of(uint64_t sum, uint64_t hash)
{
    return (sum ^ hash) * 0x9e3779b97f4a7c15u + (sum >> 29);
}

static void forget(kji_row_memory *memory)
{
    memory->n_old = memory->n = 0;
}

/* A row of those that only their sum is known of. */
static bool knows_old(kji_row_memory *memory, size_t k, uint64_t hash)
{
    if (k == 0 && hash != memory->first)
        return false;
    memory->running = sum_of(k == 0 ? 0 : memory->running, hash);
    memory->mistaken = k == memory->n_old - 1 && memory->running != memory->sum;
    return true;
}

bool kji_row_memory_knows(kji_row_memory *memory, size_t k, uint64_t hash)
{
    if (memory->mistaken) {
        memory->mistaken = false;
        forget(memory);
    }
    if (k < memory->n_old) {
        if (knows_old(memory, k, hash))
            return true;
        forget(memory);
    }
    size_t at = k - memory->n_old;
    if (at < memory->n && memory->hashes[at] == hash)
        return true;
    if (at < memory->n)
        memory->n = at;
    if (at == memory->n && kji_reserve(&memory->hashes, &memory->capacity, at + 1, sizeof hash))
        memory->hashes[memory->n++] = hash;
    return false;
}

size_t kji_row_memory_count(const kji_row_memory *memory)
{
    return memory->n_old + memory->n;
}

void kji_row_memory_save(const kji_row_memory *memory, size_t n_rows, kji_strbuf *to)
{
    uint64_t sum = memory->n_old ? memory->sum : 0;
    uint64_t first = memory->n_old ? memory->first : memory->n ? memory->hashes[0] : 0;
    for (size_t k = memory->n_old; k < n_rows; k++)
        sum = sum_of(sum, memory->hashes[k - memory->n_old]);
    kji_cursor_put_uint(to, n_rows);
    kji_cursor_put_uint(to, first);
    kji_cursor_put_uint(to, sum);
}

void kji_row_memory_restore(kji_row_memory *memory, kji_cursor_items *items)
{
    memory->n_old = kji_cursor_take_uint(items, INT64_MAX / 4);
    memory->first = kji_cursor_take_uint(items, UINT64_MAX);
    memory->sum = kji_cursor_take_uint(items, UINT64_MAX);
}

uint64_t kji_row_hash(const char *name, size_t name_size, const char *value, size_t value_size)
{
    uint64_t hash = kji_hash(name, name_size) * 0x9e3779b97f4a7c15u + kji_hash(value, value_size);
    hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}
