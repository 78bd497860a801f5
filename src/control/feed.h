/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for those who watch: a ring of the newest 1024 of each kind, so that a flood of metrics,
 * or of lines in a FIFO, never pushes out the record that the sender of a command waits for. A
 * reader has a cursor in each; what it did not fetch in time is gone, and counted. Writers never
 * wait. The run's lock is held.
 */
#ifndef KJI_FEED_H
#define KJI_FEED_H

#include "strbuf.h"

#include <stdint.h>

enum kji_feed_kind {
    KJI_FEED_SENT, /* records of commands from the socket, whose senders wait */
    KJI_FEED_LINE, /* of commands from a FIFO */
    KJI_FEED_METRIC,
    KJI_FEED_STATE,
    KJI_FEED_KINDS
};
enum { KJI_FEED_COMMANDS = 1 << KJI_FEED_SENT | 1 << KJI_FEED_LINE };
enum { KJI_FEED_ROOM = 1024 };

extern const char
    *const kji_feed_names[KJI_FEED_KINDS]; /* as in "subscribe"; two kinds are "command" */

typedef struct kji_feed_event {
    uint64_t order; /* over all rings */
    char *text;     /* members of the notification's params; NULL for a metric */
    int64_t seq;    /* of a command */
    bool is_last;   /* nothing more will come about this command */
    const char *tag;
    int64_t step;
    double value;
    double wall_time;
} kji_feed_event;

typedef struct kji_feed {
    kji_feed_event *ring[KJI_FEED_KINDS]; /* NULL until the first event */
    uint64_t written[KJI_FEED_KINDS];
    uint64_t order;
    unsigned n_readers;        /* without any, nothing needs to be kept */
    unsigned n_metric_readers; /* the same for metrics */
} kji_feed;

typedef struct kji_feed_cursor {
    uint64_t next[KJI_FEED_KINDS];
} kji_feed_cursor;

void kji_feed_done(kji_feed *feed);

/* Takes event->text over. When memory is gone the event counts as lost for everybody. */
void kji_feed_put(kji_feed *feed, int kind, const kji_feed_event *event);

void kji_feed_start(const kji_feed *feed, kji_feed_cursor *ret_cursor);

/*
 * The oldest event of the kinds in `wanted` (bit k: kind k) that the cursor has not passed, which
 * it then passes: NULL when there is none. *ret_lost grows by those that are gone.
 */
const kji_feed_event *kji_feed_next(const kji_feed *feed, kji_feed_cursor *cursor, unsigned wanted,
                                    int *ret_kind, uint64_t *ret_lost);

/* Appends the notification of `event` as one line. */
void kji_feed_print(const kji_feed_event *event, int kind, kji_strbuf *to);
void kji_feed_print_gap(uint64_t lost, kji_strbuf *to);

#endif
