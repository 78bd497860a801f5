/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The merges of a history, against a simple oracle: a table of the points that are valid, which
 * each RESTART empties from its step on.
 */
#include "event-make.h"
#include "mem.h"
#include "metric-rows.h"
#include "rng.h"

#include <stdio.h>
#include <string.h>

static kj_events *open_kept(const char *folder)
{
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = KJ_EVENTS_KEEP;
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s", folder);
    kj_events *events = NULL;
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), 0);
    return events;
}

static kj_columns *history(kj_events *events, const kj_tag_info *of, enum kj_merge merge)
{
    kj_columns *columns = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_get_history(events, of->run, of->tag, of->tag_size, merge, &columns, &err) < 0)
        fail_msg("%s", err.message);
    return columns;
}

/* Pointers to rows, by step. */
struct table {
    const kji_row **rows;
    size_t n, capacity;
};

static void table_cut(struct table *table, int64_t step)
{
    while (table->n && table->rows[table->n - 1]->step >= step)
        table->n--;
}

static void table_set(struct table *table, const kji_row *row, bool replace)
{
    size_t at = table->n;
    while (at && table->rows[at - 1]->step >= row->step)
        at--;
    if (at < table->n && table->rows[at]->step == row->step) {
        if (replace)
            table->rows[at] = row;
        return;
    }
    assert_true(kji_reserve(&table->rows, &table->capacity, table->n + 1, sizeof *table->rows));
    memmove(table->rows + at + 1, table->rows + at, (table->n - at) * sizeof *table->rows);
    table->rows[at] = row;
    table->n++;
}

static void table_append(struct table *table, const kji_row *row)
{
    assert_true(kji_reserve(&table->rows, &table->capacity, table->n + 1, sizeof *table->rows));
    table->rows[table->n++] = row;
}

static struct table expected(const kji_rows *rows, const kj_tag_info *of, enum kj_merge merge)
{
    struct table table = {0};
    for (size_t k = 0; k < rows->n; k++) {
        const kji_row *row = &rows->rows[k];
        if (strcmp(row->run, of->run) != 0)
            continue;
        if (row->flags & KJ_POINT_RESTART) {
            if (merge == KJ_MERGE_LAST)
                table_cut(&table, row->step);
        } else if (row->tag_size == of->tag_size && memcmp(row->tag, of->tag, row->tag_size) == 0) {
            if (merge == KJ_MERGE_ALL)
                table_append(&table, row);
            else
                table_set(&table, row, merge == KJ_MERGE_LAST);
        }
    }
    return table;
}

struct check {
    kj_events *events;
    const kji_rows *rows;
    size_t n_tags;
};

static int check_tag(void *userdata, const kj_tag_info *info)
{
    struct check *check = userdata;
    for (enum kj_merge merge = KJ_MERGE_ALL; merge <= KJ_MERGE_FIRST; merge++) {
        struct table table = expected(check->rows, info, merge);
        kj_columns *columns = history(check->events, info, merge);
        assert_int_equal(columns->n, table.n);
        for (size_t k = 0; k < table.n; k++) {
            assert_int_equal(columns->step[k], table.rows[k]->step);
            assert_memory_equal(&columns->value[k], &table.rows[k]->value, sizeof(double));
            assert_memory_equal(&columns->wall_time[k], &table.rows[k]->wall_time, sizeof(double));
        }
        kj_columns_unref(columns);
        free(table.rows);
    }
    check->n_tags++;
    return 0;
}

/* `by`: look at the merges each time that so many points have come. */
static size_t check_folder(const char *folder, size_t by)
{
    kji_rows rows = {.stop_after = by};
    struct check check = {open_kept(folder), &rows, 0};
    while (kj_events_step(check.events, 0, kji_rows_collect, &rows, NULL) > 0)
        for (uint32_t k = 0;; k++) {
            kj_tag_info info = KJ_TAG_INFO_INIT;
            if (kj_events_get_series(check.events, k, &info, NULL) < 0)
                break;
            check_tag(&check, &info);
        }
    kj_events_close(check.events);
    kji_rows_done(&rows);
    return check.n_tags;
}

static void test_cases(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "tf215_filewriter_v1", "torch_purge_resume", "torch_odd_values",    "keras3_nan_training",
        "tf221_interleaved",   "tf221_hparams",      "tbx_scalars_hparams", "torch_add_scalars"};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        KJI_CLEANUP(kji_freep) char *name = kji_format("events/cases/%s", cases[k]);
        assert_true(check_folder(kji_test_data(name), 0) > 0);
        check_folder(kji_test_data(name), 7);
    }
}

