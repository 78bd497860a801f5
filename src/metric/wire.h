/* SPDX-License-Identifier: Apache-2.0 */
/* The protobuf wire format: one field after the other, with strict bounds. */
#ifndef KJI_WIRE_H
#define KJI_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KJI_WIRE_VARINT = 0,
    KJI_WIRE_FIXED64 = 1,
    KJI_WIRE_BYTES = 2,
    KJI_WIRE_GROUP = 3,
    KJI_WIRE_GROUP_END = 4,
    KJI_WIRE_FIXED32 = 5
};

typedef struct kji_field {
    uint32_t key;    /* field number << 3 | wire type */
    uint64_t number; /* of a varint or fixed field; of bytes: how many */
    const unsigned char *bytes;
} kji_field;

/* The slow half of kji_wire_varint: four bytes and more. */
bool kji_wire_long_varint(const unsigned char **from, const unsigned char *end, uint64_t *ret);

/* The slow half of kji_wire_next: skips a group, *from stands behind its start key. */
bool kji_wire_skip_group(const unsigned char **from, const unsigned char *end, uint32_t number);

static inline bool kji_wire_varint(const unsigned char **from, const unsigned char *end,
                                   uint64_t *ret)
{
    const unsigned char *at = *from;
    if (at < end && at[0] < 0x80) {
        *ret = at[0];
        *from = at + 1;
        return true;
    }
    if (end - at >= 2 && at[1] < 0x80) {
        *ret = (at[0] & 0x7fu) | (uint64_t)at[1] << 7;
        *from = at + 2;
        return true;
    }
    if (end - at >= 3 && at[2] < 0x80) {
        *ret = (at[0] & 0x7fu) | (at[1] & 0x7fu) << 7 | (uint64_t)at[2] << 14;
        *from = at + 3;
        return true;
    }
    return kji_wire_long_varint(from, end, ret);
}

/* Reads the field at *from (< end) and moves *from behind it; a group counts as one field without
 * content. false: malformed. */
static inline bool kji_wire_next(const unsigned char **from, const unsigned char *end,
                                 kji_field *field)
{
    uint64_t key;
    if (!kji_wire_varint(from, end, &key) || key > UINT32_MAX || key < 8)
        return false;
    field->key = (uint32_t)key;
    switch (key & 7) {
    case KJI_WIRE_VARINT:
        return kji_wire_varint(from, end, &field->number);
    case KJI_WIRE_FIXED64:
        if (end - *from < 8)
            return false;
        memcpy(&field->number, *from, 8);
        field->number = le64toh(field->number);
        *from += 8;
        return true;
    case KJI_WIRE_BYTES:
        if (!kji_wire_varint(from, end, &field->number) || field->number > (uint64_t)(end - *from))
            return false;
        field->bytes = *from;
        *from += field->number;
        return true;
    case KJI_WIRE_FIXED32: {
        uint32_t word;
        if (end - *from < 4)
            return false;
        memcpy(&word, *from, 4);
        field->number = le32toh(word);
        *from += 4;
        return true;
    }
    case KJI_WIRE_GROUP:
        return kji_wire_skip_group(from, end, (uint32_t)key >> 3);
    }
    return false;
}

#endif
