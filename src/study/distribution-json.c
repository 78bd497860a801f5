/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributions as Optuna writes them into a study: {"name": CLASS, "attributes": {…}}. Read are
 * also the five classes that Optuna has given up, and the short form {"type": …}; an old class
 * stays what it is when it is written again.
 */
#include "distribution.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "optuna-json.h"
#include "strbuf.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

static const char *const class_names[] = {
    [KJI_CLASS_FLOAT] = "FloatDistribution",
    [KJI_CLASS_INT] = "IntDistribution",
    [KJI_CLASS_CATEGORICAL] = "CategoricalDistribution",
    [KJI_CLASS_UNIFORM] = "UniformDistribution",
    [KJI_CLASS_LOG_UNIFORM] = "LogUniformDistribution",
    [KJI_CLASS_DISCRETE_UNIFORM] = "DiscreteUniformDistribution",
    [KJI_CLASS_INT_UNIFORM] = "IntUniformDistribution",
    [KJI_CLASS_INT_LOG_UNIFORM] = "IntLogUniformDistribution",
};

enum { N_CLASSES = sizeof class_names / sizeof *class_names };

static const int32_t class_kinds[] = {
    [KJI_CLASS_FLOAT] = KJ_DISTRIBUTION_FLOAT,
    [KJI_CLASS_INT] = KJ_DISTRIBUTION_INT,
    [KJI_CLASS_CATEGORICAL] = KJ_DISTRIBUTION_CATEGORICAL,
    [KJI_CLASS_UNIFORM] = KJ_DISTRIBUTION_FLOAT,
    [KJI_CLASS_LOG_UNIFORM] = KJ_DISTRIBUTION_FLOAT,
    [KJI_CLASS_DISCRETE_UNIFORM] = KJ_DISTRIBUTION_FLOAT,
    [KJI_CLASS_INT_UNIFORM] = KJ_DISTRIBUTION_INT,
    [KJI_CLASS_INT_LOG_UNIFORM] = KJ_DISTRIBUTION_INT,
};

static bool get_int(struct json_object *json, int64_t *ret_value)
{
    if (json_object_is_type(json, json_type_double)) {
        double value = json_object_get_double(json);
        if (!(fabs(value) < 9e18))
            return false;
        *ret_value = (int64_t)value;
        return true;
    }
    *ret_value = json_object_get_int64(json);
    return json_object_is_type(json, json_type_int);
}

static bool get_number(struct json_object *json, double *ret_value)
{
    *ret_value = json_object_get_double(json);
    return json_object_is_type(json, json_type_double) || json_object_is_type(json, json_type_int);
}

/* One attribute into *d; false when it is not of a type that the class takes. */
static bool take_attribute(int class_id, const char *key, struct json_object *json,
                           kj_distribution *d)
{
    bool is_int = class_kinds[class_id] == KJ_DISTRIBUTION_INT;
    if (strcmp(key, "low") == 0)
        return is_int ? get_int(json, &d->int_low) : get_number(json, &d->low);
    if (strcmp(key, "high") == 0)
        return is_int ? get_int(json, &d->int_high) : get_number(json, &d->high);
    if (strcmp(key, "q") == 0)
        return class_id == KJI_CLASS_DISCRETE_UNIFORM && get_number(json, &d->step);
    if (strcmp(key, "step") == 0) {
        if (is_int)
            return get_int(json, &d->int_step) && d->int_step != 0;
        if (class_id != KJI_CLASS_FLOAT)
            return false;
        return json ? get_number(json, &d->step) && d->step != 0 : true;
    }
    if (strcmp(key, "log") == 0) {
        d->log = json_object_get_boolean(json);
        return class_id <= KJI_CLASS_INT && json_object_is_type(json, json_type_boolean);
    }
    return false;
}

/* A nested choice, which Optuna warns about and reads back as a list, is kept as its text. */
static int take_choices(struct json_object *array, kj_distribution *d, kj_error *err)
{
    size_t n = json_object_array_length(array);
    kj_value *choices = calloc(n ? n : 1, sizeof *choices);
    if (!choices)
        return kji_fail_memory(err);
    for (size_t k = 0; k < n; k++) {
        struct json_object *choice = json_object_array_get_idx(array, k);
        if (!kji_json_get_value(choice, &choices[k])) {
            choices[k].type = KJ_TYPE_STRING;
            choices[k].s = json_object_to_json_string_ext(choice, JSON_C_TO_STRING_SPACED);
        }
    }
    d->choices = choices;
    d->n_choices = n;
    return 0;
}

static int take_attributes(int class_id, struct json_object *attributes, bool short_form,
                           kj_distribution *d, kj_error *err)
{
    bool has_low = false, has_high = false;
    json_object_object_foreach(attributes, key, json)
    {
        if (short_form && strcmp(key, "type") == 0)
            continue;
        if (class_id == KJI_CLASS_CATEGORICAL) {
            if (strcmp(key, "choices") != 0 || !json_object_is_type(json, json_type_array))
                return kji_fail(err, KJ_EDATA, "%s: attribute \"%s\" is not understood",
                                class_names[class_id], key);
            int r = d->choices ? 0 : take_choices(json, d, err);
            if (r < 0)
                return r;
            continue;
        }
        if (!take_attribute(class_id, key, json, d))
            return kji_fail(err, KJ_EDATA, "%s: attribute \"%s\" is not understood",
                            class_names[class_id], key);
        has_low |= strcmp(key, "low") == 0;
        has_high |= strcmp(key, "high") == 0;
    }
    if (class_id != KJI_CLASS_CATEGORICAL && !(has_low && has_high))
        return kji_fail(err, KJ_EDATA, "%s: low or high is missing", class_names[class_id]);
    if (class_id == KJI_CLASS_DISCRETE_UNIFORM && !(d->step > 0))
        return kji_fail(err, KJ_EDATA, "%s: q is missing or not above 0", class_names[class_id]);
    return 0;
}

