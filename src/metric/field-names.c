/* SPDX-License-Identifier: Apache-2.0 */
#include "field-names.h"

#include <math.h>

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == ' ' ? '_' : c;
}

static unsigned place_of(const char *const *names, const char *name, size_t size)
{
    for (unsigned k = 0; names[k]; k++) {
        size_t j = 0;
        while (j < size && names[k][j] && folded(name[j]) == names[k][j])
            j++;
        if (j == size && !names[k][j])
            return k + 1;
    }
    return 0;
}

unsigned kji_step_field(const char *name, size_t size)
{
    static const char *const names[] = {"step", "global_step", "_step", "iteration", "epoch", NULL};
    return place_of(names, name, size);
}

unsigned kji_time_field(const char *name, size_t size)
{
    static const char *const names[] = {"wall_time", "timestamp", "_timestamp", "time", NULL};
    return place_of(names, name, size);
}

bool kji_whole_step(double value, int64_t *ret_step)
{
    if (!(fabs(value) <= 0x1p53) || value != trunc(value))
        return false;
    *ret_step = (int64_t)value;
    return true;
}
