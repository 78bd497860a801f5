/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One serialized TensorFlow `Event`, scanned in place: nothing is allocated or copied, and pointers
 * lead into the given bytes. Fields may come in any order and repeatedly; unknown ones are skipped.
 */
#ifndef KJI_EVENT_WIRE_H
#define KJI_EVENT_WIRE_H

#include <kajitori/events.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct kji_event {
    double wall_time;
    int64_t step;
    bool has_summary;        /* then its values count, not the event itself */
    bool starts;             /* SessionLog START: the writer begins anew at `step` */
    enum kj_event_kind kind; /* of an event without a summary */
    const unsigned char
        *values; /* the part of the message that holds the summary, for the iterator */
    const unsigned char *end;
} kji_event;

/* One value of a summary, of whatever kind. */
typedef struct kji_value {
    const char *tag; /* tag_size bytes, no NUL */
    size_t tag_size;
    double number;  /* of a scalar */
    uint32_t dtype; /* of a scalar, by TensorFlow's DataType number */
    /* SCALAR, or what it is as far as its content tells: whether a TENSOR (or NO_VALUE) is an image
     * or a text depends on the plugin, which its metadata or those of an earlier value name. */
    enum kj_event_kind kind;
    const unsigned char *metadata; /* where its metadata are, for kji_metadata_read; NULL: none */
    const unsigned char *end;
} kji_value;

/* What a value's metadata say; bytes, no NUL behind. */
typedef struct kji_metadata {
    const char *plugin, *display_name, *description;
    size_t plugin_size, display_name_size, description_size;
} kji_metadata;

/*
 * The shape that nearly every event has: ascending fields, one value, a simple_value or a float as
 * TensorFlow 2 writes it. false: it has another one, read it with the calls below, which would give
 * the same.
 */
bool kji_event_read_usual(const void *bytes, size_t size, kji_event *ret_event,
                          kji_value *ret_value);

/* false: not a well-formed message, *ret_event is undefined. Values are checked by the iterator. */
bool kji_event_parse(const void *bytes, size_t size, kji_event *ret_event);

typedef struct kji_value_iter {
    const unsigned char *event, *event_end;     /* what is left of the event */
    const unsigned char *summary, *summary_end; /* what is left of the current summary */
} kji_value_iter;

/* For events that have a summary. */
void kji_value_begin(kji_value_iter *iter, const kji_event *event);

/* 1 = *ret_value is set, 0 = no more, -1 = malformed (then no value of the event may be used). */
int kji_value_next(kji_value_iter *iter, kji_value *ret_value);

/* The kind that a member of Value's oneof has by itself; `key` is its key, 0 for none. Not for a
 * tensor. */
enum kj_event_kind kji_member_kind(uint32_t key);

/* The kind of an event whose oneof has the member with this key; 0: none. */
enum kj_event_kind kji_event_kind(uint32_t key);

/* One SummaryMetadata message. false: malformed. */
bool kji_metadata_parse(const unsigned char *bytes, size_t size, kji_metadata *ret_metadata);

/* Those of a value. false: they are malformed, or there are none. */
bool kji_metadata_read(const kji_value *value, kji_metadata *ret_metadata);

#endif
