/* SPDX-License-Identifier: Apache-2.0 */
#include "seen.h"

#include "mem.h"

#include <string.h>

static kji_seen_entry *entry_at(const kji_seen *seen, size_t index)
{
    return &seen->entry[(seen->first + index) % KJI_SEEN_MAX];
}

static void drop_oldest(kji_seen *seen)
{
    kji_seen_entry *oldest = entry_at(seen, 0);
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
    *seen = (kji_seen){0};
}

static kji_seen_entry *find(const kji_seen *seen, const char *id)
{
    size_t hash = kji_hash(id, strlen(id));
    for (size_t k = seen->n; k-- > 0;) {
        kji_seen_entry *entry = entry_at(seen, k);
        if (entry->hash == hash && strcmp(entry->id, id) == 0)
            return entry;
    }
    return NULL;
}

const char *kji_seen_find(const kji_seen *seen, const char *id)
{
    const kji_seen_entry *entry = find(seen, id);
    return entry ? entry->record : NULL;
}

static kji_seen_entry *add(kji_seen *seen, const char *id)
{
    if (!seen->entry)
        seen->entry = calloc(KJI_SEEN_MAX, sizeof *seen->entry);
    char *copy = seen->entry ? strdup(id) : NULL;
    char *empty = copy ? strdup("") : NULL;
    if (!empty) {
        free(copy);
        return NULL;
    }
    if (seen->n == KJI_SEEN_MAX)
        drop_oldest(seen);
    kji_seen_entry *entry = entry_at(seen, seen->n++);
    *entry = (kji_seen_entry){copy, kji_hash(id, strlen(id)), empty};
    return entry;
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
