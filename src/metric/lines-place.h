/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of sources that read text: a file in a folder of its own, and what is read of it,
 * as text. */
#ifndef KJI_LINES_PLACE_H
#define KJI_LINES_PLACE_H

#include "metric-rows.h"

typedef struct kji_lines_place {
    char top[64];
    char path[128]; /* of the file, in `top`; not there at the beginning */
    char logged[1000];
    int n_logged; /* warnings */
} kji_lines_place;

/* The one of the test that runs. */
extern kji_lines_place kji_place;

/* As set-up and tear-down of each test. */
int kji_place_set_up(void **state);
int kji_place_tear_down(void **state);

#define KJI_PLACE_TEST(name) \
    cmocka_unit_test_setup_teardown(name, kji_place_set_up, kji_place_tear_down)

void kji_place_append(const char *text);
void kji_place_rewrite(const char *text); /* in place, as open("w") does */
void kji_place_replace(const char *text); /* by another file of this name */

/* `spec` has one %s for the path. */
kj_events *kji_place_open(const char *spec, uint32_t flags);

/* Takes all that is there and compares it with lines of "run tag step wall_time value". */
void kji_place_expect(kj_events *source, const char *expected);

/* Appends `text` byte by byte, looking after each one, finishes, and compares all that came; the
 * same for the whole text at once. */
void kji_place_check_growth(const char *spec, const char *text, const char *expected);

/* Takes the points of the file one by one, each by a reader of its own that goes on where the one
 * before it was, and compares all that came. */
void kji_place_check_cursor(const char *spec, const char *text, const char *expected);

/* Closes the source and opens it again where it was. */
kj_events *kji_place_reopen(kj_events *source, const char *spec, uint32_t flags);

#endif
