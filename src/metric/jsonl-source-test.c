/* SPDX-License-Identifier: Apache-2.0 */
#include "lines-place.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *text, const char *expected)
{
    kji_place_check_growth("jsonl:%s", text, expected);
}

static void test_step_and_time_by_their_names(void **state)
{
    (void)state;
    check("{\"step\": 3, \"wall_time\": 1700000000.25, \"loss\": 0.5, \"acc\": 1}\n"
          "{\"_step\": 4, \"_timestamp\": 12, \"loss\": 2e-3, \"_runtime\": 5}\n"
          "{\"epoch\": 0.5, \"global_step\": 10.0, \"time\": \"12:00\", \"lr\": 1}\n"
          "{\"iteration\": 7, \"epoch\": 1, \"loss\": 1}\n"
          "{\"epoch\": 2, \"loss\": 1}",
          ". loss 3 1700000000.25 0.5\n. acc 3 1700000000.25 1\n"
          ". loss 4 12 0.002\n. _runtime 4 12 5\n"
          ". epoch 10 nan 0.5\n. lr 10 nan 1\n"
          ". epoch 7 nan 1\n. loss 7 nan 1\n"
          ". loss 2 nan 1\n");
}

static void test_lines_without_step_are_counted(void **state)
{
    (void)state;
    check("{\"loss\": 1}\n\n{\"loss\": 2}\r\n[1]\n{\"epoch\": 0.25, \"loss\": 3}\n",
          ". loss 0 nan 1\n. loss 1 nan 2\n. epoch 2 nan 0.25\n. loss 2 nan 3\n");
}

static void test_all_kinds_of_values(void **state)
{
    (void)state;
    check("{\"step\":1,\"a\":NaN,\"b\":-Infinity,\"c\":\"Infinity\",\"d\":true,\"e\":\"x\",\"f\":"
          "null,"
          "\"g\":[1],\"h\":{\"i\":{\"j\":5},\"k\":\"NaN\"},\"l\":false,\"m\":1e400}\n",
          ". a 1 nan nan\n. b 1 nan -inf\n. c 1 nan inf\n. d 1 nan 1\n. h/i/j 1 nan 5\n"
          ". h/k 1 nan nan\n. l 1 nan 0\n. m 1 nan inf\n");
    check("{\"step\":1,\"loss\":1,\"loss\":2}\n", ". loss 1 nan 2\n");
    check("\xef\xbb\xbf{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n",
          ". loss 1 nan 1\n. loss 2 nan 2\n");
}

static void test_integers_of_64_bits(void **state)
{
    (void)state;
    check("{\"step\":9007199254740993,\"a\":1}\n{\"step\":-9223372036854775808,\"a\":2}\n"
          "{\"step\":9223372036854775807,\"a\":18446744073709551615}\n"
          "{\"step\":1,\"a\":1000000000000000000000000000000,\"b\":3}\n",
          ". a 9007199254740993 nan 1\n. a -9223372036854775808 nan 2\n"
          ". a 9223372036854775807 nan 1.844674407370955e+19\n. b 1 nan 3\n");
    assert_non_null(strstr(kji_place.logged, "integers of more than 64 bits"));
}

static void test_runs_and_own_output(void **state)
{
    (void)state;
    check("{\"run\":\"a/b\",\"tag\":\"x y\",\"step\":1,\"wall_time\":2.5,\"value\":\"NaN\"}\n"
          "{\"run\":\".\",\"tag\":\"t\",\"step\":2,\"wall_time\":\"NaN\",\"value\":-0.0}\n"
          "{\"run\":\"r\",\"step\":3,\"value\":4}\n"
          "{\"tag\":\"t\",\"step\":5,\"value\":6,\"loss\":7}\n",
          "a/b x y 1 2.5 nan\n. t 2 nan -0\nr value 3 nan 4\n. value 5 nan 6\n. loss 5 nan 7\n");
}

/* What `kajitori events --format jsonl` prints is what it was made of. */
static void test_listings_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {"keras3_epoch", "tf221_dtypes", "tf221_nan_inf",
                                        "torch_add_scalars"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char name[100], spec[1000];
        kji_rows expected = {0}, got = {0};
        snprintf(name, sizeof name, "events/cases/%s.jsonl", names[k]);
        kji_rows_load(&expected, kji_test_data(name));
        snprintf(spec, sizeof spec, "jsonl:%s", kji_test_data(name));
        kj_events *source = kji_place_open(spec, KJ_EVENTS_FINISHED);
        kji_rows_drain(source, &got);
        assert_int_equal(got.n, expected.n);
        kji_rows_assert_same(&got, &expected, 0, expected.n, names[k]);
        kj_events_close(source);
        kji_rows_done(&expected);
        kji_rows_done(&got);
    }
}

