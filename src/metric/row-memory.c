/* SPDX-License-Identifier: Apache-2.0 */
#include "row-memory.h"

#include "mem.h"

void kji_row_memory_done(kji_row_memory *memory)
{
    free(memory->hashes);
    *memory = (kji_row_memory){0};
}

bool kji_row_memory_knows(kji_row_memory *memory, size_t k, uint64_t hash)
{
    if (k < memory->n && memory->hashes[k] == hash)
        return true;
    if (k < memory->n)
        memory->n = k;
    if (k == memory->n && kji_reserve(&memory->hashes, &memory->capacity, k + 1, sizeof hash))
        memory->hashes[memory->n++] = hash;
    return false;
}

uint64_t kji_row_hash(const char *name, size_t name_size, const char *value, size_t value_size)
{
    uint64_t hash = kji_hash(name, name_size) * 0x9e3779b97f4a7c15u + kji_hash(value, value_size);
    hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}
