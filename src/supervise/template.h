/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts with places for values: "{lr}" is replaced by the value that is bound to `lr`, "{{" and
 * "}}" are single braces. Anything else with a brace is refused, so that a misspelt name never
 * reaches a program.
 */
#ifndef KJI_TEMPLATE_H
#define KJI_TEMPLATE_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct kji_binding {
    const char *name;
    const char *value;
} kji_binding;

/* 0, or KJ_EARG with the place and the names there are. Values are not looked at. used[k], when
 * `used` is not NULL, becomes true for each binding that `text` uses and is left alone otherwise.
 */
int kji_template_check(const char *text, const kji_binding *bindings, size_t n_bindings, bool *used,
                       kj_error *err);

/* *ret_text is for free. */
int kji_template_expand(const char *text, const kji_binding *bindings, size_t n_bindings,
                        char **ret_text, kj_error *err);

#endif
