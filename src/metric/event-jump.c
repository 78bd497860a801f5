/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This walk knows only what large records look like: each field once, no groups, nothing malformed.
 * Everything else, and whatever could be a scalar or the start of a session, is left to who reads
 * all of it (event-wire.c, tensor-scalar.c), so that there is one truth about the odd cases. As
 * there, what is inside of an image or a graph is not looked at.
 */
#include "event-jump.h"

#include "event-wire.h"
#include "tensor-scalar.h"
#include "wire-keys.h"

enum { MAX_HELD = 8 << 10 }; /* a tag, shape or metadata that is longer is unusual */

struct walk {
    kji_window *window;
    const kji_plugin_table *plugins;
    uint32_t *kinds;
    bool unreadable;
};

/* One field, of which only the beginning need be in memory. */
struct field {
    uint32_t key;
    uint64_t number; /* of a varint; of bytes: how many */
    uint64_t offset; /* of bytes: where */
};

/* `need` bytes at `offset`, or fewer at `end`: what the window holds of them. NULL: it cannot. */
static const unsigned char *hold(struct walk *walk, uint64_t offset, uint64_t end, size_t need,
                                 size_t *ret_size)
{
    if (need > end - offset)
        need = (size_t)(end - offset);
    *ret_size = 0;
    if (need == 0)
        return (const unsigned char *)"";
    if (need > walk->window->capacity)
        return NULL;
    if (!kji_window_fill(walk->window, offset, need)) {
        walk->unreadable = true;
        return NULL;
    }
    size_t held = kji_window_held(walk->window, offset);
    if (held < need)
        return NULL;
    *ret_size = held < end - offset ? held : (size_t)(end - offset);
    return kji_window_at(walk->window, offset);
}

/* The field at *at, which moves behind it. false: malformed, unusual or unreadable. */
static bool next_field(struct walk *walk, uint64_t *at, uint64_t end, struct field *field)
{
    enum { MAX_VARINTS = 2 * 10 };
    size_t size;
    uint64_t key;
    const unsigned char *bytes = hold(walk, *at, end, MAX_VARINTS, &size);
    if (!bytes)
        return false;
    const unsigned char *from = bytes, *stop = bytes + size;
    if (!kji_wire_varint(&from, stop, &key) || key > UINT32_MAX || key < 8)
        return false;
    field->key = (uint32_t)key;
    switch (key & 7) {
    case KJI_WIRE_VARINT:
        if (!kji_wire_varint(&from, stop, &field->number))
            return false;
        break;
    case KJI_WIRE_FIXED64:
    case KJI_WIRE_FIXED32:
        field->number = (key & 7) == KJI_WIRE_FIXED64 ? 8 : 4;
        if ((uint64_t)(stop - from) < field->number)
            return false;
        from += field->number;
        break;
    case KJI_WIRE_BYTES:
        if (!kji_wire_varint(&from, stop, &field->number))
            return false;
        field->offset = *at + (uint64_t)(from - bytes);
        if (field->number > end - field->offset)
            return false;
        *at = field->offset + field->number;
        return true;
    default:
        return false;
    }
    *at += (uint64_t)(from - bytes);
    return true;
}

/* The content of a field that is held as a whole, until the next call. NULL: it cannot. */
static const unsigned char *hold_field(struct walk *walk, const struct field *field)
{
    size_t size;
    if (field->number > MAX_HELD)
        return NULL;
    return hold(walk, field->offset, field->offset + field->number, (size_t)field->number, &size);
}

/* false: it may be a scalar, or else must be read. */
static bool walk_tensor(struct walk *walk, const struct field *message,
                        enum kj_event_kind *ret_kind)
{
    uint64_t at = message->offset, end = at + message->number;
    kji_tensor tensor;
    kji_tensor_begin(&tensor);
    while (at < end) {
        struct field field;
        if (!next_field(walk, &at, end, &field))
            return false;
        if (field.key == KJI_TENSOR_DTYPE)
            tensor.dtype = field.number;
        if (field.key != KJI_TENSOR_SHAPE)
            continue;
        const unsigned char *shape = hold_field(walk, &field);
        if (!shape || !kji_tensor_add_shape(&tensor, shape, (size_t)field.number))
            return false;
    }
    *ret_kind = kji_tensor_kind(&tensor);
    return !kji_tensor_may_be_scalar(&tensor);
}

