/* SPDX-License-Identifier: Apache-2.0 */
/* A PCRE2 pattern over single lines of text. */
#ifndef KJI_TEXT_PATTERN_H
#define KJI_TEXT_PATTERN_H

#include <kajitori/error.h>

#include <stdbool.h>

typedef struct kji_pattern kji_pattern;

/*
 * The pattern has a group named `value`, or else its first group that is not named `step` is the
 * value. KJ_EARG says what is wrong and where.
 */
int kji_pattern_new(const char *text, kji_pattern **ret_pattern, kj_error *err);
void kji_pattern_free(kji_pattern *pattern);

enum kji_match {
    KJI_MATCH_NONE,
    KJI_MATCH_POINT,
    KJI_MATCH_BAD_VALUE, /* the line matches, but what it captures is no number */
    KJI_MATCH_BAD_STEP,
    KJI_MATCH_TOO_HARD /* given up after a fixed amount of work */
};

typedef struct kji_match_result {
    bool has_step;
    int64_t step;
    double value;
    const char *text; /* what was captured where it is no number */
    size_t size;
} kji_match_result;

enum kji_match kji_pattern_match(kji_pattern *pattern, const char *line, size_t size,
                                 kji_match_result *ret);

#endif
