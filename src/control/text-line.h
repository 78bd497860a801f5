/* SPDX-License-Identifier: Apache-2.0 */
/* The text language of the doors, one line at a time (docs/protocol.md, section 2). */
#ifndef KJI_TEXT_LINE_H
#define KJI_TEXT_LINE_H

#include <kajitori/error.h>

#include <stdbool.h>

enum { KJI_LINE_MAX = 4096, KJI_NAME_MAX = 64, KJI_WORDS_MAX = 64 };

typedef struct kji_text_arg {
    const char *key;
    const char *value;
} kji_text_arg;

typedef struct kji_text_line {
    const char *verb; /* in lower case */
    size_t n_words;
    const char *words[KJI_WORDS_MAX];
    size_t n_args;
    kji_text_arg args[KJI_WORDS_MAX];   /* no key twice */
    char storage[2 * KJI_LINE_MAX + 8]; /* what the pointers above point into */
} kji_text_line;

/*
 * Reads one line (without its newline; a "\r" at the end is dropped): 1 with *ret_line filled, 0
 * when there is no command in it (blank, comment), KJ_EDATA with the reason.
 */
int kji_text_line_parse(const char *text, size_t size, kji_text_line *ret_line, kj_error *err);

/* A letter, then letters, digits, "_", "-", "."; at most 64 bytes. */
bool kji_name_valid(const char *name);

#endif
