/* SPDX-License-Identifier: Apache-2.0 */
/* The command ids of the last commands, each with its newest record: what makes a repeat harmless.
 * The run's lock is held. */
#ifndef KJI_SEEN_H
#define KJI_SEEN_H

#include <stdbool.h>
#include <stddef.h>

enum { KJI_SEEN_MAX = 10000, KJI_SEEN_BYTES = 8 << 20 };

typedef struct kji_seen_entry {
    char *id; /* NULL: free */
    size_t hash;
    char *record; /* JSON text */
} kji_seen_entry;

typedef struct kji_seen {
    kji_seen_entry *entry; /* a ring of KJI_SEEN_MAX, NULL until the first */
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
