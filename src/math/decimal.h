/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decimal arithmetic on the shortest texts of doubles, with 28 digits as Python's decimal module
 * has them: what the upper end of a range with a step is computed with, so that 0 to 0.3 by 0.1
 * keeps its 0.3.
 */
#ifndef KJI_DECIMAL_H
#define KJI_DECIMAL_H

#include <stdbool.h>

/* The largest low + k * step that is <= high, for low <= high, step > 0, all finite. false when
 * there are more than 10^28 steps. */
bool kji_decimal_last_step(double low, double high, double step, double *ret_high);

/* high - low < step, in decimals. */
bool kji_decimal_range_below(double low, double high, double step);

#endif
