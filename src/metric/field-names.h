/* SPDX-License-Identifier: Apache-2.0 */
/* Which fields and columns are the step and the time, by their names; in any case, with blanks for
 * underscores. */
#ifndef KJI_FIELD_NAMES_H
#define KJI_FIELD_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KJI_MAX_FIELDS = 10000 }; /* of one line */

/* 0: it is not the step; else 1 for the name that is preferred, 2 for the next one, ... */
unsigned kji_step_field(const char *name, size_t size);

/* The same for the wall time. */
unsigned kji_time_field(const char *name, size_t size);

/* Whether a number is a step, as 10.0 is. */
bool kji_whole_step(double value, int64_t *ret_step);

#endif
