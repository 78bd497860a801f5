/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KJI_CLOCK_H
#define KJI_CLOCK_H

#include <stdint.h>

/* Monotonic, for time-outs; unaffected by the clock being set. */
int64_t kji_monotonic_ms(void);
int64_t kji_monotonic_ns(void);

/* The same, some milliseconds late, for a fraction of the cost. */
int64_t kji_coarse_ms(void);

/* Seconds since 1970, for people and records. */
double kji_wall_time(void);

#endif
