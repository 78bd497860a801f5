/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for those who watch: rings of the newest of each kind, kept also while nobody watches, so
 * that whoever lost the connection gets what came since. A flood of metrics, or of lines in a FIFO,
 * never pushes out the record that the sender of a command waits for. A reader has a cursor in each
 * ring; what it did not fetch in time is gone, and counted. Writers never wait. The run's lock is
 * held.
 */
#ifndef KJI_FEED_H
#define KJI_FEED_H

#include "strbuf.h"

#include <kajitori/error.h>

#include <stdint.h>

enum kji_feed_kind {
    KJI_FEED_SENT, /* records of commands from the socket, whose senders wait */
    KJI_FEED_LINE, /* of commands from a FIFO */
    KJI_FEED_METRIC,
    KJI_FEED_STATE,
    KJI_FEED_KINDS
};
enum { KJI_FEED_COMMANDS = 1 << KJI_FEED_SENT | 1 << KJI_FEED_LINE };
enum {
    KJI_FEED_ROOM = 4096, /* powers of two */
    KJI_FEED_METRIC_ROOM = 16384,
    KJI_FEED_BYTES = 8 << 20, /* of text, of each kind */
    KJI_FEED_CURSOR_TEXT = 17 * (1 + KJI_FEED_KINDS)
};

extern const char
    *const kji_feed_names[KJI_FEED_KINDS]; /* as in "subscribe"; two kinds are "command" */

typedef struct kji_feed_event {
    uint64_t order; /* over all rings */
    union {
        struct {           /* of all kinds but metrics */
            char *text;    /* members of the notification's params */
            int64_t seq;   /* of a command */
            uint32_t size; /* of the text */
            bool is_last;  /* nothing more will come about this command */
        };
        struct {
            const char *tag;
            int64_t step;
            int64_t epoch; /* -1 before the first */
            double value;
            double wall_time;
        };
    };
} kji_feed_event;

typedef struct kji_feed_ring {
    kji_feed_event *event; /* number n is at n modulo the capacity */
    size_t capacity;       /* 0 until the first event, then doubled up to the room of the kind */
    uint64_t first;        /* number of the oldest that is kept */
    uint64_t written;
    size_t bytes; /* of the texts */
} kji_feed_ring;

typedef struct kji_feed {
    kji_feed_ring ring[KJI_FEED_KINDS];
    uint64_t life; /* tells the cursors of this run from those of an earlier one of the same id */
    uint64_t order;
    unsigned n_readers;        /* without any, nobody needs to be woken */
    unsigned n_metric_readers; /* the same for metrics */
} kji_feed;

typedef struct kji_feed_cursor {
    uint64_t next[KJI_FEED_KINDS];
} kji_feed_cursor;

void kji_feed_init(kji_feed *feed);
void kji_feed_done(kji_feed *feed);

/* Takes event->text over. When memory is gone the event counts as lost for everybody. */
void kji_feed_put(kji_feed *feed, int kind, const kji_feed_event *event);

/* The cursor behind the newest event. */
void kji_feed_end(const kji_feed *feed, kji_feed_cursor *ret_cursor);
/* The cursor before the oldest event that is kept. */
void kji_feed_begin(const kji_feed *feed, kji_feed_cursor *ret_cursor);

/* Moves the cursor over what is gone of the kinds in `wanted` (bit k: kind k), and returns how many
 * that are; and over all events of other kinds. */
uint64_t kji_feed_skip_lost(const kji_feed *feed, kji_feed_cursor *cursor, unsigned wanted);
/* The oldest event behind a cursor that was just moved by the above, which the cursor then passes:
 * NULL when there is none. */
const kji_feed_event *kji_feed_next(const kji_feed *feed, kji_feed_cursor *cursor, int *ret_kind);

/* The cursor as the text that readers get. */
const char *kji_feed_cursor_text(const kji_feed *feed, const kji_feed_cursor *cursor,
                                 char text[KJI_FEED_CURSOR_TEXT]);
/* Reads it back: 1, or 0 for a cursor of an earlier run. KJ_EARG for what no run has given. */
int kji_feed_cursor_parse(const kji_feed *feed, const char *text, kji_feed_cursor *ret_cursor,
                          kj_error *err);

/* Appends the notification of `event` as one line; `cursor` is behind it already. */
void kji_feed_print(const kji_feed *feed, const kji_feed_event *event, int kind,
                    const kji_feed_cursor *cursor, kji_strbuf *to);
/* lost = -1: not known. */
void kji_feed_print_gap(const kji_feed *feed, int64_t lost, const kji_feed_cursor *cursor,
                        kji_strbuf *to);

#endif
