/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bound on what the lines of one FIFO that change nothing (refused ones, questions, repeats) may
 * cost: `yes > ctl` must fill no disk and hold no training. A hundred are journalled one by one,
 * and one more for each second that passes; the others are counted, and the FIFO is read slowly
 * meanwhile. Helper thread, the run's lock held.
 */
#ifndef KJI_FLOOD_H
#define KJI_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

enum { KJI_FLOOD_LINES = 100, KJI_FLOOD_TELL_MS = 1000, KJI_FLOOD_SHOWN = 60 };

typedef struct kji_flood {
    int n_used;                     /* of the hundred */
    int64_t refilled_ms;            /* when n_used was last lowered, or counting began */
    int64_t n_hidden;               /* counted, and not told yet */
    int64_t hidden_since;           /* when the first of these came, in ms */
    char text[KJI_FLOOD_SHOWN + 1]; /* the beginning of the newest of these */
} kji_flood;

/* Counts one line that changes nothing: whether it is journalled by itself. If not, `text` stands
 * for it in the summary. */
bool kji_flood_admits(kji_flood *flood, int64_t now_ms, const char *text);

/* Whether the next such line would be hidden. */
bool kji_flood_is_on(const kji_flood *flood);

/* When the hidden lines are to be told of, INT64_MAX when there are none. */
int64_t kji_flood_tell_ms(const kji_flood *flood);

#endif