/* What the user of a resumed run wants to see. */
static void test_no_stale_values_after_purge(void **state)
{
    (void)state;
    kj_events *events = open_kept(kji_test_data("events/cases/torch_purge_resume"));
    assert_int_equal(kj_events_step(events, 0, NULL, NULL, NULL), 48 + 2);
    const kj_tag_info loss = {.run = "run", .tag = "loss", .tag_size = 4};
    kj_columns *columns = history(events, &loss, KJ_MERGE_LAST);
    assert_int_equal(columns->n, 16);
    for (int k = 0; k < 16; k++) {
        assert_int_equal(columns->step[k], k);
        assert_true(columns->value[k] == (k < 5 ? k : k < 9 ? 100 + k : 200 + k));
    }
    kj_columns_unref(columns);
    kj_events_close(events);

    events = open_kept(kji_test_data("events/cases/tf215_filewriter_v1"));
    kj_events_step(events, 0, NULL, NULL, NULL);
    const kj_tag_info a = {.run = "run", .tag = "loss/a", .tag_size = 6};
    columns = history(events, &a, KJ_MERGE_LAST);
    assert_int_equal(columns->n, 30);
    for (int k = 0; k < 30; k++) {
        assert_int_equal(columns->step[k], k);
        assert_true(columns->value[k] == (float)(k < 15 ? 1.0 / (k + 1) : 2.0 / (k + 1)));
    }
    kj_columns_unref(columns);
    kj_events_close(events);
}

/* A restarted run need not write again all that was taken back. */
static void test_taken_back_and_not_written_again(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/a/events.out.tfevents.1.h", kji_test_top);
    kji_strbuf bytes = KJI_STRBUF_INIT;
    for (int64_t k = 0; k < 10; k++)
        kji_make_scalar(&bytes, k, 1.0, "x", 1);
    kji_make_scalar(&bytes, 9, 1.0, "y", 1);
    kji_make_start(&bytes, 4);
    kji_make_start(&bytes, 2);
    kji_make_start(&bytes, 6);
    kji_make_scalar(&bytes, 7, 1.0, "x", 2);
    kji_make_file(path, &bytes);
    kji_strbuf_done(&bytes);
    KJI_CLEANUP(kji_freep) char *folder = kji_format("%s/a", kji_test_top);
    kj_events *events = open_kept(folder);
    kj_events_step(events, 0, NULL, NULL, NULL);
    const kj_tag_info x = {.run = ".", .tag = "x", .tag_size = 1},
                      y = {.run = ".", .tag = "y", .tag_size = 1};
    kj_columns *columns = history(events, &x, KJ_MERGE_LAST);
    assert_int_equal(columns->n, 3);
    assert_int_equal(columns->step[1], 1);
    assert_int_equal(columns->step[2], 7);
    kj_columns_unref(columns);
    columns = history(events, &y, KJ_MERGE_LAST);
    assert_int_equal(columns->n, 0);
    kj_columns_unref(columns);
    columns = history(events, &y, KJ_MERGE_FIRST);
    assert_int_equal(columns->n, 1);
    kj_columns_unref(columns);
    kj_events_close(events);
}

/* Steps that jump, repeat and go back in several tags, files and runs, with restarts among them. */
static void test_random_files(void **state)
{
    (void)state;
    static const char *const tags[] = {"a", "b", "c"};
    kji_rng rng;
    kji_rng_seed(&rng, 5);
    for (int round = 0; round < 40; round++) {
        KJI_CLEANUP(kji_freep) char *folder = kji_format("%s/%d", kji_test_top, round);
        for (int file = 0; file < 4; file++) {
            KJI_CLEANUP(kji_freep)
            char *path = kji_format("%s/%d/events.out.tfevents.%d.h", folder, file / 2, file);
            kji_strbuf bytes = KJI_STRBUF_INIT;
            for (int k = 0; k < 40; k++) {
                int64_t step = (int64_t)(kji_rng_uint32(&rng) % 12) - 2;
                if (kji_rng_uint32(&rng) % 10 == 0)
                    kji_make_start(&bytes, step);
                else
                    kji_make_scalar(&bytes, step, 1.0, tags[kji_rng_uint32(&rng) % 3], (float)k);
            }
            kji_make_file(path, &bytes);
            kji_strbuf_done(&bytes);
        }
        check_folder(folder, round % 2 ? 0 : 17);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_TOP_TEST(test_cases),
        KJI_TOP_TEST(test_no_stale_values_after_purge),
        KJI_TOP_TEST(test_taken_back_and_not_written_again),
        KJI_TOP_TEST(test_random_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
