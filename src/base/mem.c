/* SPDX-License-Identifier: Apache-2.0 */
#include "mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool kji_reserve(void *pointer_to_array, size_t *capacity, size_t need, size_t element_size)
{
    if (need <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2)
            return false;
        wanted *= 2;
    }
    void *grown = reallocarray(*(void **)pointer_to_array, wanted, element_size);
    if (!grown)
        return false;
    *(void **)pointer_to_array = grown;
    *capacity = wanted;
    return true;
}

char *kji_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int r = vasprintf(&text, format, args);
    va_end(args);
    return r < 0 ? NULL : text;
}

size_t kji_lower_bound(const void *items, size_t n, size_t item_size, size_t key_offset,
                       int64_t key)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int64_t found;
        memcpy(&found, (const char *)items + middle * item_size + key_offset, sizeof found);
        if (found < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t kji_hash(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t k = 0; k < size; k++)
        hash = (hash ^ p[k]) * 1099511628211u;
    return (size_t)(hash ^ (hash >> 32));
}
