/* SPDX-License-Identifier: Apache-2.0 */
/* Scope clean-up and growing arrays. */
#ifndef KJI_MEM_H
#define KJI_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* `KJI_CLEANUP(kji_freep) char *text = NULL;` frees text when its scope is left. */
#define KJI_CLEANUP(function) __attribute__((cleanup(function)))

static inline void kji_freep(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

static inline void kji_closep(int *fd)
{
    int closing = *fd;
    *fd = -1; /* first, so that a fork in between never closes a number that is somebody else's */
    if (closing >= 0)
        close(closing);
}

/* Hands a pointer over: the variable is NULL afterwards. */
static inline void *kji_take(void *pointer_to_pointer)
{
    void *taken = *(void **)pointer_to_pointer;
    *(void **)pointer_to_pointer = NULL;
    return taken;
}

/*
 * Makes room for at least `need` elements in *array: doubles, starting at 8. false when memory is
 * gone (array and capacity are unchanged). New elements are not initialised.
 */
bool kji_reserve(void *pointer_to_array, size_t *capacity, size_t need, size_t element_size);

/* asprintf without surprises: NULL when memory is gone. */
char *kji_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Binary search in an array of structs that are sorted by an int64_t at `key_offset` of each: the
 * index of the first one whose key is >= `key`, n when there is none.
 */
size_t kji_lower_bound(const void *items, size_t n, size_t item_size, size_t key_offset,
                       int64_t key);

/* FNV-1a, for tables of names. */
size_t kji_hash(const void *bytes, size_t size);

#endif
