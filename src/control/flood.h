/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds on what the lines of one FIFO may cost: `yes > ctl` must fill no disk and hold no
 * training. Of lines that change nothing (refused ones, questions, repeats) a hundred are
 * journalled one by one, and one more for each second that passes; the others are counted, and the
 * FIFO is read slowly meanwhile. Those that do something are all taken, ten thousand at once and
 * then so many a second that the journal grows by less than 2 MB: until there is room again the
 * FIFO is not read, and its writers wait. Helper thread, the run's lock held.
 */
#ifndef KJI_FLOOD_H
#define KJI_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    KJI_FLOOD_LINES = 100,
    KJI_FLOOD_TELL_MS = 1000,
    KJI_FLOOD_SHOWN = 60,
    KJI_FLOOD_BURST = 10000,
    KJI_FLOOD_PER_S = 2000
};

typedef struct kji_flood {
    int64_t n_taken;                /* lines with a number of their own, less what was forgotten */
    int64_t forgotten_ms;           /* when n_taken was last lowered */
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

/* Counts lines that got a number of their own. */
void kji_flood_take(kji_flood *flood, int64_t now_ms, int64_t n_lines);
/* How long the FIFO is to be let alone, so that no more are taken than may be; 0: not at all. */
int64_t kji_flood_rest_ms(kji_flood *flood, int64_t now_ms);

/* When the hidden lines are to be told of, INT64_MAX when there are none. */
int64_t kji_flood_tell_ms(const kji_flood *flood);

#endif
