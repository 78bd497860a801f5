/* SPDX-License-Identifier: Apache-2.0 */
#include "seen.h"

#include "mem.h"

#include <string.h>

static uint16_t *bucket_of(const kji_seen *seen, size_t hash)
{
    return &seen->bucket[hash % KJI_SEEN_BUCKETS];
}

static void drop_oldest(kji_seen *seen)
{
    kji_seen_entry *oldest = &seen->entry[seen->first];
    uint16_t *link = bucket_of(seen, oldest->hash); /* it is the last one of its bucket */
    while (&seen->entry[*link - 1] != oldest)
        link = &seen->entry[*link - 1].next;
    *link = 0;
    seen->bytes -= strlen(oldest->record);
    free(oldest->id);
    free(oldest->record);
    *oldest = (kji_seen_entry){0};
    seen->first = (seen->first + 1) % KJI_SEEN_MAX;
    seen->n--;
}

void kji_seen_done(kji_seen *seen)
{
    while (seen->n)
        drop_oldest(seen);
    free(seen->entry);
    free(seen->bucket);
    *seen = (kji_seen){0};
}

static kji_seen_entry *find(const kji_seen *seen, const char *id)
{
    size_t hash = kji_hash(id, strlen(id));
    for (uint16_t at = seen->bucket ? *bucket_of(seen, hash) : 0; at;) {
        kji_seen_entry *entry = &seen->entry[at - 1];
        if (entry->hash == hash && strcmp(entry->id, id) == 0)
            return entry;
        at = entry->next;
    }
    return NULL;
}

const char *kji_seen_find(const kji_seen *seen, const char *id)
{
    const kji_seen_entry *entry = find(seen, id);
    return entry ? entry->record : NULL;
}

static bool make_table(kji_seen *seen)
{
    if (!seen->entry)
        seen->entry = calloc(KJI_SEEN_MAX, sizeof *seen->entry);
    if (!seen->bucket)
        seen->bucket = calloc(KJI_SEEN_BUCKETS, sizeof *seen->bucket);
    return seen->entry && seen->bucket;
}

static kji_seen_entry *add(kji_seen *seen, const char *id)
{
    char *copy = make_table(seen) ? strdup(id) : NULL;
    char *empty = copy ? strdup("") : NULL;
    if (!empty) {
        free(copy);
        return NULL;
    }
    if (seen->n == KJI_SEEN_MAX)
        drop_oldest(seen);
    size_t index = (seen->first + seen->n++) % KJI_SEEN_MAX, hash = kji_hash(id, strlen(id));
    uint16_t *newest = bucket_of(seen, hash);
    seen->entry[index] = (kji_seen_entry){copy, hash, empty, *newest};
    *newest = (uint16_t)(index + 1);
    return &seen->entry[index];
}

void kji_seen_put(kji_seen *seen, const char *id, const char *record)
{
    kji_seen_entry *entry = find(seen, id);
    if (!entry)
        entry = add(seen, id);
    char *copy = entry ? strdup(record) : NULL;
    if (!copy)
        return;
    seen->bytes += strlen(copy);
    seen->bytes -= strlen(entry->record);
    free(entry->record);
    entry->record = copy;
    while (seen->bytes > KJI_SEEN_BYTES && seen->n > 1)
        drop_oldest(seen);
}