static void test_field_selects(void **state)
{
    (void)state;
    const char *text = "{\"step\":1,\"loss\":1,\"eval\":{\"loss\":2}}\n"
                       "{\"run\":\"b\",\"step\":2,\"loss\":3}\n";
    kji_place_check_growth("jsonl:%s:eval/loss", text, ". eval/loss 1 nan 2\n");
    kji_place_check_growth("jsonl:%s:b/loss", text, "b loss 2 nan 3\n");
    kji_place_check_growth("jsonl:%s:nothing", text, "");
}

static void test_bad_lines_are_skipped_and_told(void **state)
{
    (void)state;
    kji_place_append("{\"loss\":1}\n{\"loss\":\nnull\n\"x\"\n{\"loss\":2} x\n{\"loss\":3}\n");
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". loss 0 nan 1\n. loss 1 nan 3\n");
    assert_int_equal(kji_place.n_logged, 4);
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.skipped_records, 4);
    assert_int_equal(stats.records, 6);
    assert_int_equal(stats.points, 2);
    assert_int_equal(stats.skipped_bytes, 9 + 5 + 4 + 13);
    for (int k = 0; k < 20; k++)
        kji_place_append("x\n");
    kji_place_expect(source, "");
    assert_int_equal(kji_place.n_logged, 10);
    assert_non_null(strstr(kji_place.logged, "further ones are not reported"));
    kj_events_close(source);
}

static int count_range(void *userdata, const kj_damage *damage)
{
    char *text = userdata;
    size_t used = strlen(text);
    snprintf(text + used, 200 - used, "%s [%d, %d) record %d skipped %u\n",
             kj_damage_kind_name(damage->kind), (int)damage->begin, (int)damage->end,
             (int)damage->record, damage->skipped);
    return 0;
}

static int describe_file(void *userdata, const kj_file_info *file)
{
    assert_string_equal(file->path, kji_place.path);
    snprintf(userdata, 200, "%s size %d committed %d records %d points %d skipped %d present %u",
             kj_damage_kind_name(file->state), (int)file->file_size, (int)file->committed,
             (int)file->records, (int)file->points, (int)file->skipped_records, file->present);
    return 0;
}

static void test_files_and_ranges_of_damage(void **state)
{
    (void)state;
    char text[200] = "";
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, "");
    assert_int_equal(kj_events_list_files(source, describe_file, text), 0);
    assert_string_equal(text, "");
    kji_place_append("{\"a\":1}\nbad\n{\"a\":2,\"b\":3}\n{\"a\"");
    kji_place_expect(source, ". a 0 nan 1\n. a 1 nan 2\n. b 1 nan 3\n");
    assert_int_equal(kj_events_list_damage(source, count_range, text), 0);
    assert_string_equal(text, "message [8, 12) record 1 skipped 1\n"
                              "partial [26, 30) record 3 skipped 0\n");
    assert_int_equal(kj_events_list_files(source, describe_file, text), 0);
    assert_string_equal(text,
                        "partial size 30 committed 26 records 3 points 3 skipped 1 present 1");
    remove(kji_place.path);
    kji_place_expect(source, "");
    assert_int_equal(kj_events_list_files(source, describe_file, text), 0);
    assert_non_null(strstr(text, "present 0"));
    kj_events_close(source);
}

static void test_deep_and_long_lines(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *line = malloc((2 << 20) + 100);
    size_t size = (size_t)sprintf(line, "{\"text\":\"");
    memset(line + size, 'x', 2 << 20);
    strcpy(line + size + (2 << 20), "\",\"loss\":1}\n{\"loss\":2}\n");
    kji_place_append(line);
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". loss 0 nan 2\n");
    assert_non_null(strstr(kji_place.logged, "line 1: longer than 1048576 bytes: skipped"));
    kj_events_close(source);
    memset(line, '[', 1000);
    strcpy(line + 1000, "\n{\"loss\":3}\n");
    kji_place_rewrite(line);
    source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". loss 0 nan 3\n");
    kj_events_close(source);
}

static void test_torn_lines_are_waited_for(void **state)
{
    (void)state;
    kji_place_append("{\"loss\":1}\n{\"loss\":2");
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". loss 0 nan 1\n");
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.waiting_files, 1);
    assert_int_equal(stats.bytes, 11);
    kj_events_finish(source); /* its writer was killed: it is no line, and is told */
    kji_place_expect(source, "");
    assert_int_equal(kji_place.n_logged, 1);
    kj_events_close(source);
}

