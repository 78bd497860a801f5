/* SPDX-License-Identifier: Apache-2.0 */
/* Points as columns, and the history of a series. */
#include "columns.h"
#include "event-make.h"
#include "mem.h"
#include "metric-rows.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FILE_1 "events.out.tfevents.1.h"

static const char *in_top(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", kji_test_top, name);
    return path;
}

static kj_events *open_at(const char *where, uint32_t flags)
{
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s", where);
    kj_events *events = NULL;
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), 0);
    return events;
}

/* `n` points of steps 0, 1, ... with values of a tenth of that, in two tags by turns. */
static void make_points(const char *name, int64_t from, int64_t n)
{
    kji_strbuf bytes = KJI_STRBUF_INIT;
    for (int64_t k = from; k < from + n; k++)
        kji_make_scalar(&bytes, k, 1000.0 + (double)k, k % 2 ? "odd" : "even", (float)k);
    kji_make_file(in_top(name), &bytes);
    kji_strbuf_done(&bytes);
}

static void assert_points(const kj_columns *columns, int64_t first, int64_t by, uint64_t n)
{
    assert_int_equal(columns->n, n);
    for (uint64_t k = 0; k < n; k++) {
        int64_t step = first + by * (int64_t)k;
        assert_int_equal(columns->step[k], step);
        assert_true(columns->wall_time[k] == 1000.0 + (double)step);
        assert_true(columns->value[k] == (double)step);
    }
}

/* The same points as by the callback, whatever the size of the blocks. */
static void check_next(const char *folder, uint64_t max_points)
{
    kji_rows rows = {0};
    kj_events *by_step = open_at(folder, 0), *by_block = open_at(folder, 0);
    kji_rows_drain(by_step, &rows);
    size_t at = 0;
    for (;;) {
        kj_columns *block = NULL;
        int r = kj_events_next(by_block, 0, max_points, &block, NULL);
        assert_true(r >= 0 && block->n == (uint64_t)r && block->n <= max_points);
        for (uint64_t k = 0; k < block->n; k++, at++) {
            const kji_row *row = &rows.rows[at];
            assert_int_equal(block->step[k], row->step);
            assert_memory_equal(&block->wall_time[k], &row->wall_time, sizeof(double));
            assert_memory_equal(&block->value[k], &row->value, sizeof(double));
            assert_int_equal(block->flags[k], row->flags);
            kj_tag_info info = KJ_TAG_INFO_INIT;
            if (row->flags & KJ_POINT_RESTART) {
                assert_int_equal(block->series[k], UINT32_MAX);
                continue;
            }
            assert_int_equal(kj_events_get_series(by_block, block->series[k], &info, NULL), 0);
            assert_int_equal(info.series, block->series[k]);
            assert_string_equal(info.run, row->run);
            assert_int_equal(info.tag_size, row->tag_size);
            assert_memory_equal(info.tag, row->tag, row->tag_size);
        }
        kj_columns_unref(block);
        if (r == 0)
            break;
    }
    assert_int_equal(at, rows.n);
    kj_events_close(by_step);
    kj_events_close(by_block);
    kji_rows_done(&rows);
}

static void test_next_gives_what_step_gives(void **state)
{
    (void)state;
    static const char *const cases[] = {"tf215_filewriter_v1", "torch_purge_resume",
                                        "torch_odd_values", "torch_add_scalars", "tf221_hparams"};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        KJI_CLEANUP(kji_freep) char *name = kji_format("events/cases/%s", cases[k]);
        for (uint64_t max_points = 1; max_points < 100; max_points = max_points * 3 + 1)
            check_next(kji_test_data(name), max_points);
    }
}

static void test_blocks_are_used_again_when_released(void **state)
{
    (void)state;
    make_points("a/" FILE_1, 0, 100);
    kj_events *events = open_at(in_top("a"), 0);
    kj_columns *held, *block;
    assert_int_equal(kj_events_next(events, 0, 10, &held, NULL), 10);
    assert_int_equal(kj_events_next(events, 0, 10, &block, NULL), 10);
    assert_ptr_not_equal(held, block);
    const kj_columns *released = block;
    kj_columns_unref(block);
    assert_int_equal(kj_events_next(events, 0, 10, &block, NULL), 10);
    assert_ptr_equal(released, block);
    assert_points(block, 20, 1, 10);
    assert_points(held, 0, 1, 10);
    kj_columns_unref(kj_columns_ref(held));
    kj_columns_unref(block);
    kj_events_close(events);
    assert_points(held, 0, 1, 10);
    kj_columns_unref(held);
    kj_columns_unref(NULL);
}

/* More than the pool has room for. */
static void test_all_blocks_can_be_held(void **state)
{
    (void)state;
    enum { BLOCKS = 50 };
    make_points("a/" FILE_1, 0, BLOCKS * 2);
    kj_events *events = open_at(in_top("a"), 0);
    kj_columns *blocks[BLOCKS + 1];
    for (size_t k = 0; k < BLOCKS; k++)
        assert_int_equal(kj_events_next(events, 0, 2, &blocks[k], NULL), 2);
    assert_int_equal(kj_events_next(events, 0, 2, &blocks[BLOCKS], NULL), 0);
    assert_int_equal(blocks[BLOCKS]->n, 0);
    kj_events_close(events);
    for (size_t k = 0; k < BLOCKS; k++)
        assert_points(blocks[k], (int64_t)k * 2, 1, 2);
    for (size_t k = 0; k <= BLOCKS; k++)
        kj_columns_unref(blocks[k]);
}

