/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KJI_QUANTILE_H
#define KJI_QUANTILE_H

#include <stddef.h>

/*
 * The `percent`-percentile (0 to 100) of n values in ascending order, without NaN, by linear
 * interpolation, bit for bit as numpy.percentile: also NaN where NumPy's arithmetic meets
 * infinity - infinity. NaN when n is 0.
 */
double kji_percentile_sorted(const double *sorted, size_t n, double percent);

#endif
