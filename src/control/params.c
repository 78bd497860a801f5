/* SPDX-License-Identifier: Apache-2.0 */
#include "params.h"

#include "command.h"
#include "errors.h"
#include "json.h"
#include "mask.h"
#include "mem.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

void kji_value_done(kj_value *value)
{
    if (value->type == KJ_TYPE_STRING)
        free((char *)value->s);
    *value = (kj_value){0};
}

void kji_param_free(kji_param *param)
{
    if (!param)
        return;
    free(param->name);
    free(param->unit);
    free(param->help);
    kji_value_done(&param->value);
    free(param);
}

void kji_params_done(kji_params *params)
{
    for (size_t k = 0; k < params->n; k++)
        kji_param_free(params->item[k]);
    free(params->item);
    *params = (kji_params){0};
}

static int check(const kj_param *from, const kji_domain *domain, kj_error *err)
{
    int r = kji_check_size(from->size, sizeof *from, "kj_param", err);
    if (r < 0)
        return r;
    if (!from->name || !kji_name_valid(from->name) || kji_is_reserved_key(from->name))
        return kji_fail(err, KJ_EARG,
                        "\"%.80s\" cannot name a parameter: a letter, then up to 63 letters, "
                        "digits, \"_\", \"-\", \".\", and none of the keys that every verb has",
                        from->name ? from->name : "");
    if (!from->get)
        return kji_fail(err, KJ_EARG, "%s: a parameter needs a getter", from->name);
    if (!from->set && !(from->flags & KJ_PARAM_READ_ONLY))
        return kji_fail(err, KJ_EARG, "%s: a parameter without a setter is KJ_PARAM_READ_ONLY",
                        from->name);
    if (from->effect < KJ_EFFECT_STEP || from->effect > KJ_EFFECT_RESTART)
        return kji_fail(err, KJ_EARG, "%s: %d is no effect", from->name, (int)from->effect);
    return kji_domain_check(domain, from->name, err);
}

int kji_param_new(const kj_param *from, kji_param **ret_param, kj_error *err)
{
    kji_domain domain = {from->type, from->flags, from->min, from->max};
    int r = check(from, &domain, err);
    if (r < 0)
        return r;
    kji_param *param = calloc(1, sizeof *param);
    if (!param)
        return kji_fail_memory(err);
    param->name = strdup(from->name);
    param->unit = from->unit ? strndup(from->unit, KJI_STRING_MAX) : NULL;
    param->help = from->help ? strndup(from->help, KJI_STRING_MAX) : NULL;
    param->domain = domain;
    param->read_only = from->flags & KJ_PARAM_READ_ONLY;
    param->effect = from->effect;
    param->get = from->get;
    param->set = from->set;
    param->userdata = from->userdata;
    param->step = -1;
    if (!param->name || (from->unit && !param->unit) || (from->help && !param->help)) {
        kji_param_free(param);
        return kji_fail_memory(err);
    }
    *ret_param = param;
    return 0;
}

int kji_params_add(kji_params *params, kji_param *param, kj_error *err)
{
    if (kji_params_find(params, param->name))
        return kji_fail(err, KJ_EEXIST, "there is a parameter %s already", param->name);
    if (params->n == KJI_PARAMS_MAX)
        return kji_fail(err, KJ_ERANGE, "more than %d parameters", KJI_PARAMS_MAX);
    if (!kji_reserve(&params->item, &params->capacity, params->n + 1, sizeof *params->item))
        return kji_fail_memory(err);
    params->item[params->n++] = param;
    return 0;
}

kji_param *kji_params_find(const kji_params *params, const char *name)
{
    for (size_t k = 0; k < params->n; k++)
        if (strcmp(params->item[k]->name, name) == 0)
            return params->item[k];
    return NULL;
}

