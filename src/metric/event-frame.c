/* SPDX-License-Identifier: Apache-2.0 */
#include "event-frame.h"

#include "crc32c.h"

#include <endian.h>
#include <string.h>

static uint32_t load32(const unsigned char *bytes)
{
    uint32_t x;
    memcpy(&x, bytes, sizeof x);
    return le32toh(x);
}

static void store32(unsigned char *bytes, uint32_t x)
{
    x = htole32(x);
    memcpy(bytes, &x, sizeof x);
}

enum kji_head kji_frame_head(const unsigned char head[KJI_FRAME_HEAD], size_t *ret_size)
{
    uint64_t size;
    memcpy(&size, head, sizeof size);
    size = le64toh(size);
    uint32_t stored = load32(head + 8);
    if (size == 0 && stored == 0)
        return KJI_HEAD_HOLE;
    if (size > KJI_FRAME_LIMIT || kji_crc32c_mask(kji_crc32c(head, 8)) != stored)
        return KJI_HEAD_BAD;
    *ret_size = (size_t)size;
    return KJI_HEAD_GOOD;
}

bool kji_frame_crc_matches(uint32_t crc, const unsigned char stored[4])
{
    return kji_crc32c_mask(crc) == load32(stored);
}

void kji_frame_seal_head(size_t size, unsigned char ret_head[KJI_FRAME_HEAD])
{
    uint64_t length = htole64(size);
    memcpy(ret_head, &length, sizeof length);
    store32(ret_head + 8, kji_crc32c_mask(kji_crc32c(ret_head, 8)));
}

void kji_frame_seal(const void *payload, size_t size, unsigned char ret_head[KJI_FRAME_HEAD],
                    unsigned char ret_tail[4])
{
    kji_frame_seal_head(size, ret_head);
    store32(ret_tail, kji_crc32c_mask(kji_crc32c(payload, size)));
}
