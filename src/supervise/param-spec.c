/* SPDX-License-Identifier: Apache-2.0 */
#include "param-spec.h"

#include "errors.h"
#include "mem.h"
#include "number.h"
#include "strbuf.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char grammar[] = "expected NAME=LO..HI[:int][:log][:step=S] or NAME=a|b|c";

enum { MAX_NAME = 64, MAX_CHOICES = 10000 };

static bool is_name(const char *text, size_t size)
{
    if (size == 0 || size > MAX_NAME || !(isalpha((unsigned char)*text) || *text == '_'))
        return false;
    for (size_t k = 0; k < size; k++)
        if (!isalnum((unsigned char)text[k]) && !memchr("_-.", text[k], 3))
            return false;
    return true;
}

/* One ":option" of a range. Returns false when there is none of this name. */
static bool take_option(kj_distribution *dist, const char *option, size_t size, const char **step,
                        size_t *step_size)
{
    if (size == 3 && memcmp(option, "int", 3) == 0) {
        dist->kind = KJ_DISTRIBUTION_INT;
    } else if (size == 3 && memcmp(option, "log", 3) == 0) {
        dist->log = 1;
    } else if (size > 5 && memcmp(option, "step=", 5) == 0) {
        *step = option + 5;
        *step_size = size - 5;
    } else {
        return false;
    }
    return true;
}

static int parse_double(const char *text, size_t size, const char *spec, double *ret_value,
                        kj_error *err)
{
    double value;
    if (!kji_parse_double(text, size, &value) || !isfinite(value))
        return kji_fail(err, KJ_EARG, "parameter \"%s\": \"%.*s\" is not a number", spec, (int)size,
                        text);
    *ret_value = value;
    return 0;
}

static int parse_int(const char *text, size_t size, const char *spec, int64_t *ret_value,
                     kj_error *err)
{
    if (!kji_parse_int64(text, size, ret_value))
        return kji_fail(err, KJ_EARG, "parameter \"%s\": \"%.*s\" is not an integer, as :int wants",
                        spec, (int)size, text);
    return 0;
}

static int check_range(const kj_distribution *dist, bool has_step, const char *spec, kj_error *err)
{
    bool is_int = dist->kind == KJ_DISTRIBUTION_INT;
    if (is_int ? dist->int_low > dist->int_high : dist->low > dist->high)
        return kji_fail(err, KJ_EARG, "parameter \"%s\": the lower end is above the upper end",
                        spec);
    if (dist->log && (is_int ? dist->int_low < 1 : dist->low <= 0))
        return kji_fail(err, KJ_EARG, "parameter \"%s\": with :log the lower end must be %s", spec,
                        is_int ? "at least 1" : "above 0");
    if (dist->log && has_step)
        return kji_fail(err, KJ_EARG, "parameter \"%s\": :log and :step exclude each other", spec);
    if (has_step && (is_int ? dist->int_step < 1 : dist->step <= 0))
        return kji_fail(err, KJ_EARG, "parameter \"%s\": the step must be above 0", spec);
    return 0;
}

static int parse_range(const char *spec, const char *body, kj_distribution *dist, kj_error *err)
{
    const char *dots = strstr(body, "..");
    const char *high = dots + 2;
    size_t high_size = strcspn(high, ":");
    const char *step = NULL;
    size_t step_size = 0;
    dist->kind = KJ_DISTRIBUTION_FLOAT;
    for (const char *option = high + high_size; *option == ':';) {
        size_t size = strcspn(++option, ":");
        if (!take_option(dist, option, size, &step, &step_size))
            return kji_fail(err, KJ_EARG,
                            "parameter \"%s\": unknown option \"%.*s\"; known: int, log, step=S",
                            spec, (int)size, option);
        option += size;
    }
    size_t low_size = (size_t)(dots - body);
    int r;
    if (dist->kind == KJ_DISTRIBUTION_INT) {
        r = parse_int(body, low_size, spec, &dist->int_low, err);
        if (r >= 0)
            r = parse_int(high, high_size, spec, &dist->int_high, err);
        if (r >= 0 && step)
            r = parse_int(step, step_size, spec, &dist->int_step, err);
    } else {
        r = parse_double(body, low_size, spec, &dist->low, err);
        if (r >= 0)
            r = parse_double(high, high_size, spec, &dist->high, err);
        if (r >= 0 && step)
            r = parse_double(step, step_size, spec, &dist->step, err);
    }
    return r < 0 ? r : check_range(dist, step != NULL, spec, err);
}

static void free_choices(kj_value *choices, size_t n)
{
    for (size_t k = 0; k < n; k++)
        free((char *)choices[k].s);
    free(choices);
}

/* All integers, else all numbers, else texts. Texts that became numbers are given back. */
static void settle_types(kj_value *choices, size_t n)
{
    bool all_int = true, all_float = true;
    for (size_t k = 0; k < n; k++) {
        size_t size = strlen(choices[k].s);
        all_int = all_int && kji_parse_int64(choices[k].s, size, &choices[k].i);
        all_float = all_float && kji_parse_double(choices[k].s, size, &choices[k].f) &&
                    isfinite(choices[k].f);
    }
    for (size_t k = 0; k < n; k++) {
        choices[k].type = all_int ? KJ_TYPE_INT : all_float ? KJ_TYPE_FLOAT : KJ_TYPE_STRING;
        if (choices[k].type != KJ_TYPE_STRING) {
            free((char *)choices[k].s);
            choices[k].s = NULL;
        }
    }
}

