/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include "errors.h"
#include "number.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

int kji_json_parse(const char *text, size_t size, struct json_object **ret_json, kj_error *err)
{
    if (size > INT_MAX / 2)
        return kji_fail(err, KJ_EDATA, "JSON text of %zu bytes is too long", size);
    struct json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH);
    if (!tokener)
        return kji_fail_memory(err);
    struct json_object *json = json_tokener_parse_ex(tokener, text, (int)size);
    enum json_tokener_error state = json_tokener_get_error(tokener);
    size_t used = json_tokener_get_parse_end(tokener);
    if (state == json_tokener_continue) { /* a bare number ends only at what follows it */
        json = json_tokener_parse_ex(tokener, "\n", 1);
        state = json_tokener_get_error(tokener);
        used = size;
    }
    json_tokener_free(tokener);
    if (state == json_tokener_success) {
        size_t end = used < size ? used : size;
        while (end < size && strchr(" \t\r\n", text[end]))
            end++;
        if (end == size) {
            *ret_json = json;
            return 0;
        }
        json_object_put(json);
        return kji_fail(err, KJ_EDATA, "not JSON: text behind the value at byte %zu", end);
    }
    if (state == json_tokener_continue)
        return kji_fail(err, KJ_EDATA, "not JSON: the text ends too early");
    return kji_fail(err, KJ_EDATA, "not JSON: %s at byte %zu", json_tokener_error_desc(state),
                    used);
}

char *kji_json_text(struct json_object *json)
{
    const char *text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN |
                                                                JSON_C_TO_STRING_NOSLASHESCAPE);
    return text ? strdup(text) : NULL;
}

struct json_object *kji_json_new_double(double value)
{
    if (isnan(value))
        return json_object_new_string("NaN");
    if (isinf(value))
        return json_object_new_string(value < 0 ? "-Infinity" : "Infinity");
    char text[KJI_DOUBLE_TEXT];
    return json_object_new_double_s(value, kji_double_text(value, text));
}

static void tidy_members(struct json_object *object)
{
    json_object_object_foreach(object, key, member)
    {
        struct json_object *tidy = json_object_get(member);
        kji_json_tidy_doubles(&tidy);
        json_object_object_add(object, key, tidy); /* of a key that is there: in place */
    }
}

static void tidy_items(struct json_object *array)
{
    for (size_t k = 0; k < json_object_array_length(array); k++) {
        struct json_object *tidy = json_object_get(json_object_array_get_idx(array, k));
        kji_json_tidy_doubles(&tidy);
        json_object_array_put_idx(array, k, tidy);
    }
}

void kji_json_tidy_doubles(struct json_object **json)
{
    if (json_object_is_type(*json, json_type_object)) {
        tidy_members(*json);
    } else if (json_object_is_type(*json, json_type_array)) {
        tidy_items(*json);
    } else if (json_object_is_type(*json, json_type_double)) {
        struct json_object *tidy = kji_json_new_double(json_object_get_double(*json));
        json_object_put(*json);
        *json = tidy;
    }
}

bool kji_json_get_double(struct json_object *json, double *ret_value)
{
    switch (json_object_get_type(json)) {
    case json_type_double:
    case json_type_int:
        *ret_value = json_object_get_double(json);
        return true;
    case json_type_string: {
        const char *text = json_object_get_string(json);
        if (strcmp(text, "NaN") == 0)
            *ret_value = NAN;
        else if (strcmp(text, "Infinity") == 0)
            *ret_value = INFINITY;
        else if (strcmp(text, "-Infinity") == 0)
            *ret_value = -INFINITY;
        else
            return false;
        return true;
    }
    default:
        return false;
    }
}

struct json_object *kji_json_new_value(const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_BOOL:
        return json_object_new_boolean(value->i != 0);
    case KJ_TYPE_INT:
        return json_object_new_int64(value->i);
    case KJ_TYPE_FLOAT:
        return kji_json_new_double(value->f);
    case KJ_TYPE_STRING:
        return json_object_new_string(value->s ? value->s : "");
    default:
        return NULL;
    }
}

bool kji_json_get_value(struct json_object *json, kj_value *ret_value)
{
    kj_value value = {0};
    switch (json_object_get_type(json)) {
    case json_type_null:
        value.type = KJ_TYPE_NONE;
        break;
    case json_type_boolean:
        value.type = KJ_TYPE_BOOL;
        value.i = json_object_get_boolean(json);
        break;
    case json_type_int:
        value.type = KJ_TYPE_INT;
        value.i = json_object_get_int64(json);
        break;
    case json_type_double:
        value.type = KJ_TYPE_FLOAT;
        value.f = json_object_get_double(json);
        break;
    case json_type_string:
        value.type = KJ_TYPE_STRING;
        value.s = json_object_get_string(json);
        break;
    default:
        return false;
    }
    *ret_value = value;
    return true;
}

const char *kji_json_string(struct json_object *object, const char *key)
{
    struct json_object *member;
    if (!json_object_object_get_ex(object, key, &member) ||
        !json_object_is_type(member, json_type_string))
        return NULL;
    return json_object_get_string(member);
}

bool kji_json_int(struct json_object *object, const char *key, int64_t *ret_value)
{
    struct json_object *member;
    if (!json_object_object_get_ex(object, key, &member) ||
        !json_object_is_type(member, json_type_int))
        return false;
    *ret_value = json_object_get_int64(member);
    return true;
}
