/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <time.h>

static int64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t kji_monotonic_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t kji_monotonic_ms(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t kji_coarse_ms(void)
{
    return read_ns(CLOCK_MONOTONIC_COARSE) / 1000000;
}

double kji_wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
