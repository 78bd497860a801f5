/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of followed event files: a fresh folder for each test, and a file that is put into
 * it in any way. */
#ifndef KJI_LIVE_FIXTURE_H
#define KJI_LIVE_FIXTURE_H

#include "metric-rows.h"

/* An event file's usual name. */
#define LIVE_NAME "events.out.tfevents.1796045548.h.1.0"

extern char live_top[64];       /* the folder */
extern char *live_base;         /* an event file of 21 records with 20 scalars */
extern size_t live_base_size;   /* its first record ends at LIVE_FIRST_END */
extern kji_rows live_base_rows; /* the scalars */

enum { LIVE_FIRST_END = 88 };

/* Load and drop the base file. */
int live_load(void **state);
int live_drop(void **state);

/* Make and remove the folder. */
int live_set_up(void **state);
int live_tear_down(void **state);

#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, live_set_up, live_tear_down)

/* A path in the folder; the last four stay valid. */
const char *live_path(const char *name);

/* Writes [from, to) of the base file; live_append to the end of a file. */
void live_put(const char *name, size_t from, size_t to, int flags);
void live_append(const char *name, size_t from, size_t to);

/* Readers of a folder in the folder. */
kj_events *live_follow_as(const char *where, uint32_t flags, uint32_t poll_ms, uint32_t grace_ms);
kj_events *live_follow(const char *where, uint32_t flags, uint32_t poll_ms);
/* Polls so seldom that only inotify can be the reason when something comes. */
kj_events *live_follow_by_inotify(const char *where);

/* All rows of the base file, so many times. */
void live_assert_all(const kji_rows *got, size_t n_times);

#endif