static void test_next_stops_within_an_event(void **state)
{
    (void)state;
    static const char *const tags[] = {"a", "b", "c", "d", "e"};
    static const float values[] = {0, 1, 2, 3, 4};
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_make_scalars(&bytes, 7, 1.0, tags, values, 5);
    kji_make_file(in_top("a/" FILE_1), &bytes);
    kji_strbuf_done(&bytes);
    kj_events *events = open_at(in_top("a"), 0);
    int n = 0;
    for (int r = 1; r > 0; n += r) {
        kj_columns *block;
        r = kj_events_next(events, 0, 2, &block, NULL);
        for (int k = 0; k < r; k++)
            assert_true(block->value[k] == n + k);
        kj_columns_unref(block);
    }
    assert_int_equal(n, 5);
    kj_events_close(events);
}

static kj_columns *history(kj_events *events, const char *run, const char *tag, enum kj_merge merge)
{
    kj_columns *columns = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_get_history(events, run, tag, strlen(tag), merge, &columns, &err) < 0)
        fail_msg("%s", err.message);
    return columns;
}

static void test_history_outlives_growth_and_reader(void **state)
{
    (void)state;
    kj_events *events = open_at(in_top("a"), KJ_EVENTS_KEEP);
    kj_columns *views[100];
    for (size_t k = 0; k < 100; k++) {
        make_points("a/" FILE_1, (int64_t)k * 10, 10);
        assert_int_equal(kj_events_step(events, -1, NULL, NULL, NULL), 10);
        views[k] = history(events, ".", "odd", KJ_MERGE_ALL);
        assert_null(views[k]->series);
        assert_null(views[k]->flags);
    }
    kj_columns *all = history(events, ".", "even", KJ_MERGE_ALL);
    kj_events_close(events);
    for (size_t k = 0; k < 100; k++) {
        assert_points(views[k], 1, 2, (k + 1) * 5);
        kj_columns_unref(views[k]);
    }
    assert_points(all, 0, 2, 500);
    kj_columns_unref(all);
}

static void test_history_while_blocks_are_taken(void **state)
{
    (void)state;
    make_points("a/" FILE_1, 0, 1000);
    kj_events *events = open_at(in_top("a"), KJ_EVENTS_KEEP);
    for (int r = 1; r > 0;) {
        kj_columns *block;
        r = kj_events_next(events, 0, 64, &block, NULL);
        kj_columns_unref(block);
    }
    kj_columns *even = history(events, ".", "even", KJ_MERGE_ALL);
    assert_points(even, 0, 2, 500);
    kj_columns_unref(even);
    kj_events_close(events);
}

static void test_history_of_nothing(void **state)
{
    (void)state;
    make_points("a/b/" FILE_1, 0, 4);
    kj_columns *columns = NULL;
    kj_error err = KJ_ERROR_INIT;
    kj_events *events = open_at(in_top("a"), 0);
    assert_int_equal(kj_events_get_history(events, "b", "odd", 3, 0, &columns, &err), KJ_ESTATE);
    kj_events_close(events);
    events = open_at(in_top("a"), KJ_EVENTS_KEEP);
    kj_events_step(events, 0, NULL, NULL, NULL);
    assert_int_equal(kj_events_get_history(events, "c", "odd", 3, 0, &columns, &err), KJ_ENOENT);
    assert_string_equal(err.message, "no run \"c\" (did you mean b?); there is b");
    assert_int_equal(kj_events_get_history(events, "b", "evens", 5, 0, &columns, &err), KJ_ENOENT);
    assert_string_equal(err.message, "no tag \"evens\" (did you mean even?); there are even, odd");
    assert_int_equal(kj_events_get_history(events, "b", "oddest", 3, 0, &columns, &err), 0);
    assert_points(columns, 1, 2, 2);
    kj_columns_unref(columns);
    kj_tag_info info = KJ_TAG_INFO_INIT;
    assert_int_equal(kj_events_get_series(events, 2, &info, &err), KJ_ENOENT);
    kj_events_close(events);
}

static void *read_and_release(void *userdata)
{
    kj_columns *view = userdata;
    double sum = 0;
    for (uint64_t k = 0; k < view->n; k++)
        sum += view->value[k] - (double)view->step[k];
    kj_columns_unref(view);
    return sum == 0 ? NULL : userdata;
}

/* A thread reads each view while the history grows on, and releases it. */
static void test_released_in_other_threads(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    kj_events *events = open_at(in_top("a"), KJ_EVENTS_KEEP);
    pthread_t threads[2 * ROUNDS];
    for (size_t k = 0; k < ROUNDS; k++) {
        kj_columns *block;
        make_points("a/" FILE_1, (int64_t)k * 50, 50);
        assert_int_equal(kj_events_next(events, -1, 0, &block, NULL), 50);
        kj_columns *view = history(events, ".", "even", KJ_MERGE_ALL);
        assert_int_equal(pthread_create(&threads[2 * k], NULL, read_and_release, view), 0);
        assert_int_equal(pthread_create(&threads[2 * k + 1], NULL, read_and_release, block), 0);
    }
    kj_columns *odd = history(events, ".", "odd", KJ_MERGE_ALL);
    kj_events_close(events);
    for (size_t k = 0; k < 2 * ROUNDS; k++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[k], &wrong), 0);
        assert_null(wrong);
    }
    assert_points(odd, 1, 2, ROUNDS * 25);
    kj_columns_unref(odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_TOP_TEST(test_next_gives_what_step_gives),
        KJI_TOP_TEST(test_blocks_are_used_again_when_released),
        KJI_TOP_TEST(test_all_blocks_can_be_held),
        KJI_TOP_TEST(test_next_stops_within_an_event),
        KJI_TOP_TEST(test_history_outlives_growth_and_reader),
        KJI_TOP_TEST(test_history_while_blocks_are_taken),
        KJI_TOP_TEST(test_history_of_nothing),
        KJI_TOP_TEST(test_released_in_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
