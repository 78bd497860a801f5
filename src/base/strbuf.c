/* SPDX-License-Identifier: Apache-2.0 */
#include "strbuf.h"

#include "mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char kji_strbuf_empty[1];

void kji_strbuf_done(kji_strbuf *buf)
{
    if (buf->capacity)
        free(buf->text);
    *buf = (kji_strbuf)KJI_STRBUF_INIT;
}

void kji_strbuf_clear(kji_strbuf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->capacity)
        buf->text[0] = 0;
}

/* Room for `more` bytes and the NUL. */
static bool make_room(kji_strbuf *buf, size_t more)
{
    if (buf->failed)
        return false;
    char *text = buf->capacity ? buf->text : NULL;
    if (more > (size_t)-1 / 4 || !kji_reserve(&text, &buf->capacity, buf->size + more + 1, 1)) {
        buf->failed = true;
        return false;
    }
    buf->text = text;
    return true;
}

void kji_strbuf_add(kji_strbuf *buf, const char *bytes, size_t size)
{
    if (size == 0 || !make_room(buf, size))
        return;
    memcpy(buf->text + buf->size, bytes, size);
    buf->size += size;
    buf->text[buf->size] = 0;
}

void kji_strbuf_puts(kji_strbuf *buf, const char *text)
{
    kji_strbuf_add(buf, text, strlen(text));
}

void kji_strbuf_putc(kji_strbuf *buf, char c)
{
    kji_strbuf_add(buf, &c, 1);
}

void kji_strbuf_printf(kji_strbuf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size >= 0 && make_room(buf, (size_t)size)) {
        vsnprintf(buf->text + buf->size, (size_t)size + 1, format, again);
        buf->size += (size_t)size;
    }
    va_end(again);
}

void kji_strbuf_consume(kji_strbuf *buf, size_t size)
{
    if (size == 0)
        return;
    memmove(buf->text, buf->text + size, buf->size - size + 1);
    buf->size -= size;
}

char *kji_strbuf_take(kji_strbuf *buf)
{
    char *text = NULL;
    if (!buf->failed)
        text = buf->capacity ? buf->text : calloc(1, 1);
    else if (buf->capacity)
        free(buf->text);
    *buf = (kji_strbuf)KJI_STRBUF_INIT;
    return text;
}
