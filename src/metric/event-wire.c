/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of the protobuf wire format that knows just the fields that lead to a scalar. A field is
 * recognised by its whole key, number and wire type: one with another wire type is an unknown
 * field, as protobuf itself sees it.
 *
 * `oneof` means: the last member wins, and a message that occurs again right after itself is merged
 * with the former. Both fall out of one rule: remember where the last run of the wanted member
 * began, and read all its occurrences from there.
 */
#include "event-wire.h"

#include "tensor-scalar.h"
#include "wire-keys.h"

#include <string.h>

enum { SESSION_START = 1, DTYPE_FLOAT = 1 };

static double widen(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

/* Enters the message with this key that stands at *at and goes up to `end`. */
static inline bool enter_last(const unsigned char **at, const unsigned char *end, uint32_t key)
{
    uint64_t size;
    if (*at == end || **at != key)
        return false;
    ++*at;
    return kji_wire_varint(at, end, &size) && size == (uint64_t)(end - *at);
}

/* A simple_value, or a scalar tensor of one float as tensor_content, at *at. */
static inline bool take_usual_number(const unsigned char **at, const unsigned char *end,
                                     kji_value *value)
{
    static const unsigned char tensor[8] = {KJI_VALUE_TENSOR, 10, KJI_TENSOR_DTYPE,   DTYPE_FLOAT,
                                            KJI_TENSOR_SHAPE, 0,  KJI_TENSOR_CONTENT, 4};
    uint32_t bits;
    if (end - *at >= 5 && **at == KJI_VALUE_SIMPLE)
        *at += 1;
    else if (end - *at >= 12 && memcmp(*at, tensor, sizeof tensor) == 0)
        *at += sizeof tensor;
    else
        return false;
    memcpy(&bits, *at, sizeof bits);
    *at += sizeof bits;
    value->number = widen(le32toh(bits));
    value->dtype = DTYPE_FLOAT;
    value->kind = KJ_EVENT_SCALAR;
    return true;
}

bool kji_event_read_usual(const void *bytes, size_t size, kji_event *ret_event,
                          kji_value *ret_value)
{
    const unsigned char *at = bytes, *end = at + size;
    uint64_t word, step = 0, tag_size;
    if (size < 10 || *at != KJI_EVENT_WALL_TIME)
        return false;
    memcpy(&word, at + 1, sizeof word);
    at += 9;
    if (*at == KJI_EVENT_STEP) {
        at++;
        if (!kji_wire_varint(&at, end, &step))
            return false;
    }
    if (!enter_last(&at, end, KJI_EVENT_SUMMARY) || !enter_last(&at, end, KJI_SUMMARY_VALUE) ||
        at == end || *at++ != KJI_VALUE_TAG || !kji_wire_varint(&at, end, &tag_size) ||
        tag_size > (uint64_t)(end - at))
        return false;
    ret_value->tag = (const char *)at;
    ret_value->tag_size = tag_size;
    at += tag_size;
    if (!take_usual_number(&at, end, ret_value))
        return false;
    ret_value->metadata = at < end ? at : NULL;
    ret_value->end = end;
    if (at < end && !enter_last(&at, end, KJI_VALUE_METADATA))
        return false;
    word = le64toh(word);
    memcpy(&ret_event->wall_time, &word, sizeof word);
    ret_event->step = (int64_t)step;
    ret_event->has_summary = true;
    ret_event->starts = false;
    return true;
}

static bool parse_session_log(const unsigned char *from, const unsigned char *end,
                              uint64_t *ret_status)
{
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_SESSION_STATUS)
            *ret_status = field.number;
    }
    return true;
}

enum kj_event_kind kji_event_kind(uint32_t key)
{
    switch (key) {
    case KJI_EVENT_FILE_VERSION:
        return KJ_EVENT_FILE_VERSION;
    case KJI_EVENT_GRAPH:
    case KJI_EVENT_META_GRAPH:
        return KJ_EVENT_GRAPH;
    case KJI_EVENT_RUN_METADATA:
        return KJ_EVENT_RUN_METADATA;
    case KJI_EVENT_SESSION_LOG:
        return KJ_EVENT_SESSION;
    case 0:
        return KJ_EVENT_NO_VALUE;
    }
    return KJ_EVENT_OTHER;
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
        case KJI_EVENT_WALL_TIME:
            memcpy(&event.wall_time, &field.number, sizeof event.wall_time);
            break;
        case KJI_EVENT_STEP:
            step = field.number;
            break;
        case KJI_EVENT_SUMMARY:
            if (member != KJI_EVENT_SUMMARY)
                event.values = start;
            member = KJI_EVENT_SUMMARY;
            break;
        case KJI_EVENT_SESSION_LOG:
            if (member != KJI_EVENT_SESSION_LOG)
                status = 0;
            if (!parse_session_log(field.bytes, field.bytes + field.number, &status))
                return false;
            member = KJI_EVENT_SESSION_LOG;
            break;
        case KJI_EVENT_FILE_VERSION:
        case KJI_EVENT_GRAPH:
        case KJI_EVENT_LOG_MESSAGE:
        case KJI_EVENT_RUN_METADATA:
        case KJI_EVENT_META_GRAPH:
            member = field.key;
            break;
        }
    }
    event.step = (int64_t)step;
    event.has_summary = member == KJI_EVENT_SUMMARY;
    event.starts = member == KJI_EVENT_SESSION_LOG && status == SESSION_START;
    event.kind = kji_event_kind(member);
    *ret_event = event;
    return true;
}

void kji_value_begin(kji_value_iter *iter, const kji_event *event)
{
    *iter = (kji_value_iter){.event = event->values, .event_end = event->end};
}

