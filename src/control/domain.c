/* SPDX-License-Identifier: Apache-2.0 */
#include "domain.h"

#include "errors.h"
#include "json.h"
#include "mask.h"
#include "number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *kji_type_name(int type)
{
    switch (type) {
    case KJ_TYPE_BOOL:
        return "bool";
    case KJ_TYPE_INT:
        return "int";
    case KJ_TYPE_FLOAT:
        return "float";
    case KJ_TYPE_STRING:
        return "string";
    }
    return "none";
}

int kji_domain_check(const kji_domain *domain, const char *name, kj_error *err)
{
    if (domain->type < KJ_TYPE_BOOL || domain->type > KJ_TYPE_STRING)
        return kji_fail(err, KJ_EARG, "%s: %d is no type of a value", name, (int)domain->type);
    bool has_min = domain->flags & KJI_DOMAIN_MIN, has_max = domain->flags & KJI_DOMAIN_MAX;
    bool is_number = domain->type == KJ_TYPE_INT || domain->type == KJ_TYPE_FLOAT;
    if ((has_min || has_max) && !is_number)
        return kji_fail(err, KJ_EARG, "%s: a %s has no range", name, kji_type_name(domain->type));
    if ((has_min && isnan(domain->min)) || (has_max && isnan(domain->max)))
        return kji_fail(err, KJ_EARG, "%s: a limit is not a number", name);
    if (has_min && has_max && domain->min > domain->max)
        return kji_fail(err, KJ_EARG, "%s: min %g is above max %g", name, domain->min, domain->max);
    return 0;
}

/* ", and must be > 0 and <= 1", "" without limits. */
static const char *range_text(const kji_domain *domain, char *text, size_t room)
{
    char min[KJI_DOUBLE_TEXT], max[KJI_DOUBLE_TEXT];
    bool has_min = domain->flags & KJI_DOMAIN_MIN, has_max = domain->flags & KJI_DOMAIN_MAX;
    kji_double_text(domain->min, min);
    kji_double_text(domain->max, max);
    const char *above = domain->flags & KJI_DOMAIN_MIN_EXCLUSIVE ? ">" : ">=";
    snprintf(text, room, "%s%s%s%s%s%s", has_min ? above : "", has_min ? " " : "",
             has_min ? min : "", has_min && has_max ? " and " : "", has_max ? "<= " : "",
             has_max ? max : "");
    return text;
}

static int check_number(const kji_domain *domain, const char *name, double value, const char *shown,
                        kj_error *err)
{
    if (!isfinite(value) && !(domain->flags & KJI_DOMAIN_NOT_FINITE))
        return kji_fail(err, KJ_EREJECTED, "%s: %s is refused; a finite number is wanted", name,
                        shown);
    bool low =
        (domain->flags & KJI_DOMAIN_MIN) &&
        (domain->flags & KJI_DOMAIN_MIN_EXCLUSIVE ? value <= domain->min : value < domain->min);
    bool high = (domain->flags & KJI_DOMAIN_MAX) && value > domain->max;
    char range[120];
    if (low || high)
        return kji_fail(err, KJ_EREJECTED, "%s: %s is out of range; it must be %s", name, shown,
                        range_text(domain, range, sizeof range));
    return 0;
}

bool kji_parse_bool(const char *text, bool *ret_value)
{
    static const char *const texts[] = {"no", "yes", "false", "true", "off", "on"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        if (strcasecmp(text, texts[k]) == 0) {
            *ret_value = k & 1;
            return true;
        }
    }
    return false;
}

/* Reads a text as a value of the type; false when it is none. */
static bool from_text(int type, const char *text, kj_value *value)
{
    bool flag;
    size_t size = strlen(text);
    switch (type) {
    case KJ_TYPE_BOOL:
        if (!kji_parse_bool(text, &flag))
            return false;
        value->i = flag;
        return true;
    case KJ_TYPE_INT:
        return kji_parse_int64(text, size, &value->i);
    case KJ_TYPE_FLOAT:
        return kji_parse_double(text, size, &value->f);
    case KJ_TYPE_STRING:
        value->s = text;
        return size <= KJI_STRING_MAX;
    }
    return false;
}

static bool from_json(int type, struct json_object *json, kj_value *value)
{
    kj_value got;
    if (!kji_json_get_value(json, &got))
        return false;
    if (got.type == KJ_TYPE_STRING)
        return strlen(got.s) == (size_t)json_object_get_string_len(json) &&
               from_text(type, got.s, value);
    if (got.type == KJ_TYPE_INT && json_object_get_uint64(json) > INT64_MAX)
        return false; /* json-c has cut it to fit */
    if (got.type == KJ_TYPE_INT && type == KJ_TYPE_FLOAT) {
        value->f = (double)got.i;
        return true;
    }
    if (got.type != type)
        return false;
    value->i = got.i;
    value->f = got.f;
    return true;
}

int kji_domain_read(const kji_domain *domain, const char *name, struct json_object *json,
                    kj_value *ret_value, kj_error *err)
{
    kj_value value = {.type = domain->type};
    bool is_secret = kji_names_secret(name, strlen(name)) && domain->type != KJ_TYPE_BOOL;
    const char *shown = is_secret ? KJI_MASK : json ? json_object_get_string(json) : "null";
    if (is_secret && kji_is_mask(json))
        return kji_fail(err, KJ_EREJECTED,
                        "%s: %s stands for a secret that was not written down; give the value",
                        name, KJI_MASK);
    if (!from_json(domain->type, json, &value))
        return kji_fail(err, KJ_EREJECTED, "%s: \"%.100s\" is no %s", name, shown,
                        kji_type_name(domain->type));
    int r = 0;
    if (domain->type == KJ_TYPE_FLOAT)
        r = check_number(domain, name, value.f, shown, err);
    else if (domain->type == KJ_TYPE_INT)
        r = check_number(domain, name, (double)value.i, shown, err);
    if (r >= 0)
        *ret_value = value;
    return r;
}

void kji_domain_describe(const kji_domain *domain, struct json_object *object)
{
    json_object_object_add(object, "type", json_object_new_string(kji_type_name(domain->type)));
    if (domain->flags & KJI_DOMAIN_MIN)
        json_object_object_add(object, "min", kji_json_new_double(domain->min));
    if (domain->flags & KJI_DOMAIN_MAX)
        json_object_object_add(object, "max", kji_json_new_double(domain->max));
    if (domain->flags & KJI_DOMAIN_MIN_EXCLUSIVE)
        json_object_object_add(object, "min_exclusive", json_object_new_boolean(true));
}
