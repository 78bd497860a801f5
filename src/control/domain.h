/* SPDX-License-Identifier: Apache-2.0 */
/* What a parameter or an argument may be: its type and range, and the check of a value that came
 * from outside. */
#ifndef KJI_DOMAIN_H
#define KJI_DOMAIN_H

#include <kajitori/error.h>
#include <kajitori/value.h>

#include <json-c/json.h>
#include <stdbool.h>

/* The bits are those of enum kj_param_flag and enum kj_arg_flag, which agree in these. */
enum {
    KJI_DOMAIN_MIN = 1,
    KJI_DOMAIN_MAX = 2,
    KJI_DOMAIN_MIN_EXCLUSIVE = 4,
    KJI_DOMAIN_NOT_FINITE = 64 /* NaN and infinities fit, too */
};

enum { KJI_STRING_MAX = 4096 };

typedef struct kji_domain {
    int32_t type; /* enum kj_type */
    uint32_t flags;
    double min;
    double max;
} kji_domain;

/* KJ_EARG when no value could ever fit. `name` is for the message. */
int kji_domain_check(const kji_domain *domain, const char *name, kj_error *err);

/*
 * The value that `json` means here: a value of the type, or a text that reads as one (as it comes
 * from the text language). KJ_EREJECTED names what was refused (not where the name is
 * that of a secret, mask.h; there the mask itself is refused, too) and what would fit. A string is
 * borrowed from `json`.
 */
int kji_domain_read(const kji_domain *domain, const char *name, struct json_object *json,
                    kj_value *ret_value, kj_error *err);

const char *kji_type_name(int type); /* "float", "int", "bool", "string" */

/* Adds "type", and "min", "max", "min_exclusive" where they hold. */
void kji_domain_describe(const kji_domain *domain, struct json_object *object);

/* yes/no, true/false, on/off, in any case. */
bool kji_parse_bool(const char *text, bool *ret_value);

#endif