/* The plugin of a value, from its own metadata or those of an earlier one. false: the metadata must
 * be read, since they are to be remembered. */
static bool plugin_of(struct walk *walk, const struct field *tag, const struct field *metadata,
                      enum kj_event_kind *ret_plugin)
{
    const unsigned char *bytes = hold_field(walk, tag);
    if (!bytes)
        return false;
    *ret_plugin = kji_plugin_table_get(walk->plugins, (const char *)bytes, (size_t)tag->number);
    if (!metadata->key)
        return true;
    if (*ret_plugin == KJ_EVENT_KINDS || !(bytes = hold_field(walk, metadata)))
        return false;
    kji_metadata read;
    if (!kji_metadata_parse(bytes, (size_t)metadata->number, &read))
        return false;
    *ret_plugin = kji_plugin_kind(read.plugin, read.plugin_size);
    return true;
}

static bool walk_value(struct walk *walk, const struct field *message)
{
    uint64_t at = message->offset, end = at + message->number;
    struct field field, tag = {.offset = at}, metadata = {0};
    enum kj_event_kind kind = KJ_EVENT_NO_VALUE, plugin;
    while (at < end) {
        if (!next_field(walk, &at, end, &field))
            return false;
        switch (field.key) {
        case KJI_VALUE_TAG:
            tag = field;
            break;
        case KJI_VALUE_METADATA:
            if (metadata.key)
                return false;
            metadata = field;
            break;
        case KJI_VALUE_SIMPLE:
            return false;
        case KJI_VALUE_TENSOR:
        case KJI_VALUE_OLD_HISTOGRAM:
        case KJI_VALUE_HISTOGRAM:
        case KJI_VALUE_IMAGE:
        case KJI_VALUE_AUDIO:
            if (kind != KJ_EVENT_NO_VALUE)
                return false;
            kind = kji_member_kind(field.key);
            if (field.key == KJI_VALUE_TENSOR && !walk_tensor(walk, &field, &kind))
                return false;
            break;
        }
    }
    if (!plugin_of(walk, &tag, &metadata, &plugin))
        return false;
    walk->kinds[kji_plugin_refine(kind, plugin)]++;
    return true;
}

static bool walk_summary(struct walk *walk, const struct field *message)
{
    uint64_t at = message->offset, end = at + message->number;
    while (at < end) {
        struct field field;
        if (!next_field(walk, &at, end, &field) ||
            (field.key == KJI_SUMMARY_VALUE && !walk_value(walk, &field)))
            return false;
    }
    return true;
}

static bool walk_event(struct walk *walk, uint64_t at, uint64_t end)
{
    uint32_t member = 0;
    while (at < end) {
        struct field field;
        if (!next_field(walk, &at, end, &field))
            return false;
        switch (field.key) {
        case KJI_EVENT_SESSION_LOG:
            return false;
        case KJI_EVENT_SUMMARY:
        case KJI_EVENT_FILE_VERSION:
        case KJI_EVENT_GRAPH:
        case KJI_EVENT_LOG_MESSAGE:
        case KJI_EVENT_RUN_METADATA:
        case KJI_EVENT_META_GRAPH:
            if (member)
                return false;
            member = field.key;
            if (member == KJI_EVENT_SUMMARY && !walk_summary(walk, &field))
                return false;
        }
    }
    if (member != KJI_EVENT_SUMMARY)
        walk->kinds[kji_event_kind(member)]++;
    return true;
}

enum kji_jump kji_event_jump(kji_window *window, uint64_t offset, size_t size,
                             const kji_plugin_table *plugins, uint32_t ret_kinds[KJ_EVENT_KINDS])
{
    struct walk walk = {window, plugins, ret_kinds, false};
    if (walk_event(&walk, offset, offset + size))
        return KJI_JUMP_PASS;
    return walk.unreadable ? KJI_JUMP_UNREADABLE : KJI_JUMP_READ;
}