static void test_replaced_and_rewritten(void **state)
{
    (void)state;
    kji_place_append("{\"loss\":1}\n{\"loss\":2}\n");
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". loss 0 nan 1\n. loss 1 nan 2\n");
    kji_place_replace("{\"loss\":1}\n{\"loss\":2}\n{\"loss\":3}\n"); /* a longer copy */
    kji_place_expect(source, ". loss 2 nan 3\n");
    kji_place_replace("{\"loss\":4}\n{\"loss\":2}\n{\"loss\":3}\n{\"loss\":5}\n");
    kji_place_expect(source, ". loss 0 nan 4\n. loss 1 nan 2\n. loss 2 nan 3\n. loss 3 nan 5\n");
    kji_place_rewrite("{\"loss\":6}\n"); /* in place, shorter */
    kji_place_expect(source, ". loss 0 nan 6\n");
    kji_place_rewrite("{\"loss\":7}\n{\"loss\":8}\n"); /* in place, longer */
    kji_place_expect(source, ". loss 0 nan 7\n. loss 1 nan 8\n");
    kji_place_rewrite("{\"loss\":7}\n{\"loss\":8}\n{\"loss\":9}\n"); /* as it was, and more */
    kji_place_expect(source, ". loss 2 nan 9\n");
    remove(kji_place.path);
    kji_place_expect(source, "");
    kji_place_append("{\"loss\":7}\n{\"loss\":8}\n{\"loss\":9}\n{\"loss\":10}\n");
    kji_place_expect(source, ". loss 3 nan 10\n");
    kj_events_close(source);
}

static int collect_one(void *userdata, const kj_point *point)
{
    double *value = userdata;
    *value = point->value;
    return 1;
}

static void test_a_line_is_handed_over_in_several_goes(void **state)
{
    (void)state;
    double value = 0;
    kji_place_append("{\"a\":1,\"b\":2}\n{\"a\":3,\"b\":4}\n");
    kj_events *source = kji_place_open("jsonl:%s", 0);
    for (int k = 1; k <= 4; k++) {
        assert_int_equal(kj_events_step(source, 0, collect_one, &value, NULL), 1);
        assert_true(value == k);
    }
    assert_int_equal(kj_events_step(source, 0, collect_one, &value, NULL), 0);
    kj_events_close(source);
}

static void test_cursor(void **state)
{
    (void)state;
    kji_place_check_cursor("jsonl:%s",
                           "{\"a\":1,\"b\":2}\nbad\n{\"a\":3}\n{\"run\":\"x\",\"a\":4}\n{\"a\":5}",
                           ". a 0 nan 1\n. b 0 nan 2\n. a 1 nan 3\nx a 2 nan 4\n. a 3 nan 5\n");
    assert_int_equal(kji_place.n_logged, 1); /* the bad line has been read once only */
}

static void test_cursor_of_another_file(void **state)
{
    (void)state;
    char text[200] = "";
    kji_place_append("{\"a\":1}\nbad\n{\"a\":2}\n{\"a\"");
    kj_events *source = kji_place_open("jsonl:%s", 0);
    kji_place_expect(source, ". a 0 nan 1\n. a 1 nan 2\n");
    source = kji_place_reopen(source, "jsonl:%s", 0);
    kji_place_append(":3}\n");
    kji_place_expect(source, ". a 2 nan 3\n");
    kj_events_list_damage(source, count_range, text);
    assert_string_equal(text, "message [8, 12) record 1 skipped 1\n");
    source = kji_place_reopen(source, "jsonl:%s", 0);
    kji_place_rewrite("{\"a\":4}\nbad\n{\"a\":2}\n{\"a\":3}\n{\"a\":5}\n");
    kji_place_expect(source, ". a 0 nan 4\n. a 1 nan 2\n. a 2 nan 3\n. a 3 nan 5\n");
    source = kji_place_reopen(source, "jsonl:%s", 0);
    kji_place_rewrite("{\"a\":6}\n"); /* shorter */
    kji_place_expect(source, ". a 0 nan 6\n");
    kj_events_close(source);
}

static void test_not_a_file(void **state)
{
    (void)state;
    char spec[200];
    kj_events *source = NULL;
    kj_error err = KJ_ERROR_INIT;
    snprintf(spec, sizeof spec, "jsonl:%s", kji_place.top);
    assert_int_equal(kj_events_open(spec, NULL, &source, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "is a folder; name the file in it"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_PLACE_TEST(test_step_and_time_by_their_names),
        KJI_PLACE_TEST(test_lines_without_step_are_counted),
        KJI_PLACE_TEST(test_all_kinds_of_values),
        KJI_PLACE_TEST(test_integers_of_64_bits),
        KJI_PLACE_TEST(test_runs_and_own_output),
        KJI_PLACE_TEST(test_listings_are_read_back),
        KJI_PLACE_TEST(test_field_selects),
        KJI_PLACE_TEST(test_bad_lines_are_skipped_and_told),
        KJI_PLACE_TEST(test_files_and_ranges_of_damage),
        KJI_PLACE_TEST(test_deep_and_long_lines),
        KJI_PLACE_TEST(test_torn_lines_are_waited_for),
        KJI_PLACE_TEST(test_replaced_and_rewritten),
        KJI_PLACE_TEST(test_a_line_is_handed_over_in_several_goes),
        KJI_PLACE_TEST(test_cursor),
        KJI_PLACE_TEST(test_cursor_of_another_file),
        KJI_PLACE_TEST(test_not_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
