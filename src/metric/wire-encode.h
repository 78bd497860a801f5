/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the protobuf wire format, from its end to its beginning: what a message holds is there
 * before its length is written, so nothing is measured in advance and nothing is moved afterwards.
 * Fields are therefore put in descending order to stand in ascending order.
 *
 *     end = encoder->at;
 *     kji_put_text(encoder, 2, "inner", 5);
 *     kji_put_message(encoder, 5, end);     a message with that field, as field 5
 */
#ifndef KJI_WIRE_ENCODE_H
#define KJI_WIRE_ENCODE_H

#include "wire.h"

enum {
    KJI_FIELD_ROOM = 15 /* more than any key, length and number of one field take */
};

typedef struct kji_encoder {
    unsigned char *bytes;
    size_t capacity;
    unsigned char *at; /* what has been put begins here */
} kji_encoder;

static inline void kji_put_varint(kji_encoder *encoder, uint64_t number)
{
    unsigned char text[10];
    size_t n = 0;
    if (number < 0x80) {
        *--encoder->at = (unsigned char)number;
        return;
    }
    for (; number >= 0x80; number >>= 7)
        text[n++] = (unsigned char)(number | 0x80);
    text[n++] = (unsigned char)number;
    encoder->at -= n;
    memcpy(encoder->at, text, n);
}

static inline void kji_put_key(kji_encoder *encoder, uint32_t field, uint32_t type)
{
    kji_put_varint(encoder, field << 3 | type);
}

static inline void kji_put_number(kji_encoder *encoder, uint32_t field, uint64_t number)
{
    kji_put_varint(encoder, number);
    kji_put_key(encoder, field, KJI_WIRE_VARINT);
}

static inline void kji_put_double_bytes(kji_encoder *encoder, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = htole64(bits);
    encoder->at -= sizeof bits;
    memcpy(encoder->at, &bits, sizeof bits);
}

static inline void kji_put_double(kji_encoder *encoder, uint32_t field, double number)
{
    kji_put_double_bytes(encoder, number);
    kji_put_key(encoder, field, KJI_WIRE_FIXED64);
}

static inline void kji_put_float(kji_encoder *encoder, uint32_t field, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = htole32(bits);
    encoder->at -= sizeof bits;
    memcpy(encoder->at, &bits, sizeof bits);
    kji_put_key(encoder, field, KJI_WIRE_FIXED32);
}

/* What was put since `end` becomes the message (or bytes) `field`. */
static inline void kji_put_message(kji_encoder *encoder, uint32_t field, const unsigned char *end)
{
    kji_put_varint(encoder, (uint64_t)(end - encoder->at));
    kji_put_key(encoder, field, KJI_WIRE_BYTES);
}

static inline void kji_put_text(kji_encoder *encoder, uint32_t field, const char *text, size_t size)
{
    const unsigned char *end = encoder->at;
    encoder->at -= size;
    memcpy(encoder->at, text, size);
    kji_put_message(encoder, field, end);
}

#endif
