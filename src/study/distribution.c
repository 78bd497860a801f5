/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One struct for all kinds; what differs between them is a switch in each function. Upper ends are
 * computed in decimals (src/math/decimal.h), membership in doubles with a tolerance: both as in
 * Optuna, so that the same range gives the same values there and here.
 */
#include "distribution.h"

#include "decimal.h"
#include "errors.h"
#include "mem.h"
#include "number.h"
#include "optuna-json.h"
#include "strbuf.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

static int check_float(kj_distribution *d, kj_error *err)
{
    char low[KJI_DOUBLE_TEXT], high[KJI_DOUBLE_TEXT];
    kji_double_text(d->low, low);
    kji_double_text(d->high, high);
    if (d->log && d->step != 0)
        return kji_fail(err, KJ_EARG, "a range can have log or a step, not both");
    if (d->low > d->high)
        return kji_fail(err, KJ_EARG, "low %s is above high %s", low, high);
    if (d->log && d->low <= 0)
        return kji_fail(err, KJ_EARG, "with log, low must be above 0; it is %s", low);
    if (d->step == 0)
        return 0;
    if (!(d->step > 0))
        return kji_fail(err, KJ_EARG, "the step must be above 0; it is %s",
                        kji_double_text(d->step, low));
    if (!isfinite(d->low) || !isfinite(d->high) || !isfinite(d->step))
        return kji_fail(err, KJ_EARG, "a range with a step must be finite; it is %s to %s", low,
                        high);
    if (!kji_decimal_last_step(d->low, d->high, d->step, &d->high))
        return kji_fail(err, KJ_EARG, "the range %s to %s has too many steps", low, high);
    return 0;
}

static int check_int(kj_distribution *d, kj_error *err)
{
    long long low = d->int_low, high = d->int_high;
    if (d->int_step == 0)
        d->int_step = 1;
    if (d->int_step < 0)
        return kji_fail(err, KJ_EARG, "the step must be at least 1; it is %lld",
                        (long long)d->int_step);
    if (d->log && d->int_step != 1)
        return kji_fail(err, KJ_EARG, "with log, the step must be 1; it is %lld",
                        (long long)d->int_step);
    if (low > high)
        return kji_fail(err, KJ_EARG, "low %lld is above high %lld", low, high);
    if (d->log && low < 1)
        return kji_fail(err, KJ_EARG, "with log, low must be at least 1; it is %lld", low);
    uint64_t range = (uint64_t)d->int_high - (uint64_t)d->int_low;
    d->int_high = (int64_t)((uint64_t)d->int_high - range % (uint64_t)d->int_step);
    return 0;
}

static int check_choices(const kj_distribution *d, kj_error *err)
{
    if (d->n_choices == 0 || !d->choices)
        return kji_fail(err, KJ_EARG, "a categorical parameter needs at least one choice");
    for (uint64_t k = 0; k < d->n_choices; k++)
        if (d->choices[k].type == KJ_TYPE_STRING && d->choices[k].s &&
            !kji_utf8_valid(d->choices[k].s, strlen(d->choices[k].s)))
            return kji_fail(err, KJ_EARG, "choice %llu is not UTF-8", (unsigned long long)k);
    return 0;
}

static int check_kind(kj_distribution *d, kj_error *err)
{
    switch (d->kind) {
    case KJ_DISTRIBUTION_FLOAT:
        return check_float(d, err);
    case KJ_DISTRIBUTION_INT:
        return check_int(d, err);
    case KJ_DISTRIBUTION_CATEGORICAL:
        return check_choices(d, err);
    default:
        return kji_fail(err, KJ_EARG, "%d is no kind of distribution", (int)d->kind);
    }
}