/* All tensors of a value, merged; they begin at `from`. false: malformed. */
static bool read_tensor(const unsigned char *from, const unsigned char *end, kji_value *value)
{
    kji_tensor tensor;
    kji_tensor_begin(&tensor);
    kji_field field;
    for (const unsigned char *at = from; at < end;) {
        if (!kji_wire_next(&at, end, &field))
            return false;
        if (field.key == KJI_VALUE_TENSOR && !kji_tensor_add(&tensor, field.bytes, field.number))
            return false;
    }
    value->kind = kji_tensor_kind(&tensor);
    if (!kji_tensor_may_be_scalar(&tensor))
        return true;
    for (const unsigned char *at = from; at < end;) {
        kji_wire_next(&at, end, &field);
        if (field.key == KJI_VALUE_TENSOR)
            kji_tensor_add_values(&tensor, field.bytes, field.number);
    }
    int r = kji_tensor_value(&tensor, &value->number);
    if (r == 1) {
        value->kind = KJ_EVENT_SCALAR;
        value->dtype = (uint32_t)tensor.dtype;
    }
    return r >= 0;
}

enum kj_event_kind kji_member_kind(uint32_t key)
{
    switch (key) {
    case KJI_VALUE_SIMPLE:
        return KJ_EVENT_SCALAR;
    case KJI_VALUE_OLD_HISTOGRAM:
    case KJI_VALUE_HISTOGRAM:
        return KJ_EVENT_HISTOGRAM;
    case KJI_VALUE_IMAGE:
        return KJ_EVENT_IMAGE;
    case KJI_VALUE_AUDIO:
        return KJ_EVENT_AUDIO;
    }
    return KJ_EVENT_NO_VALUE;
}

/* One Summary.Value; false: malformed. */
static bool read_value(const unsigned char *from, const unsigned char *end, kji_value *ret_value)
{
    kji_value value = {.tag = "", .kind = KJ_EVENT_NO_VALUE, .end = end};
    const unsigned char *tensor = NULL;
    uint32_t member = 0, bits = 0;
    kji_field field;
    while (from < end) {
        const unsigned char *start = from;
        if (!kji_wire_next(&from, end, &field))
            return false;
        switch (field.key) {
        case KJI_VALUE_TAG:
            value.tag = (const char *)field.bytes;
            value.tag_size = field.number;
            break;
        case KJI_VALUE_METADATA:
            if (!value.metadata)
                value.metadata = start;
            break;
        case KJI_VALUE_SIMPLE:
            bits = (uint32_t)field.number;
            member = field.key;
            break;
        case KJI_VALUE_TENSOR:
            if (member != KJI_VALUE_TENSOR)
                tensor = start;
            member = field.key;
            break;
        case KJI_VALUE_OLD_HISTOGRAM:
        case KJI_VALUE_HISTOGRAM:
        case KJI_VALUE_IMAGE:
        case KJI_VALUE_AUDIO:
            member = field.key;
            break;
        }
    }
    *ret_value = value;
    if (member == KJI_VALUE_TENSOR)
        return read_tensor(tensor, end, ret_value);
    ret_value->kind = kji_member_kind(member);
    ret_value->number = widen(bits);
    ret_value->dtype = DTYPE_FLOAT;
    return true;
}

int kji_value_next(kji_value_iter *iter, kji_value *ret_value)
{
    kji_field field;
    for (;;) {
        while (iter->summary < iter->summary_end) {
            if (!kji_wire_next(&iter->summary, iter->summary_end, &field))
                return -1;
            if (field.key == KJI_SUMMARY_VALUE)
                return read_value(field.bytes, field.bytes + field.number, ret_value) ? 1 : -1;
        }
        if (iter->event >= iter->event_end)
            return 0;
        if (!kji_wire_next(&iter->event, iter->event_end, &field))
            return -1;
        if (field.key == KJI_EVENT_SUMMARY) {
            iter->summary = field.bytes;
            iter->summary_end = field.bytes + field.number;
        }
    }
}

static bool read_plugin(const unsigned char *from, const unsigned char *end, kji_metadata *metadata)
{
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_PLUGIN_NAME) {
            metadata->plugin = (const char *)field.bytes;
            metadata->plugin_size = field.number;
        }
    }
    return true;
}

static bool add_metadata(const unsigned char *from, const unsigned char *end,
                         kji_metadata *metadata)
{
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_METADATA_PLUGIN_DATA) {
            if (!read_plugin(field.bytes, field.bytes + field.number, metadata))
                return false;
        } else if (field.key == KJI_METADATA_DISPLAY_NAME) {
            metadata->display_name = (const char *)field.bytes;
            metadata->display_name_size = field.number;
        } else if (field.key == KJI_METADATA_DESCRIPTION) {
            metadata->description = (const char *)field.bytes;
            metadata->description_size = field.number;
        }
    }
    return true;
}

static const kji_metadata no_metadata = {.plugin = "", .display_name = "", .description = ""};

bool kji_metadata_parse(const unsigned char *bytes, size_t size, kji_metadata *ret_metadata)
{
    *ret_metadata = no_metadata;
    return add_metadata(bytes, bytes + size, ret_metadata);
}

bool kji_metadata_read(const kji_value *value, kji_metadata *ret_metadata)
{
    kji_metadata metadata = no_metadata;
    if (!value->metadata)
        return false;
    kji_field field;
    for (const unsigned char *at = value->metadata; at < value->end;) {
        if (!kji_wire_next(&at, value->end, &field))
            return false;
        if (field.key == KJI_VALUE_METADATA &&
            !add_metadata(field.bytes, field.bytes + field.number, &metadata))
            return false;
    }
    *ret_metadata = metadata;
    return true;
}
