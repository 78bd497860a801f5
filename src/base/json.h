/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json-c, with the choices that all of kajitori makes: bounded depth, no trailing text, doubles in
 * the shortest text that reads back, and in our own formats NaN and infinities as the strings
 * "NaN", "Infinity", "-Infinity" (Optuna's formats use bare tokens instead).
 */
#ifndef KJI_JSON_H
#define KJI_JSON_H

#include <kajitori/error.h>
#include <kajitori/value.h>

#include <json-c/json.h>
#include <stdbool.h>

static inline void kji_json_putp(struct json_object **object)
{
    json_object_put(*object);
}

/* Parses exactly one value. KJ_EDATA says where it stops being JSON. *ret_json may be NULL: that is
 * JSON null. */
int kji_json_parse(const char *text, size_t size, struct json_object **ret_json, kj_error *err);

/* The text on one line, without blanks; for free. NULL when memory is gone. */
char *kji_json_text(struct json_object *json);

/* A double in our own formats: a number, or one of the three strings. */
struct json_object *kji_json_new_double(double value);
/* Brings all doubles in *json into that form, whatever its sender wrote ("NaN", "1.", "1e400"). */
void kji_json_tidy_doubles(struct json_object **json);
/* Reads one back, also from an integer. false for anything else. */
bool kji_json_get_double(struct json_object *json, double *ret_value);

struct json_object *kji_json_new_value(const kj_value *value);
/* Strings are borrowed from `json`. false for arrays and objects. */
bool kji_json_get_value(struct json_object *json, kj_value *ret_value);

/* Members of an object; NULL or false when absent or of another type. Strings are borrowed. */
const char *kji_json_string(struct json_object *object, const char *key);
bool kji_json_int(struct json_object *object, const char *key, int64_t *ret_value);

#endif
