/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing text. Invariants: `text` is never NULL and always NUL-terminated; when memory is gone,
 * `failed` is set, the text keeps what it had, and further calls do nothing, so that one check at
 * the end is enough.
 */
#ifndef KJI_STRBUF_H
#define KJI_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kji_strbuf {
    char *text;
    size_t size;     /* bytes before the NUL */
    size_t capacity; /* 0 while nothing is allocated */
    bool failed;
} kji_strbuf;

extern char kji_strbuf_empty[1];

#define KJI_STRBUF_INIT               \
    {                                 \
        kji_strbuf_empty, 0, 0, false \
    }

void kji_strbuf_done(kji_strbuf *buf);
void kji_strbuf_clear(kji_strbuf *buf); /* empty, memory kept */
void kji_strbuf_add(kji_strbuf *buf, const char *bytes, size_t size);
void kji_strbuf_puts(kji_strbuf *buf, const char *text);
void kji_strbuf_putc(kji_strbuf *buf, char c);
void kji_strbuf_printf(kji_strbuf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void kji_strbuf_consume(kji_strbuf *buf, size_t size); /* drops the first `size` bytes */

/* Hands the text over (for free) and leaves the buffer empty; NULL when it had failed. */
char *kji_strbuf_take(kji_strbuf *buf);

#endif
