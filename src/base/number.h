/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and texts, whatever the locale of the host process. */
#ifndef KJI_NUMBER_H
#define KJI_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KJI_DOUBLE_TEXT = 32 }; /* room for any text of kji_double_text */

/*
 * The shortest decimal text that reads back to the same double, as Python's repr: "0.1", "1e-05",
 * "5.0", "nan", "inf", "-inf". Returns `text`.
 */
char *kji_double_text(double value, char text[KJI_DOUBLE_TEXT]);

/* The whole text must be the number (no blanks around); hexadecimal is not accepted, "nan" and
 * "inf" in any case are. */
bool kji_parse_double(const char *text, size_t size, double *ret_value);
bool kji_parse_int64(const char *text, size_t size, int64_t *ret_value);

#endif
