/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables of samplers, pruners and the like: "key=value,key=value" into a struct. */
#ifndef KJI_OPTIONS_H
#define KJI_OPTIONS_H

#include <kajitori/error.h>
#include <kajitori/value.h>

enum kji_option_flag { KJI_OPTION_MIN = 1, KJI_OPTION_MAX = 2 };

typedef struct kji_option {
    const char *key;
    int32_t type;   /* KJ_TYPE_BOOL (int32_t), KJ_TYPE_INT (int64_t), KJ_TYPE_FLOAT (double) */
    uint32_t flags; /* enum kji_option_flag */
    size_t offset;  /* of the field in the struct that is filled */
    const char *default_text;
    double min; /* inclusive */
    double max;
    const char *help; /* one line */
} kji_option;

/*
 * Fills the fields of `target` from `text` (NULL or "" = all defaults). Blanks around keys and
 * values are ignored. KJ_EARG names `who` ("pruner median"), the key, the refused value and what
 * would be accepted; `target` may then be half filled.
 */
int kji_options_parse(const kji_option *options, size_t n_options, const char *who,
                      const char *text, void *target, kj_error *err);

#endif
