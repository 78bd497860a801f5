/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target includes. */
#ifndef KJI_FUZZ_H
#define KJI_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The target: called with one input, also by replay-main.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that must hold. */
static inline void check(bool holds)
{
    if (!holds)
        abort();
}

#endif
