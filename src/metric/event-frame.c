/* SPDX-License-Identifier: Apache-2.0 */
#include "event-frame.h"

#include "crc32c.h"

#include <endian.h>
#include <string.h>

static void store32(unsigned char *bytes, uint32_t x)
{
    x = htole32(x);
    memcpy(bytes, &x, sizeof x);
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
