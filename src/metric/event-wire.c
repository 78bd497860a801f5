/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of the protobuf wire format that knows just the fields that lead to a scalar
 * (event.proto, summary.proto, tensor.proto of TensorFlow). A field is recognised by its whole key,
 * number and wire type: one with another wire type is an unknown field, as protobuf itself sees it.
 *
 * `oneof` means: the last member wins, and a message that occurs again right after itself is merged
 * with the former. Both fall out of one rule: remember where the last run of the wanted member
 * began, and read all its occurrences from there.
 */
#include "event-wire.h"

#include "tensor-scalar.h"
#include "wire.h"

#include <string.h>

enum { /* keys: field number << 3 | wire type */
       EVENT_WALL_TIME = 1 << 3 | KJI_WIRE_FIXED64,
       EVENT_STEP = 2 << 3 | KJI_WIRE_VARINT,
       EVENT_FILE_VERSION = 3 << 3 | KJI_WIRE_BYTES,
       EVENT_GRAPH = 4 << 3 | KJI_WIRE_BYTES,
       EVENT_SUMMARY = 5 << 3 | KJI_WIRE_BYTES,
       EVENT_LOG_MESSAGE = 6 << 3 | KJI_WIRE_BYTES,
       EVENT_SESSION_LOG = 7 << 3 | KJI_WIRE_BYTES,
       EVENT_RUN_METADATA = 8 << 3 | KJI_WIRE_BYTES,
       EVENT_META_GRAPH = 9 << 3 | KJI_WIRE_BYTES,
       SESSION_STATUS = 1 << 3 | KJI_WIRE_VARINT,
       SESSION_START = 1,
       SUMMARY_VALUE = 1 << 3 | KJI_WIRE_BYTES,
       VALUE_TAG = 1 << 3 | KJI_WIRE_BYTES,
       VALUE_SIMPLE = 2 << 3 | KJI_WIRE_FIXED32,
       VALUE_OBSOLETE_HISTOGRAM = 3 << 3 | KJI_WIRE_BYTES,
       VALUE_IMAGE = 4 << 3 | KJI_WIRE_BYTES,
       VALUE_HISTOGRAM = 5 << 3 | KJI_WIRE_BYTES,
       VALUE_AUDIO = 6 << 3 | KJI_WIRE_BYTES,
       VALUE_TENSOR = 8 << 3 | KJI_WIRE_BYTES
};

static bool parse_session_log(const unsigned char *from, const unsigned char *end,
                              uint64_t *ret_status)
{
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == SESSION_STATUS)
            *ret_status = field.number;
    }
    return true;
}

bool kji_event_parse(const void *bytes, size_t size, kji_event *ret_event)
{
    const unsigned char *from = bytes, *end = from + size;
    kji_event event = {.end = end};
    uint64_t step = 0, status = 0;
    uint32_t member = 0;
    kji_field field;
    while (from < end) {
        const unsigned char *start = from;
        if (!kji_wire_next(&from, end, &field))
            return false;
        switch (field.key) {
        case EVENT_WALL_TIME:
            memcpy(&event.wall_time, &field.number, sizeof event.wall_time);
            break;
        case EVENT_STEP:
            step = field.number;
            break;
        case EVENT_SUMMARY:
            if (member != EVENT_SUMMARY)
                event.summary = start;
            member = EVENT_SUMMARY;
            break;
        case EVENT_SESSION_LOG:
            if (member != EVENT_SESSION_LOG)
                status = 0;
            if (!parse_session_log(field.bytes, field.bytes + field.number, &status))
                return false;
            member = EVENT_SESSION_LOG;
            break;
        case EVENT_FILE_VERSION:
        case EVENT_GRAPH:
        case EVENT_LOG_MESSAGE:
        case EVENT_RUN_METADATA:
        case EVENT_META_GRAPH:
            member = field.key;
            break;
        }
    }
    event.step = (int64_t)step;
    if (member == EVENT_SUMMARY)
        event.kind = KJI_EVENT_SUMMARY;
    else if (member == EVENT_SESSION_LOG && status == SESSION_START)
        event.kind = KJI_EVENT_START;
    *ret_event = event;
    return true;
}

