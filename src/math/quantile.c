/* SPDX-License-Identifier: Apache-2.0 */
/* Method 7 of Hyndman and Fan, "Sample quantiles in statistical packages", 1996, in NumPy's order
 * of operations. */
#include "quantile.h"

#include <math.h>

double kji_percentile_sorted(const double *sorted, size_t n, double percent)
{
    if (n == 0)
        return NAN;
    double position = (double)(n - 1) * (percent / 100);
    double below = floor(position);
    size_t low = (size_t)below, high = low + 1;
    if (position >= (double)(n - 1))
        low = high = n - 1;
    double a = sorted[low], b = sorted[high];
    double weight = position - below;
    double difference = b - a; /* NaN for two equal infinities, as in NumPy */
    return weight >= 0.5 ? b - difference * (1 - weight) : a + difference * weight;
}
