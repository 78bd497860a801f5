/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of this layer: the bytes of event files. */
#ifndef KJI_EVENT_MAKE_H
#define KJI_EVENT_MAKE_H

#include "strbuf.h"

#include <stdint.h>

/* One record with an event of `n` simple values. Tags are shorter than 100 bytes. */
void kji_make_scalars(kji_strbuf *to, int64_t step, double wall_time, const char *const *tags,
                      const float *values, size_t n);
void kji_make_scalar(kji_strbuf *to, int64_t step, double wall_time, const char *tag, float value);

/* One record with a session START. */
void kji_make_start(kji_strbuf *to, int64_t step);

/* Makes the file and the folders above it, or appends to it, and empties `bytes`. */
void kji_make_file(const char *path, kji_strbuf *bytes);

#endif
