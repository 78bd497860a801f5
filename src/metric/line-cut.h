/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts bytes, however they come in pieces, into lines. */
#ifndef KJI_LINE_CUT_H
#define KJI_LINE_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kji_cut {
    /* As a terminal would show it in the end: a carriage return that is not followed by a newline
     * starts the line anew, as progress bars do. Cut after KJI_LINE_CUT bytes. */
    KJI_CUT_TERMINAL,
    /* Up to a newline; a carriage return before it belongs to the end. */
    KJI_CUT_PLAIN,
    /* A record of a CSV file: it ends at \n, \r\n or \r, but not where that is quoted (RFC 4180,
     * read as Python's csv module does). */
    KJI_CUT_QUOTED
};

enum { KJI_LINE_CUT = 64 << 10, KJI_LINE_LIMIT = 1 << 20 };

typedef struct kji_lines {
    enum kji_cut cut;
    char delimiter; /* of KJI_CUT_QUOTED; 0: not known yet, any of , ; and tab */
    char *line;     /* grows up to the limit; not NUL-terminated */
    size_t size, capacity;
    uint64_t n_bytes; /* of the line so far, its end included */
    bool started;     /* something of a line is there */
    bool too_long;    /* longer than KJI_LINE_LIMIT: the rest was dropped, also of what is quoted */
    bool failed;      /* memory was gone: `line` is not whole */
    bool returned;    /* the last byte was a carriage return */
    uint8_t place;    /* within a field of KJI_CUT_QUOTED */
} kji_lines;

void kji_lines_init(kji_lines *lines, enum kji_cut cut);
void kji_lines_done(kji_lines *lines);

/* Takes bytes until a line is complete: returns how many it took, *ret_complete tells which it was.
 * The line is in lines->line until kji_lines_clear. */
size_t kji_lines_take(kji_lines *lines, const char *bytes, size_t size, bool *ret_complete);

/* After a complete line has been used. */
void kji_lines_clear(kji_lines *lines);

#endif
