/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

enum { MAX_DEPTH = 100 }; /* of groups in groups, as protobuf's own limit */

bool kji_wire_long_varint(const unsigned char **from, const unsigned char *end, uint64_t *ret)
{
    uint64_t value = 0;
    const unsigned char *at = *from;
    for (unsigned shift = 0; shift < 70 && at < end; shift += 7) {
        unsigned char byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *from = at;
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Groups may hold groups: a stack of their numbers instead of recursion. */
bool kji_wire_skip_group(const unsigned char **from, const unsigned char *end, uint32_t number)
{
    uint32_t open[MAX_DEPTH];
    size_t depth = 0;
    open[depth++] = number;
    while (depth) {
        const unsigned char *at = *from;
        uint64_t key;
        if (!kji_wire_varint(&at, end, &key) || key > UINT32_MAX || key < 8)
            return false;
        if ((key & 7) == KJI_WIRE_GROUP_END) {
            if (open[--depth] != key >> 3)
                return false;
            *from = at;
        } else if ((key & 7) == KJI_WIRE_GROUP) {
            if (depth == MAX_DEPTH)
                return false;
            open[depth++] = (uint32_t)(key >> 3);
            *from = at;
        } else {
            kji_field field;
            if (!kji_wire_next(from, end, &field))
                return false;
        }
    }
    return true;
}
