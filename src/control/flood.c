/* SPDX-License-Identifier: Apache-2.0 */
#include "flood.h"

#include <stdio.h>

static void refill(kji_flood *flood, int64_t now_ms)
{
    int64_t seconds = (now_ms - flood->refilled_ms) / 1000;
    if (flood->n_used == 0 || seconds >= flood->n_used) {
        flood->n_used = 0;
        flood->refilled_ms = now_ms;
    } else {
        flood->n_used -= (int)seconds;
        flood->refilled_ms += seconds * 1000;
    }
}

bool kji_flood_admits(kji_flood *flood, int64_t now_ms, const char *text)
{
    refill(flood, now_ms);
    if (!kji_flood_is_on(flood)) {
        flood->n_used++;
        return true;
    }
    if (flood->n_hidden++ == 0)
        flood->hidden_since = now_ms;
    snprintf(flood->text, sizeof flood->text, "%s", text);
    return false;
}

bool kji_flood_is_on(const kji_flood *flood)
{
    return flood->n_used >= KJI_FLOOD_LINES;
}

int64_t kji_flood_tell_ms(const kji_flood *flood)
{
    return flood->n_hidden ? flood->hidden_since + KJI_FLOOD_TELL_MS : INT64_MAX;
}
