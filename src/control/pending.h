/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which commands a journal leaves open: those whose newest line says accepted, scheduled or
 * applied. Fed line by line, by the run that writes the journal and by the next one that reads it.
 */
#ifndef KJI_PENDING_H
#define KJI_PENDING_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More cannot wait in a run; a damaged journal could say anything. The rest is left out. */
enum { KJI_PENDING_MAX = 20000, KJI_PENDING_BYTES = 80 << 20 };

typedef struct kji_pending_command {
    int64_t seq;
    char *line;       /* its newest line */
    char *command_id; /* NULL: none */
    bool is_old;      /* of a run before: it can be recovered, and is nothing that waits */
} kji_pending_command;

typedef struct kji_pending {
    kji_pending_command *item; /* by seq; inside of block, behind n_before places that are free */
    size_t n;
    kji_pending_command *block;
    size_t capacity;
    size_t n_before;
    size_t n_old;
    size_t bytes;
    int64_t last_seq; /* highest number that a command had */
} kji_pending;

void kji_pending_done(kji_pending *pending);

/* Takes note of a line of the journal; `text` is the same, with or without a newline behind. */
void kji_pending_take(kji_pending *pending, struct json_object *line, const char *text,
                      size_t size);

/* The run that wrote what was read is dead: what it left open is old now. */
void kji_pending_make_old(kji_pending *pending);

/* NULL when there is none. */
const kji_pending_command *kji_pending_find(const kji_pending *pending, int64_t seq);

#endif
