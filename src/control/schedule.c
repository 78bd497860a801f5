/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include "errors.h"
#include "number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool parse_counter(const char *text, const char *prefix, int64_t *ret_n)
{
    size_t size = strlen(prefix);
    if (strncasecmp(text, prefix, size) != 0)
        return false;
    int64_t n;
    if (!kji_parse_int64(text + size, strlen(text + size), &n) || n < 0)
        return false;
    *ret_n = n;
    return true;
}

int kji_at_parse(const char *text, kji_at *ret_at, kj_error *err)
{
    kji_at at = {KJI_AT_NOW, 0};
    if (strcasecmp(text, "now") == 0)
        at.kind = KJI_AT_NOW;
    else if (strcasecmp(text, "epoch") == 0)
        at.kind = KJI_AT_CURRENT_EPOCH;
    else if (parse_counter(text, "step:", &at.n))
        at.kind = KJI_AT_STEP;
    else if (parse_counter(text, "epoch:", &at.n))
        at.kind = KJI_AT_EPOCH;
    else
        return kji_fail(err, KJ_EREJECTED,
                        "at=%.60s: it can be now, step:N, epoch or epoch:N, with N >= 0", text);
    *ret_at = at;
    return 0;
}

static double unit_ms(const char *unit)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++)
        if (strcasecmp(unit, units[k].name) == 0)
            return units[k].ms;
    return 0;
}

int kji_duration_parse(const char *text, int64_t *ret_ms, kj_error *err)
{
    size_t size = strspn(text, "0123456789.");
    double number, ms = 0;
    if (kji_parse_double(text, size, &number))
        ms = number * unit_ms(text + size);
    if (!(ms >= 1 && ms <= KJI_DURATION_DAYS_MAX * 86400e3))
        return kji_fail(err, KJ_EREJECTED,
                        "%.60s: a time is a number with s, m, h or d behind it, like 90s or 15m; "
                        "more than 0, and at most %d days",
                        *text ? text : "\"\"", KJI_DURATION_DAYS_MAX);
    *ret_ms = (int64_t)ms;
    return 0;
}

const char *kji_at_text(const kji_at *at, char text[KJI_AT_TEXT])
{
    switch (at->kind) {
    case KJI_AT_STEP:
    case KJI_AT_EPOCH:
        snprintf(text, KJI_AT_TEXT, "%s:%" PRId64, at->kind == KJI_AT_STEP ? "step" : "epoch",
                 at->n);
        return text;
    case KJI_AT_CURRENT_EPOCH:
        return "epoch";
    }
    return "now";
}

const char *kji_place_name(int kind)
{
    static const char *const names[] = {"poll", "step", "epoch"};
    return names[kind];
}

bool kji_at_is_due(const kji_at *at, const kji_place *place)
{
    switch (at->kind) {
    case KJI_AT_NOW:
        return true;
    case KJI_AT_STEP:
        return place->kind == KJI_PLACE_STEP_BEGIN && place->n >= at->n;
    }
    return place->kind == KJI_PLACE_EPOCH_END && place->n >= at->n;
}

bool kji_at_is_earlier(const kji_at *a, const kji_at *b)
{
    if (b->kind == KJI_AT_NOW)
        return false;
    if (a->kind == KJI_AT_NOW)
        return true;
    return (a->kind == KJI_AT_STEP) == (b->kind == KJI_AT_STEP) && a->n < b->n;
}