static bool same_choice(const kj_value *a, const kj_value *b)
{
    if (a->type == KJ_TYPE_STRING)
        return strcmp(a->s, b->s) == 0;
    return a->type == KJ_TYPE_INT ? a->i == b->i : a->f == b->f;
}

static int check_choices(const char *spec, const kj_value *choices, size_t n, kj_error *err)
{
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < k; j++)
            if (same_choice(&choices[j], &choices[k]))
                return kji_fail(err, KJ_EARG, "parameter \"%s\": choice %zu is there twice", spec,
                                k + 1);
    return 0;
}

static int parse_choices(const char *spec, const char *body, kj_distribution *dist, kj_error *err)
{
    size_t n = 1;
    for (const char *at = body; *at; at++)
        n += *at == '|';
    if (n > MAX_CHOICES)
        return kji_fail(err, KJ_EARG, "parameter \"%.40s…\": more than %d choices", spec,
                        (int)MAX_CHOICES);
    kj_value *choices = calloc(n, sizeof *choices);
    if (!choices)
        return kji_fail_memory(err);
    const char *at = body;
    int r = 0;
    for (size_t k = 0; k < n && r >= 0; k++) {
        size_t size = strcspn(at, "|");
        if (size == 0)
            r = kji_fail(err, KJ_EARG, "parameter \"%s\": choice %zu is empty", spec, k + 1);
        else if (!(choices[k].s = strndup(at, size)))
            r = kji_fail_memory(err);
        at += size + 1;
    }
    if (r >= 0) {
        settle_types(choices, n);
        r = check_choices(spec, choices, n, err);
    }
    if (r < 0) {
        free_choices(choices, n);
        return r;
    }
    dist->kind = KJ_DISTRIBUTION_CATEGORICAL;
    dist->choices = choices;
    dist->n_choices = n;
    return 0;
}

int kji_param_spec_parse(const char *text, kji_param_spec *ret_spec, kj_error *err)
{
    size_t name_size = strcspn(text, "=");
    if (text[name_size] != '=')
        return kji_fail(err, KJ_EARG, "parameter \"%s\": no \"=\"; %s", text, grammar);
    if (!is_name(text, name_size))
        return kji_fail(err, KJ_EARG,
                        "parameter \"%s\": a name is a letter or \"_\", then letters, digits, "
                        "\"_\", \"-\", \".\", at most %d bytes",
                        text, (int)MAX_NAME);
    const char *body = text + name_size + 1;
    kji_param_spec spec = {.distribution = {.size = sizeof(kj_distribution)}};
    int r;
    if (strchr(body, '|'))
        r = parse_choices(text, body, &spec.distribution, err);
    else if (strstr(body, ".."))
        r = parse_range(text, body, &spec.distribution, err);
    else
        r = kji_fail(err, KJ_EARG, "parameter \"%s\": neither a range nor choices; %s", text,
                     grammar);
    if (r < 0)
        return r;
    spec.name = strndup(text, name_size);
    if (!spec.name) {
        kji_param_spec_done(&spec);
        return kji_fail_memory(err);
    }
    *ret_spec = spec;
    return 0;
}

void kji_param_spec_done(kji_param_spec *spec)
{
    free(spec->name);
    free_choices((kj_value *)spec->distribution.choices, spec->distribution.n_choices);
    *spec = (kji_param_spec){0};
}

char *kji_value_text(const kj_value *value)
{
    char number[KJI_DOUBLE_TEXT];
    switch (value->type) {
    case KJ_TYPE_BOOL:
        return strdup(value->i ? "true" : "false");
    case KJ_TYPE_INT:
        return kji_format("%" PRId64, value->i);
    case KJ_TYPE_FLOAT:
        return strdup(kji_double_text(value->f, number));
    case KJ_TYPE_STRING:
        return strdup(value->s);
    default:
        return strdup("");
    }
}

static void add_range(kji_strbuf *out, const kj_distribution *dist)
{
    char low[KJI_DOUBLE_TEXT], high[KJI_DOUBLE_TEXT], step[KJI_DOUBLE_TEXT];
    if (dist->kind == KJ_DISTRIBUTION_INT) {
        kji_strbuf_printf(out, "%" PRId64 "..%" PRId64 ":int", dist->int_low, dist->int_high);
        if (dist->int_step > 1)
            kji_strbuf_printf(out, ":step=%" PRId64, dist->int_step);
    } else {
        kji_strbuf_printf(out, "%s..%s", kji_double_text(dist->low, low),
                          kji_double_text(dist->high, high));
        if (dist->step > 0)
            kji_strbuf_printf(out, ":step=%s", kji_double_text(dist->step, step));
    }
    if (dist->log)
        kji_strbuf_puts(out, ":log");
}

char *kji_param_spec_text(const kji_param_spec *spec)
{
    kji_strbuf out = KJI_STRBUF_INIT;
    const kj_distribution *dist = &spec->distribution;
    if (dist->kind != KJ_DISTRIBUTION_CATEGORICAL)
        add_range(&out, dist);
    for (uint64_t k = 0; k < dist->n_choices; k++) {
        KJI_CLEANUP(kji_freep) char *text = kji_value_text(&dist->choices[k]);
        if (!text)
            out.failed = true;
        else
            kji_strbuf_printf(&out, "%s%s", k ? "|" : "", text);
    }
    return kji_strbuf_take(&out);
}