/* Copies the choices with their strings into one block. */
static kj_value *copy_choices(const kj_value *from, uint64_t n)
{
    size_t text_size = 0;
    for (uint64_t k = 0; k < n; k++)
        if (from[k].type == KJ_TYPE_STRING && from[k].s)
            text_size += strlen(from[k].s) + 1;
    kj_value *copy = malloc(n * sizeof *copy + text_size);
    if (!copy)
        return NULL;
    char *text = (char *)(copy + n);
    for (uint64_t k = 0; k < n; k++) {
        copy[k] = from[k];
        if (from[k].type != KJ_TYPE_STRING)
            continue;
        copy[k].s = "";
        if (from[k].s) {
            copy[k].s = text;
            text = stpcpy(text, from[k].s) + 1;
        }
    }
    return copy;
}

int kji_distribution_new(const kj_distribution *from, kji_distribution **ret, kj_error *err)
{
    kj_distribution checked = *from;
    int r = check_kind(&checked, err);
    if (r < 0)
        return r;
    kji_distribution *d = calloc(1, sizeof *d);
    if (!d)
        return kji_fail_memory(err);
    d->is = checked;
    d->refs = 1;
    d->class_id = checked.kind == KJ_DISTRIBUTION_FLOAT ? KJI_CLASS_FLOAT
                  : checked.kind == KJ_DISTRIBUTION_INT ? KJI_CLASS_INT
                                                        : KJI_CLASS_CATEGORICAL;
    if (checked.kind != KJ_DISTRIBUTION_CATEGORICAL) {
        d->is.choices = NULL;
        d->is.n_choices = 0;
    } else if (!(d->is.choices = copy_choices(checked.choices, checked.n_choices))) {
        free(d);
        return kji_fail_memory(err);
    }
    *ret = d;
    return 0;
}

kji_distribution *kji_distribution_ref(const kji_distribution *distribution)
{
    kji_distribution *d = (kji_distribution *)distribution;
    d->refs++;
    return d;
}

void kji_distribution_unref(kji_distribution *distribution)
{
    if (!distribution || --distribution->refs > 0)
        return;
    free((void *)distribution->is.choices);
    free(distribution);
}

static bool is_number(const kj_value *v)
{
    return v->type == KJ_TYPE_BOOL || v->type == KJ_TYPE_INT || v->type == KJ_TYPE_FLOAT;
}

static double number_of(const kj_value *v)
{
    return v->type == KJ_TYPE_FLOAT ? v->f : (double)v->i;
}

/* As Python's ==, with NaN equal to NaN. */
static bool choices_equal(const kj_value *a, const kj_value *b)
{
    if (is_number(a) && is_number(b)) {
        if (a->type != KJ_TYPE_FLOAT && b->type != KJ_TYPE_FLOAT)
            return a->i == b->i;
        double x = number_of(a), y = number_of(b);
        return x == y || (isnan(x) && isnan(y));
    }
    if (a->type != b->type)
        return false;
    return a->type != KJ_TYPE_STRING || strcmp(a->s ? a->s : "", b->s ? b->s : "") == 0;
}

static char *value_text(const kj_value *value)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    kji_optuna_json_value(&text, value);
    return kji_strbuf_take(&text);
}

static int refuse_value(const kj_value *value, const char *why, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = value_text(value);
    return kji_fail(err, KJ_EARG, "the value %s %s", text ? text : "", why);
}

static int choice_to_internal(const kji_distribution *d, const kj_value *value,
                              double *ret_internal, kj_error *err)
{
    for (uint64_t k = 0; k < d->is.n_choices; k++) {
        if (choices_equal(&d->is.choices[k], value)) {
            *ret_internal = (double)k;
            return 0;
        }
    }
    KJI_CLEANUP(kji_freep) char *text = value_text(value);
    KJI_CLEANUP(kji_freep) char *json = kji_distribution_text(d);
    return kji_fail(err, KJ_EARG, "the value %s is not among the choices of %s", text ? text : "",
                    json ? json : "");
}

int kji_distribution_to_internal(const kji_distribution *distribution, const kj_value *value,
                                 double *ret_internal, kj_error *err)
{
    if (distribution->is.kind == KJ_DISTRIBUTION_CATEGORICAL)
        return choice_to_internal(distribution, value, ret_internal, err);
    double number;
    if (is_number(value))
        number = number_of(value);
    else if (value->type != KJ_TYPE_STRING || !value->s ||
             !kji_parse_double(value->s, strlen(value->s), &number))
        return refuse_value(value, "is not a number", err);
    if (isnan(number))
        return refuse_value(value, "is not a number", err);
    if (distribution->is.log && number <= 0)
        return refuse_value(value, "is not above 0, as a log range demands", err);
    *ret_internal = number;
    return 0;
}

