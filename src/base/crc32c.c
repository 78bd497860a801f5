/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of event files are 20 to 80 bytes long; for those the processor's CRC instruction in a
 * plain loop is three times as fast as ISA-L, which has to set up its folding. From 256 bytes on
 * ISA-L wins. ISA-L chooses its code at run time and has a portable fallback, so it also serves
 * processors without the instruction.
 */
#include "crc32c.h"

#include <isa-l.h>
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
__attribute__((target("sse4.2"))) static uint32_t short_update(uint32_t state,
                                                               const unsigned char *bytes,
                                                               size_t size)
{
    uint64_t wide = state, word;
    for (; size >= 8; bytes += 8, size -= 8) {
        memcpy(&word, bytes, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (; size; bytes++, size--)
        narrow = __builtin_ia32_crc32qi(narrow, *bytes);
    return narrow;
}

static uint32_t update(uint32_t state, const unsigned char *bytes, size_t size)
{
    if (size < ISAL_FROM && __builtin_cpu_supports("sse4.2"))
        return short_update(state, bytes, size);
    return isal_update(state, bytes, size);
}
#else
static uint32_t update(uint32_t state, const unsigned char *bytes, size_t size)
{
    return isal_update(state, bytes, size);
}
#endif

uint32_t kji_crc32c_extend(uint32_t crc, const void *bytes, size_t size)
{
    return ~update(~crc, bytes, size);
}

uint32_t kji_crc32c(const void *bytes, size_t size)
{
    return kji_crc32c_extend(0, bytes, size);
}
