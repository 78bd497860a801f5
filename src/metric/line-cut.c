/* SPDX-License-Identifier: Apache-2.0 */
#include "line-cut.h"

#include "mem.h"

#include <string.h>

enum place { FIELD_START, IN_FIELD, IN_QUOTES, QUOTE_IN_QUOTES };

void kji_lines_init(kji_lines *lines, enum kji_cut cut)
{
    *lines = (kji_lines){.cut = cut};
}

void kji_lines_done(kji_lines *lines)
{
    free(lines->line);
    *lines = (kji_lines){0};
}

void kji_lines_clear(kji_lines *lines)
{
    lines->size = 0;
    lines->n_bytes = 0;
    lines->started = lines->too_long = lines->failed = lines->returned = false;
    lines->place = FIELD_START;
}

static void append(kji_lines *lines, const char *bytes, size_t size)
{
    size_t limit = lines->cut == KJI_CUT_TERMINAL ? KJI_LINE_CUT : KJI_LINE_LIMIT;
    size_t room = limit - lines->size;
    if (size > room) {
        lines->too_long = lines->cut != KJI_CUT_TERMINAL;
        size = room;
    }
    if (!kji_reserve(&lines->line, &lines->capacity, lines->size + size, 1)) {
        lines->failed = true;
        return;
    }
    if (size)
        memcpy(lines->line + lines->size, bytes, size);
    lines->size += size;
}

static void append_shown(kji_lines *lines, const char *bytes, size_t size)
{
    if (size == 0)
        return;
    if (lines->returned)
        lines->size = 0;
    lines->returned = false;
    append(lines, bytes, size);
}

static void take_terminal(kji_lines *lines, const char *bytes, const char *end)
{
    while (bytes < end) {
        const char *back = memchr(bytes, '\r', (size_t)(end - bytes));
        append_shown(lines, bytes, (size_t)((back ? back : end) - bytes));
        lines->returned = lines->returned || back;
        bytes = back ? back + 1 : end;
    }
}

static size_t take_line(kji_lines *lines, const char *bytes, size_t size, bool *ret_complete)
{
    const char *newline = memchr(bytes, '\n', size);
    const char *end = newline ? newline : bytes + size;
    lines->started = lines->started || end > bytes;
    if (lines->cut == KJI_CUT_TERMINAL)
        take_terminal(lines, bytes, end);
    else
        append(lines, bytes, (size_t)(end - bytes));
    if (newline && lines->cut == KJI_CUT_PLAIN && lines->size && !lines->too_long)
        lines->size -= lines->line[lines->size - 1] == '\r';
    *ret_complete = newline != NULL;
    return (size_t)(end - bytes) + (newline != NULL);
}

static bool is_delimiter(const kji_lines *lines, char c)
{
    return lines->delimiter ? c == lines->delimiter : c == ',' || c == ';' || c == '\t';
}

static bool is_byte_order_mark(char c)
{
    return c == '\xef' || c == '\xbb' || c == '\xbf';
}

/* Where the next byte is, after `c`; c is no end of a line. */
static enum place place_after(const kji_lines *lines, char c)
{
    if (lines->place == FIELD_START && !lines->delimiter && is_byte_order_mark(c))
        return FIELD_START; /* a quote may follow it */
    switch ((enum place)lines->place) {
    case IN_QUOTES:
        return c == '"' ? QUOTE_IN_QUOTES : IN_QUOTES;
    case FIELD_START:
    case QUOTE_IN_QUOTES:
        if (c == '"')
            return IN_QUOTES;
        break;
    case IN_FIELD:
        break;
    }
    return is_delimiter(lines, c) && !lines->too_long ? FIELD_START : IN_FIELD;
}

/* The newline behind a carriage return is waited for, so that it belongs to this line. */
static size_t take_record(kji_lines *lines, const char *bytes, size_t size, bool *ret_complete)
{
    size_t from = 0, k = 0;
    *ret_complete = true;
    for (; k < size; k++) {
        char c = bytes[k];
        if (lines->returned)
            return k + (c == '\n');
        if (lines->place == IN_QUOTES && lines->size + (k - from) > KJI_LINE_LIMIT) {
            lines->too_long = true;
            lines->place = IN_FIELD;
        }
        if (lines->place == IN_QUOTES || (c != '\n' && c != '\r')) {
            lines->place = place_after(lines, c);
            continue;
        }
        append(lines, bytes + from, k - from);
        from = k + 1;
        if (c == '\n')
            return k + 1;
        lines->returned = true;
    }
    append(lines, bytes + from, k - from);
    *ret_complete = false;
    return k;
}

size_t kji_lines_take(kji_lines *lines, const char *bytes, size_t size, bool *ret_complete)
{
    size_t taken;
    if (lines->cut == KJI_CUT_QUOTED) {
        taken = take_record(lines, bytes, size, ret_complete);
        lines->started = lines->started || taken > 0;
    } else {
        taken = take_line(lines, bytes, size, ret_complete);
    }
    lines->n_bytes += taken;
    return taken;
}
