/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of this layer: the bytes of event files. */
#ifndef KJI_EVENT_MAKE_H
#define KJI_EVENT_MAKE_H

#include "event-frame.h"
#include "strbuf.h"

#include <stdint.h>

/* One record with an event of `n` simple values. Tags are shorter than 100 bytes. */
void kji_make_scalars(kji_strbuf *to, int64_t step, double wall_time, const char *const *tags,
                      const float *values, size_t n);
void kji_make_scalar(kji_strbuf *to, int64_t step, double wall_time, const char *tag, float value);

/* A field of bytes: its key, their number, and they. */
void kji_make_field(kji_strbuf *to, unsigned char key, const void *bytes, size_t size);

/* Pieces of a Summary.Value: its tag, metadata with the plugin of this name; and the value as it
 * is, which is emptied, as a field of a summary. */
void kji_make_tag(kji_strbuf *value, const char *tag);
void kji_make_plugin(kji_strbuf *value, const char *plugin);
void kji_make_value(kji_strbuf *summary, kji_strbuf *value);

/* One record with a value that is no number: `size` bytes under the key, 0 for none; plugin may be
 * NULL. */
void kji_make_blob(kji_strbuf *to, const char *tag, unsigned char key, size_t size,
                   const char *plugin);

/* The head of a record of `size` bytes, with the right checksum. */
void kji_make_head(unsigned char head[KJI_FRAME_HEAD], uint64_t size);

/* One record with an event whose summary is given as bytes, which are emptied. */
void kji_make_summary(kji_strbuf *to, int64_t step, double wall_time, kji_strbuf *summary);

/* One record with a session START. */
void kji_make_start(kji_strbuf *to, int64_t step);

/* Makes the file and the folders above it, or appends to it, and empties `bytes`. */
void kji_make_file(const char *path, kji_strbuf *bytes);

#endif
