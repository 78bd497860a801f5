/* SPDX-License-Identifier: Apache-2.0 */
/* The peer of poll-bench: one atomic load behind a function call of a shared library. */
#include <stdint.h>

__attribute__((visibility("default"))) uint32_t bench_atomic_load(const uint32_t *word);

uint32_t bench_atomic_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}
