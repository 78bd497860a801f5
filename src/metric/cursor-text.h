/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that a cursor consists of (docs/event-reader.md): written as compact JSON, and
 * taken from arrays of json-c of which nothing can be trusted.
 */
#ifndef KJI_CURSOR_TEXT_H
#define KJI_CURSOR_TEXT_H

#include "strbuf.h"

#include <json-c/json.h>
#include <stdint.h>

/* Each writes its value and, but for the first one behind a bracket, a comma before it. */
void kji_cursor_put_uint(kji_strbuf *to, uint64_t value);
/* Any bytes: those that are no UTF-8, control bytes and " \ % become %XX. */
void kji_cursor_put_name(kji_strbuf *to, const char *name, size_t size);
void kji_cursor_put_hex(kji_strbuf *to, const void *bytes, size_t size);
void kji_cursor_open(kji_strbuf *to);  /* [ */
void kji_cursor_close(kji_strbuf *to); /* ] */

/* Many numbers are one text, with blanks in between: that is read back several times faster. */
void kji_cursor_open_numbers(kji_strbuf *to);
void kji_cursor_add_uint(kji_strbuf *to, uint64_t value);
void kji_cursor_add_int(kji_strbuf *to, int64_t value);
void kji_cursor_add_double(kji_strbuf *to, double value); /* its 64 bits as a whole number */
void kji_cursor_close_numbers(kji_strbuf *to);

/* Takes the items of an array one by one. After a failure all is zero or empty, so that one look at
 * `wrong` is enough. */
typedef struct kji_cursor_items {
    struct json_object *array;
    size_t next;
    const char *wrong; /* NULL: nothing so far */
} kji_cursor_items;

kji_cursor_items kji_cursor_items_of(struct json_object *array);
/* Whether there is another one; none after a failure. */
bool kji_cursor_more(const kji_cursor_items *items);

/* For `limit`, of offsets and counts of what a file holds: they can be added up. */
#define KJI_OFFSET_LIMIT ((uint64_t)INT64_MAX / 4)

uint64_t kji_cursor_take_uint(kji_cursor_items *items, uint64_t limit);
/* For free, with a NUL behind it; NULL after a failure. Names without bytes of 0 only, when
 * ret_size is NULL. */
char *kji_cursor_take_name(kji_cursor_items *items, size_t *ret_size);
/* Exactly or, with ret_size, at most `size` bytes. */
void kji_cursor_take_hex(kji_cursor_items *items, void *bytes, size_t size, size_t *ret_size);
/* Borrowed. */
kji_cursor_items kji_cursor_take_array(kji_cursor_items *items);

/* Takes the numbers of a text one by one; after a failure, which stays in `items`, all are 0. */
typedef struct kji_cursor_numbers {
    kji_cursor_items *items;
    const char *at; /* borrowed from the array */
} kji_cursor_numbers;

kji_cursor_numbers kji_cursor_take_numbers(kji_cursor_items *items);
bool kji_cursor_more_numbers(const kji_cursor_numbers *numbers);
uint64_t kji_cursor_next_uint(kji_cursor_numbers *numbers, uint64_t limit);
int64_t kji_cursor_next_int(kji_cursor_numbers *numbers);
double kji_cursor_next_double(kji_cursor_numbers *numbers);
void kji_cursor_expect_last(const kji_cursor_numbers *numbers); /* that there are no more */

/* Says that something is wrong unless something is already. */
void kji_cursor_expect(kji_cursor_items *items, bool right, const char *wrong);
/* That there are no more. */
void kji_cursor_expect_end(kji_cursor_items *items);

/* What `wrong` is when that is the reason. */
extern const char kji_cursor_no_memory[];

#endif