/* Which class the object is about, and where its attributes are. */
static int find_class(struct json_object *json, struct json_object **ret_attributes,
                      bool *ret_short_form, kj_error *err)
{
    const char *name = kji_json_string(json, "name"), *type = kji_json_string(json, "type");
    *ret_short_form = !name;
    if (name) {
        if (!json_object_object_get_ex(json, "attributes", ret_attributes) ||
            !json_object_is_type(*ret_attributes, json_type_object))
            return kji_fail(err, KJ_EDATA, "a distribution without attributes");
        for (int k = 0; k < N_CLASSES; k++)
            if (strcmp(name, class_names[k]) == 0)
                return k;
        return kji_fail(err, KJ_EDATA, "unknown distribution class \"%s\"", name);
    }
    *ret_attributes = json;
    static const char *const types[] = {"float", "int", "categorical"};
    for (int k = 0; type && k < 3; k++)
        if (strcmp(type, types[k]) == 0)
            return k;
    return kji_fail(err, KJ_EDATA, "a distribution without name, or of unknown type");
}

static int from_json(struct json_object *json, kji_distribution **ret, kj_error *err)
{
    if (!json_object_is_type(json, json_type_object))
        return kji_fail(err, KJ_EDATA, "a distribution must be a JSON object");
    struct json_object *attributes;
    bool short_form;
    int class_id = find_class(json, &attributes, &short_form, err);
    if (class_id < 0)
        return class_id;
    kj_distribution d = {.size = sizeof d, .kind = class_kinds[class_id]};
    d.log = class_id == KJI_CLASS_LOG_UNIFORM || class_id == KJI_CLASS_INT_LOG_UNIFORM;
    int r = take_attributes(class_id, attributes, short_form, &d, err);
    if (r == 0) {
        r = kji_distribution_new(&d, ret, err);
        if (r == KJ_EARG) {
            r = KJ_EDATA;
            if (err)
                err->code = KJ_EDATA;
        }
        if (r == 0)
            (*ret)->class_id = class_id;
    }
    free((void *)d.choices);
    return r;
}

int kji_distribution_parse(const char *json, kji_distribution **ret, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *object = NULL;
    if (!kji_utf8_valid(json, strlen(json)))
        return kji_fail(err, KJ_EDATA, "a distribution's text must be UTF-8");
    int r = kji_json_parse(json, strlen(json), &object, err);
    return r < 0 ? r : from_json(object, ret, err);
}

static void put_bounds(kji_strbuf *out, const kji_distribution *d)
{
    if (d->is.kind == KJ_DISTRIBUTION_INT) {
        kji_strbuf_printf(out, "\"low\": %lld, \"high\": %lld", (long long)d->is.int_low,
                          (long long)d->is.int_high);
        return;
    }
    kji_strbuf_puts(out, "\"low\": ");
    kji_optuna_json_double(out, d->is.low);
    kji_strbuf_puts(out, ", \"high\": ");
    kji_optuna_json_double(out, d->is.high);
}

static void put_attributes(kji_strbuf *out, const kji_distribution *d)
{
    const char *log = d->is.log ? "true" : "false";
    switch (d->class_id) {
    case KJI_CLASS_FLOAT:
        kji_strbuf_puts(out, "\"step\": ");
        if (d->is.step == 0)
            kji_strbuf_puts(out, "null");
        else
            kji_optuna_json_double(out, d->is.step);
        kji_strbuf_puts(out, ", ");
        put_bounds(out, d);
        kji_strbuf_printf(out, ", \"log\": %s", log);
        break;
    case KJI_CLASS_INT:
        kji_strbuf_printf(out, "\"log\": %s, \"step\": %lld, ", log, (long long)d->is.int_step);
        put_bounds(out, d);
        break;
    case KJI_CLASS_INT_UNIFORM:
    case KJI_CLASS_INT_LOG_UNIFORM:
        kji_strbuf_printf(out, "\"step\": %lld, ", (long long)d->is.int_step);
        put_bounds(out, d);
        break;
    case KJI_CLASS_CATEGORICAL:
        kji_strbuf_puts(out, "\"choices\": [");
        for (uint64_t k = 0; k < d->is.n_choices; k++) {
            if (k > 0)
                kji_strbuf_puts(out, ", ");
            kji_optuna_json_value(out, &d->is.choices[k]);
        }
        kji_strbuf_putc(out, ']');
        break;
    default:
        put_bounds(out, d);
        if (d->class_id == KJI_CLASS_DISCRETE_UNIFORM) {
            kji_strbuf_puts(out, ", \"q\": ");
            kji_optuna_json_double(out, d->is.step);
        }
    }
}

char *kji_distribution_text(const kji_distribution *distribution)
{
    kji_strbuf out = KJI_STRBUF_INIT;
    kji_strbuf_printf(&out, "{\"name\": \"%s\", \"attributes\": {",
                      class_names[distribution->class_id]);
    put_attributes(&out, distribution);
    kji_strbuf_puts(&out, "}}");
    return kji_strbuf_take(&out);
}