/* Truncated, and cut to what fits. */
static int64_t to_int64(double value)
{
    if (!(value > -9223372036854775808.0))
        return INT64_MIN;
    return value < 9223372036854775808.0 ? (int64_t)value : INT64_MAX;
}

int kji_distribution_to_external(const kji_distribution *distribution, double internal,
                                 kj_value *ret_value, kj_error *err)
{
    kj_value value = {0};
    switch (distribution->is.kind) {
    case KJ_DISTRIBUTION_FLOAT:
        value.type = KJ_TYPE_FLOAT;
        value.f = internal;
        break;
    case KJ_DISTRIBUTION_INT:
        value.type = KJ_TYPE_INT;
        value.i = to_int64(internal);
        break;
    default:
        if (!kji_distribution_contains(distribution, internal)) {
            char text[KJI_DOUBLE_TEXT];
            return kji_fail(err, KJ_EDATA, "%s is the index of none of %llu choices",
                            kji_double_text(internal, text),
                            (unsigned long long)distribution->is.n_choices);
        }
        value = distribution->is.choices[(uint64_t)internal];
    }
    *ret_value = value;
    return 0;
}

bool kji_distribution_contains(const kji_distribution *distribution, double internal)
{
    const kj_distribution *d = &distribution->is;
    switch (d->kind) {
    case KJ_DISTRIBUTION_FLOAT: {
        if (!(d->low <= internal && internal <= d->high))
            return false;
        double k = d->step != 0 ? (internal - d->low) / d->step : 0;
        return fabs(k - rint(k)) < 1e-8;
    }
    case KJ_DISTRIBUTION_INT: {
        double low = (double)d->int_low;
        return low <= internal && internal <= (double)d->int_high &&
               fmod(internal - low, (double)d->int_step) == 0;
    }
    default:
        return internal > -1 && internal < (double)d->n_choices;
    }
}

bool kji_distribution_is_single(const kji_distribution *distribution)
{
    const kj_distribution *d = &distribution->is;
    switch (d->kind) {
    case KJ_DISTRIBUTION_FLOAT:
        return d->low == d->high ||
               (d->step != 0 && kji_decimal_range_below(d->low, d->high, d->step));
    case KJ_DISTRIBUTION_INT:
        return d->int_low == d->int_high;
    default:
        return d->n_choices == 1;
    }
}

double kji_distribution_first(const kji_distribution *distribution)
{
    const kj_distribution *d = &distribution->is;
    return d->kind == KJ_DISTRIBUTION_FLOAT ? d->low
           : d->kind == KJ_DISTRIBUTION_INT ? (double)d->int_low
                                            : 0;
}

static bool same_choices(const kj_distribution *a, const kj_distribution *b)
{
    if (a->n_choices != b->n_choices)
        return false;
    for (uint64_t k = 0; k < a->n_choices; k++)
        if (!choices_equal(&a->choices[k], &b->choices[k]))
            return false;
    return true;
}

int kji_distribution_check_compatible(const char *name, const kji_distribution *old,
                                      const kji_distribution *wanted, kj_error *err)
{
    const char *what = NULL;
    if (old->class_id != wanted->class_id)
        what = "another kind of distribution";
    else if (old->is.kind == KJ_DISTRIBUTION_CATEGORICAL && !same_choices(&old->is, &wanted->is))
        what = "other choices (they cannot change within a study)";
    else if (old->is.log != wanted->is.log)
        what = "another log setting";
    if (!what)
        return 0;
    KJI_CLEANUP(kji_freep) char *text = kji_distribution_text(old);
    return kji_fail(err, KJ_EARG, "parameter \"%s\" has %s than in this study, where it is %s",
                    name, what, text ? text : "");
}
