/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of event files are 20 to 80 bytes long; for those the processor's CRC instruction in a
 * plain loop is three times as fast as ISA-L, which has to set up its folding. From 256 bytes on
 * ISA-L wins. ISA-L chooses its code at run time and has a portable fallback, so it also serves
 * processors without the instruction.
 */
#include "crc32c.h"

#include <isa-l.h>
#include <stdbool.h>
#include <string.h>

enum { ISAL_FROM = 256, ISAL_PIECE = 1 << 30 };

static uint32_t isal_update(uint32_t state, const unsigned char *bytes, size_t size)
{
    while (size) {
        size_t piece = size < ISAL_PIECE ? size : ISAL_PIECE;
        state = crc32_iscsi((unsigned char *)bytes, (int)piece, state);
        bytes += piece;
        size -= piece;
    }
    return state;
}

#if defined(__x86_64__)
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")

/* Eight bytes a turn, and what is left over in three steps at most. */
__attribute__((target("sse4.2"))) static uint32_t short_crc(uint32_t crc,
                                                            const unsigned char *bytes, size_t size)
{
    uint64_t wide = (uint32_t)~crc, word;
    for (; size >= 8; bytes += 8, size -= 8) {
        memcpy(&word, bytes, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    uint32_t narrow = (uint32_t)wide, half;
    if (size & 4) {
        memcpy(&half, bytes, 4);
        narrow = __builtin_ia32_crc32si(narrow, half);
        bytes += 4;
    }
    if (size & 2) {
        uint16_t pair;
        memcpy(&pair, bytes, 2);
        narrow = __builtin_ia32_crc32hi(narrow, pair);
        bytes += 2;
    }
    return ~(size & 1 ? __builtin_ia32_crc32qi(narrow, *bytes) : narrow);
}
#else
#define HAS_INSTRUCTION false

static uint32_t short_crc(uint32_t crc, const unsigned char *bytes, size_t size)
{
    return ~isal_update(~crc, bytes, size);
}
#endif

uint32_t kji_crc32c_extend(uint32_t crc, const void *bytes, size_t size)
{
    if (size < ISAL_FROM && HAS_INSTRUCTION)
        return short_crc(crc, bytes, size);
    return ~isal_update(~crc, bytes, size);
}

uint32_t kji_crc32c(const void *bytes, size_t size)
{
    if (size < ISAL_FROM && HAS_INSTRUCTION)
        return short_crc(0, bytes, size);
    return ~isal_update(~0u, bytes, size);
}
