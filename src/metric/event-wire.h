/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One serialized TensorFlow `Event`, scanned in place: nothing is allocated or copied, and pointers
 * lead into the given bytes. Fields may come in any order and repeatedly; unknown ones are skipped.
 */
#ifndef KJI_EVENT_WIRE_H
#define KJI_EVENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kji_event_kind {
    KJI_EVENT_OTHER,   /* file version, graph, nothing at all: no metric */
    KJI_EVENT_SUMMARY, /* has values; not all of them need be scalars */
    KJI_EVENT_START    /* SessionLog START: the writer begins anew at `step` */
};

typedef struct kji_event {
    double wall_time;
    int64_t step;
    enum kji_event_kind kind;
    const unsigned char *summary; /* the part of the message that holds the summary */
    const unsigned char *end;
} kji_event;

/* false: not a well-formed message, *ret_event is undefined. Values are checked by the iterator. */
bool kji_event_parse(const void *bytes, size_t size, kji_event *ret_event);

/*
 * True when the first bytes already tell that an event of `size` bytes holds no summary: the rest
 * need not be read. `prefix_size` may be less than `size`.
 */
bool kji_event_is_blob(const void *prefix, size_t prefix_size, size_t size);

typedef struct kji_scalar {
    const char *tag; /* tag_size bytes, no NUL */
    size_t tag_size;
    double value;
} kji_scalar;

typedef struct kji_scalar_iter {
    const unsigned char *event, *event_end;     /* what is left of the event */
    const unsigned char *summary, *summary_end; /* what is left of the current summary */
} kji_scalar_iter;

/* For events of kind KJI_EVENT_SUMMARY. */
void kji_scalar_begin(kji_scalar_iter *iter, const kji_event *event);

/*
 * The next value that is a scalar: a simple_value, or a tensor of a number or bool type with
 * exactly one element. 1 = *ret_scalar is set, 0 = no more, -1 = malformed (then no value of the
 * event may be used).
 */
int kji_scalar_next(kji_scalar_iter *iter, kji_scalar *ret_scalar);

#endif
