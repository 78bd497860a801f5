/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocations of a reader, counted and refused: this program is linked with --wrap for each
 * function that allocates, so that all calls of the library come here.
 */
#include "event-make.h"
#include "mem.h"
#include "metric-rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 100000, WARM_UP = 5000, TAGS = 10 };

static size_t n_calls;
static size_t fail_at = SIZE_MAX; /* this call gets nothing */

static bool refuse(void)
{
    return n_calls++ == fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
int __real_vasprintf(char **ret_text, const char *format, va_list args);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_vasprintf(char **ret_text, const char *format, va_list args);

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return refuse() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return refuse() ? NULL : __real_reallocarray(old, n, size);
}

char *__wrap_strdup(const char *text)
{
    return refuse() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return refuse() ? NULL : __real_strndup(text, size);
}

int __wrap_vasprintf(char **ret_text, const char *format, va_list args)
{
    return refuse() ? -1 : __real_vasprintf(ret_text, format, args);
}

static char top[64]; /* a fresh folder for each test */

static kj_events *open_top(uint32_t flags, const char *cursor, kj_error *err)
{
    char spec[100];
    snprintf(spec, sizeof spec, "events:%s/logs", top);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    options.cursor = cursor;
    kj_events *events = NULL;
    kj_events_open(spec, &options, &events, err);
    return events;
}

static void append(int64_t from, int64_t n)
{
    static const char *const tags[TAGS] = {"loss", "accuracy", "c", "d", "e",
                                           "f",    "g",        "h", "i", "validation/loss"};
    char path[100];
    kji_strbuf bytes = KJI_STRBUF_INIT;
    for (int64_t k = from; k < from + n; k++)
        kji_make_scalar(&bytes, k / TAGS, 1.0 + (double)k, tags[k % TAGS], (float)k);
    snprintf(path, sizeof path, "%s/logs/run/events.out.tfevents.1.h", top);
    kji_make_file(path, &bytes);
    kji_strbuf_done(&bytes);
}

static int count(void *userdata, const kj_point *point)
{
    int64_t *n = userdata;
    (void)point;
    return ++*n == WARM_UP;
}

/* How many allocations the reader makes for the points behind the first WARM_UP ones, which have
 * shown it the tags, and for those that come later. */
static size_t allocations_of_step(uint32_t flags)
{
    int64_t n = 0;
    kj_events *events = open_top(flags, NULL, NULL);
    append(0, EVENTS);
    while (n < WARM_UP)
        assert_true(kj_events_step(events, -1, count, &n, NULL) > 0);
    size_t before = n_calls;
    while (n < EVENTS)
        assert_true(kj_events_step(events, -1, count, &n, NULL) > 0);
    size_t calls = n_calls - before;
    for (int k = 0; k < 100; k++) {
        append(EVENTS + k * TAGS, TAGS);
        before = n_calls;
        assert_int_equal(kj_events_step(events, -1, count, &n, NULL), TAGS);
        calls += n_calls - before;
    }
    kj_events_close(events);
    return calls;
}

static void test_step_allocates_nothing(void **state)
{
    (void)state;
    assert_int_equal(allocations_of_step(0), 0);
}

/* Three columns of each tag, each time that they grow by half. */
static void test_history_allocates_to_grow(void **state)
{
    (void)state;
    size_t growths = 0;
    for (size_t capacity = WARM_UP / TAGS; capacity < EVENTS / TAGS + 100; capacity += capacity / 2)
        growths++;
    assert_in_range(allocations_of_step(KJ_EVENTS_KEEP), 1, 3 * TAGS * growths);
}

static void test_next_allocates_nothing(void **state)
{
    (void)state;
    append(0, EVENTS);
    kj_events *events = open_top(0, NULL, NULL);
    kj_columns *block;
    size_t before = 0;
    int n = 0;
    for (int r = 1; r > 0; n += r) {
        r = kj_events_next(events, 0, 1000, &block, NULL);
        kj_columns_unref(block);
        if (n == 0)
            before = n_calls;
    }
    assert_int_equal(n, EVENTS);
    assert_int_equal(n_calls - before, 0);
    kj_events_close(events);
}

/* What the refused call hit was given up or comes again: never is anything lost or twice. */
static int keep_trying(int r, size_t *failures)
{
    if (r < 0) {
        assert_int_equal(r, KJ_EMEM);
        ++*failures;
    }
    return r;
}

static kj_events *open_again(const char *cursor, size_t *failures)
{
    for (;;) {
        kj_error err = KJ_ERROR_INIT;
        kj_events *events = open_top(KJ_EVENTS_KEEP | KJ_EVENTS_POLL, cursor, &err);
        if (events)
            return events;
        keep_trying(err.code, failures);
    }
}

static void take_all(kj_events *events, double *next_value, size_t *failures)
{
    for (int r = 1; r != 0;) {
        kj_columns *block = NULL;
        r = keep_trying(kj_events_next(events, 0, 7, &block, NULL), failures);
        for (uint64_t k = 0; r > 0 && k < block->n; k++)
            assert_true(block->value[k] == (*next_value)++);
        kj_columns_unref(r < 0 ? NULL : block);
    }
}

static char *cursor_of(const kj_events *events, size_t *failures)
{
    char *cursor = NULL;
    while (keep_trying(kj_events_get_cursor(events, &cursor, NULL, NULL), failures) < 0)
        continue;
    return cursor;
}

static void check_history(kj_events *events, enum kj_merge merge, uint64_t n, size_t *failures)
{
    kj_columns *columns;
    while (keep_trying(kj_events_get_history(events, "run", "loss", 4, merge, &columns, NULL),
                       failures) < 0)
        continue;
    assert_int_equal(columns->n, n);
    kj_columns_unref(columns);
}

/* Whether the allocation of number `at` was made. */
static bool live_with_failure(size_t at)
{
    size_t failures = 0;
    double next_value = 0;
    append(0, 400);
    n_calls = 0;
    fail_at = at;
    kj_events *events = open_again(NULL, &failures);
    take_all(events, &next_value, &failures);
    check_history(events, KJ_MERGE_ALL, 40, &failures);
    check_history(events, KJ_MERGE_LAST, 40, &failures);
    char *cursor = cursor_of(events, &failures);
    kj_events_close(events);
    events = open_again(cursor, &failures);
    kj_free(cursor);
    size_t calls = n_calls;
    fail_at = SIZE_MAX;
    append(400, 5);
    fail_at = at < calls ? SIZE_MAX : n_calls + at - calls;
    take_all(events, &next_value, &failures);
    bool made = fail_at == SIZE_MAX || n_calls > fail_at;
    fail_at = SIZE_MAX;
    assert_true(next_value == 405);
    kj_events_close(events);
    kji_test_remove_tree(top);
    return made;
}

static void test_every_allocation_can_fail(void **state)
{
    (void)state;
    size_t at = 0;
    while (live_with_failure(at))
        at++;
    assert_true(at > 30);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(top, "/tmp/kji-memory-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fail_at = SIZE_MAX;
    kji_test_remove_tree(top);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_step_allocates_nothing),
        TEST(test_history_allocates_to_grow),
        TEST(test_next_allocates_nothing),
        TEST(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