int kji_params_fail_unknown(const kji_params *params, const char *name, kj_error *err)
{
    const char **known = calloc(params->n + 1, sizeof *known);
    if (!known)
        return kji_fail_memory(err);
    for (size_t k = 0; k < params->n; k++)
        known[k] = params->item[k]->name;
    int r = kji_fail_unknown(err, KJ_EREJECTED, "parameter", name, known, params->n);
    free(known);
    return r;
}

/* Whether what a getter gave is of the declared type; an int does for a float. */
static bool adapt(const kji_domain *domain, kj_value *value)
{
    if (domain->type == KJ_TYPE_FLOAT && value->type == KJ_TYPE_INT) {
        value->f = (double)value->i;
        value->type = KJ_TYPE_FLOAT;
    }
    return value->type == domain->type && (value->type != KJ_TYPE_STRING || value->s);
}

int kji_param_read(const kji_param *param, kj_value *ret_value, kj_error *err)
{
    kj_value value = {0};
    kj_error inner = KJ_ERROR_INIT;
    int r = param->get(param->userdata, &value, &inner);
    if (r < 0)
        return kji_fail(err, r, "cannot read %s: %s", param->name,
                        *inner.message ? inner.message : kj_error_text(r));
    if (!adapt(&param->domain, &value))
        return kji_fail(err, KJ_EFAILED, "the getter of %s gave a %s, not a %s", param->name,
                        kji_type_name(value.type), kji_type_name(param->domain.type));
    if (value.type == KJ_TYPE_STRING) {
        value.s = strndup(value.s, KJI_STRING_MAX);
        if (!value.s)
            return kji_fail_memory(err);
    }
    *ret_value = value;
    return 0;
}

void kji_param_store(kji_param *param, kj_value *value, int64_t step)
{
    kji_value_done(&param->value);
    param->value = *value;
    param->step = step;
    *value = (kj_value){0};
}

struct json_object *kji_value_json(const kj_value *value)
{
    if (value->type == KJ_TYPE_STRING)
        return kji_json_new_text(value->s, KJI_STRING_MAX);
    return kji_json_new_value(value);
}

struct json_object *kji_param_shown(const kji_param *param)
{
    struct json_object *value = kji_value_json(&param->value);
    struct json_object *shown = kji_mask_json(param->name, value);
    json_object_put(value);
    return shown;
}

struct json_object *kji_param_describe(const kji_param *param)
{
    static const char *const effects[] = {"step", "epoch", "restart"};
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "name", json_object_new_string(param->name));
    kji_domain_describe(&param->domain, object);
    json_object_object_add(object, "value", kji_param_shown(param));
    json_object_object_add(object, "step", json_object_new_int64(param->step));
    if (param->unit)
        json_object_object_add(object, "unit", kji_json_new_text(param->unit, KJI_STRING_MAX));
    if (param->help)
        json_object_object_add(object, "help", kji_json_new_text(param->help, KJI_STRING_MAX));
    if (param->read_only)
        json_object_object_add(object, "read_only", json_object_new_boolean(true));
    json_object_object_add(object, "effect", json_object_new_string(effects[param->effect]));
    return object;
}

int kji_params_check_set(const kji_params *params, struct json_object *args, kj_error *err)
{
    if (json_object_object_length(args) == 0)
        return kji_fail(err, KJ_EREJECTED, "set what? Write set NAME=VALUE");
    struct json_object *typed = json_object_new_object();
    int r = typed ? 0 : kji_fail_memory(err);
    json_object_object_foreach(args, name, text)
    {
        if (r < 0)
            break;
        const kji_param *param = kji_params_find(params, name);
        kj_value value;
        if (!param)
            r = kji_params_fail_unknown(params, name, err);
        else if (param->read_only)
            r = kji_fail(err, KJ_EREJECTED, "%s can be read only", name);
        else
            r = kji_domain_read(&param->domain, name, text, &value, err);
        if (r >= 0)
            json_object_object_add(typed, name, kji_json_new_value(&value));
    }
    if (r >= 0) {
        json_object_object_foreach(typed, key, value)
            json_object_object_add(args, key, json_object_get(value));
    }
    json_object_put(typed);
    return r;
}