bool kji_event_is_blob(const void *prefix, size_t prefix_size, size_t size)
{
    const unsigned char *from = prefix, *end = from + prefix_size;
    size_t left = size;
    while (from < end) {
        const unsigned char *start = from;
        uint64_t key, number;
        if (!kji_wire_varint(&from, end, &key))
            return false;
        if (key == EVENT_WALL_TIME) {
            if (end - from < 8)
                return false;
            from += 8;
        } else if (key == EVENT_STEP) {
            if (!kji_wire_varint(&from, end, &number))
                return false;
        } else if (key == EVENT_GRAPH || key == EVENT_META_GRAPH || key == EVENT_RUN_METADATA) {
            /* It is the last field, so nothing can come behind it that wins. */
            return kji_wire_varint(&from, end, &number) && (size_t)(from - start) <= left &&
                   number == left - (size_t)(from - start);
        } else {
            return false;
        }
        if ((size_t)(from - start) > left)
            return false;
        left -= (size_t)(from - start);
    }
    return false;
}

void kji_scalar_begin(kji_scalar_iter *iter, const kji_event *event)
{
    *iter = (kji_scalar_iter){.event = event->summary, .event_end = event->end};
}

/* All tensors of a value, merged; they begin at `from`. */
static int read_tensor(const unsigned char *from, const unsigned char *end, double *ret_value)
{
    kji_tensor tensor;
    kji_tensor_begin(&tensor);
    kji_field field;
    for (const unsigned char *at = from; at < end;) {
        if (!kji_wire_next(&at, end, &field))
            return -1;
        if (field.key == VALUE_TENSOR && !kji_tensor_add(&tensor, field.bytes, field.number))
            return -1;
    }
    if (!kji_tensor_may_be_scalar(&tensor))
        return 0;
    for (const unsigned char *at = from; at < end;) {
        kji_wire_next(&at, end, &field);
        if (field.key == VALUE_TENSOR)
            kji_tensor_add_values(&tensor, field.bytes, field.number);
    }
    return kji_tensor_value(&tensor, ret_value);
}

/* One Summary.Value: 1 scalar, 0 something else, -1 malformed. */
static int read_value(const unsigned char *from, const unsigned char *end, kji_scalar *ret_scalar)
{
    kji_scalar scalar = {.tag = ""};
    const unsigned char *tensor = NULL;
    uint32_t member = 0, bits = 0;
    kji_field field;
    while (from < end) {
        const unsigned char *start = from;
        if (!kji_wire_next(&from, end, &field))
            return -1;
        switch (field.key) {
        case VALUE_TAG:
            scalar.tag = (const char *)field.bytes;
            scalar.tag_size = field.number;
            break;
        case VALUE_SIMPLE:
            bits = (uint32_t)field.number;
            member = field.key;
            break;
        case VALUE_TENSOR:
            if (member != VALUE_TENSOR)
                tensor = start;
            member = field.key;
            break;
        case VALUE_OBSOLETE_HISTOGRAM:
        case VALUE_IMAGE:
        case VALUE_HISTOGRAM:
        case VALUE_AUDIO:
            member = field.key;
            break;
        }
    }
    int r = 0;
    if (member == VALUE_SIMPLE) {
        float value;
        memcpy(&value, &bits, sizeof value);
        scalar.value = (double)value;
        r = 1;
    } else if (member == VALUE_TENSOR) {
        r = read_tensor(tensor, end, &scalar.value);
    }
    if (r == 1)
        *ret_scalar = scalar;
    return r;
}

int kji_scalar_next(kji_scalar_iter *iter, kji_scalar *ret_scalar)
{
    kji_field field;
    for (;;) {
        while (iter->summary < iter->summary_end) {
            if (!kji_wire_next(&iter->summary, iter->summary_end, &field))
                return -1;
            if (field.key != SUMMARY_VALUE)
                continue;
            int r = read_value(field.bytes, field.bytes + field.number, ret_scalar);
            if (r != 0)
                return r;
        }
        if (iter->event >= iter->event_end)
            return 0;
        if (!kji_wire_next(&iter->event, iter->event_end, &field))
            return -1;
        if (field.key == EVENT_SUMMARY) {
            iter->summary = field.bytes;
            iter->summary_end = field.bytes + field.number;
        }
    }
}
