/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from outside is UTF-8 or is refused; what we pass on of the host is made so. */
#ifndef KJI_UTF8_H
#define KJI_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

/* The character that `text` begins with, of `size` > 0 bytes: its length, or 0 when it is none. No
 * overlong forms, no surrogates, nothing above U+10FFFF. */
size_t kji_utf8_decode(const char *text, size_t size, uint32_t *ret_code);

bool kji_utf8_valid(const char *text, size_t size);

/*
 * A JSON string of at most `limit` bytes of `text` (NULL = ""), with U+FFFD for every byte that is
 * not UTF-8 and a blank for every control byte. NULL when memory is gone.
 */
struct json_object *kji_json_new_text(const char *text, size_t limit);

/* The same for a text with its size. */
struct json_object *kji_json_new_text_len(const char *text, size_t size);

#endif
