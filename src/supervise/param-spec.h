/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of a search space (docs/tune.md):
 *
 *     NAME=LO..HI[:int][:log][:step=S]      a range, both ends included
 *     NAME=a|b|c                            one of several: all integers, else all numbers, else
 *                                           texts
 */
#ifndef KJI_PARAM_SPEC_H
#define KJI_PARAM_SPEC_H

#include <kajitori/study.h>

typedef struct kji_param_spec {
    char *name;
    kj_distribution distribution; /* its choices are owned here */
} kji_param_spec;

/* KJ_EARG says what is wrong and what would be right; *ret_spec is untouched then. */
int kji_param_spec_parse(const char *text, kji_param_spec *ret_spec, kj_error *err);
void kji_param_spec_done(kji_param_spec *spec);

/* What stands behind NAME=, in one canonical way; for free. NULL when memory is gone. */
char *kji_param_spec_text(const kji_param_spec *spec);

/* A value as it is put into a command line: "0.001", "32", "adam"; for free. */
char *kji_value_text(const kj_value *value);

#endif
