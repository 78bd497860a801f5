/* SPDX-License-Identifier: Apache-2.0 */
/* The command ids of the last commands, each with its newest record: what makes a repeat harmless.
 * The run's lock is held. */
#ifndef KJI_SEEN_H
#define KJI_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KJI_SEEN_MAX = 10000, KJI_SEEN_BYTES = 8 << 20, KJI_SEEN_BUCKETS = 16384 };

typedef struct kji_seen_entry {
    char *id; /* NULL: free */
    size_t hash;
    char *record;  /* JSON text */
    uint16_t next; /* index + 1 of the next one in the bucket, an older one; 0: none */
} kji_seen_entry;

typedef struct kji_seen {
    kji_seen_entry *entry; /* a ring of KJI_SEEN_MAX, NULL until the first */
    uint16_t *bucket;      /* index + 1 of the newest with a hash, 0: none */
    size_t first;
    size_t n;
    size_t bytes;
} kji_seen;

void kji_seen_done(kji_seen *seen);

/* The newest record of the command `id`, borrowed; NULL when it is not known. */
const char *kji_seen_find(const kji_seen *seen, const char *id);

/* Puts the record of `id` in place of its former one; the oldest ids go when there are too many. */
void kji_seen_put(kji_seen *seen, const char *id, const char *record);

#endif
