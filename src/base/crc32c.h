/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), as in TFRecord files, RFC 3720 and ext4. */
#ifndef KJI_CRC32C_H
#define KJI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `size` bytes; "123456789" gives 0xe3069283. */
uint32_t kji_crc32c(const void *bytes, size_t size);

/* Goes on: kji_crc32c_extend(kji_crc32c(a), b) is the checksum of a followed by b; of nothing it is
 * 0. */
uint32_t kji_crc32c_extend(uint32_t crc, const void *bytes, size_t size);

/* What TFRecord stores: a checksum that may itself be part of checksummed data. */
static inline uint32_t kji_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
