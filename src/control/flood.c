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

static void forget(kji_flood *flood, int64_t now_ms)
{
    int64_t n = (now_ms - flood->forgotten_ms) * KJI_FLOOD_PER_S / 1000;
    flood->n_taken = n < flood->n_taken ? flood->n_taken - n : 0;
    flood->forgotten_ms = now_ms;
}

void kji_flood_take(kji_flood *flood, int64_t now_ms, int64_t n_lines)
{
    forget(flood, now_ms);
    flood->n_taken += n_lines;
}

int64_t kji_flood_rest_ms(kji_flood *flood, int64_t now_ms)
{
    forget(flood, now_ms);
    int64_t surplus = flood->n_taken - KJI_FLOOD_BURST;
    return surplus > 0 ? (surplus * 1000 + KJI_FLOOD_PER_S - 1) / KJI_FLOOD_PER_S : 0;
}

int64_t kji_flood_tell_ms(const kji_flood *flood)
{
    return flood->n_hidden ? flood->hidden_since + KJI_FLOOD_TELL_MS : INT64_MAX;
}
