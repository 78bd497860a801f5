/* SPDX-License-Identifier: Apache-2.0 */
/* A PCRE2 pattern over single lines of output, and the cutting of bytes into such lines. */
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

enum { KJI_LINE_LIMIT = 64 << 10 }; /* a longer line is cut */

/*
 * Lines as a terminal would show them in the end: a carriage return that is not followed by a
 * newline starts the line anew, as progress bars do. Zeroed at the beginning.
 */
typedef struct kji_lines {
    char *line; /* KJI_LINE_LIMIT bytes */
    size_t size;
    bool started;  /* something of a line is there */
    bool returned; /* the last byte was a carriage return */
} kji_lines;

bool kji_lines_init(kji_lines *lines);
void kji_lines_done(kji_lines *lines);

/* Takes bytes until a line is complete: returns how many it took, *ret_complete tells which it was.
 * The line is in lines->line until the next call. */
size_t kji_lines_take(kji_lines *lines, const char *bytes, size_t size, bool *ret_complete);

/* After a complete line has been used. */
void kji_lines_clear(kji_lines *lines);

#endif
