/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TFRecord frame around each event: length (u64), masked CRC-32C of the length, payload, masked
 * CRC-32C of the payload; all little-endian, nothing between the records.
 */
#ifndef KJI_EVENT_FRAME_H
#define KJI_EVENT_FRAME_H

#include "crc32c.h"

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KJI_FRAME_HEAD = 12,      /* bytes before the payload */
    KJI_FRAME_EXTRA = 16,     /* bytes around it */
    KJI_FRAME_LIMIT = 1 << 30 /* a longer payload is taken for damage */
};

enum kji_head {
    KJI_HEAD_GOOD,
    KJI_HEAD_HOLE, /* twelve zeros: a block of the file that is not visible yet, never a record */
    KJI_HEAD_BAD
};

/* *ret_size, the size of the payload, is set for KJI_HEAD_GOOD only. */
static inline enum kji_head kji_frame_head(const unsigned char head[KJI_FRAME_HEAD],
                                           size_t *ret_size)
{
    uint64_t size;
    uint32_t stored;
    memcpy(&size, head, sizeof size);
    memcpy(&stored, head + 8, sizeof stored);
    size = le64toh(size);
    stored = le32toh(stored);
    if (size == 0 && stored == 0)
        return KJI_HEAD_HOLE;
    if (size > KJI_FRAME_LIMIT || kji_crc32c_mask(kji_crc32c(head, 8)) != stored)
        return KJI_HEAD_BAD;
    *ret_size = (size_t)size;
    return KJI_HEAD_GOOD;
}

/* Whether `crc` is the one that the four bytes behind the payload state. */
static inline bool kji_frame_crc_matches(uint32_t crc, const unsigned char stored[4])
{
    uint32_t word;
    memcpy(&word, stored, sizeof word);
    return kji_crc32c_mask(crc) == le32toh(word);
}

/* Writes the twelve bytes that go before a payload. */
void kji_frame_seal_head(size_t size, unsigned char ret_head[KJI_FRAME_HEAD]);

/* Writes the twelve bytes that go before, and the four that go behind a payload. */
void kji_frame_seal(const void *payload, size_t size, unsigned char ret_head[KJI_FRAME_HEAD],
                    unsigned char ret_tail[4]);

#endif
