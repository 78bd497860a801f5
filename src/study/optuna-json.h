/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON texts as Optuna writes them: ", " and ": " between tokens, everything outside of printable
 * ASCII as \uXXXX, and the bare tokens NaN, Infinity, -Infinity. Reading is kji_json_parse, which
 * takes all of these.
 */
#ifndef KJI_OPTUNA_JSON_H
#define KJI_OPTUNA_JSON_H

#include "strbuf.h"

#include <kajitori/error.h>
#include <kajitori/value.h>

#include <stdbool.h>

/* A string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void kji_optuna_json_string(kji_strbuf *out, const char *utf8);
void kji_optuna_json_double(kji_strbuf *out, double value);
void kji_optuna_json_value(kji_strbuf *out, const kj_value *value);

/*
 * Checks that `text` is exactly one JSON value and writes it to `out` in Optuna's form. Numbers
 * keep their text, so integers of any size survive. KJ_EDATA says at which byte it stops being
 * JSON.
 */
int kji_optuna_json_rewrite(const char *text, size_t size, kji_strbuf *out, kj_error *err);

/* `json` is the member's value in Optuna's form. 0 = go on, < 0 = an error it has filled. */
typedef int (*kji_member_fn)(void *userdata, const char *key, const char *json, kj_error *err);

/* The same for each member of an object; KJ_EARG when `text` is another value. */
int kji_optuna_json_members(const char *text, kji_member_fn fn, void *userdata, kj_error *err);

#endif
