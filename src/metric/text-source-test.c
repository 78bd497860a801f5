/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"
#include "files.h"
#include "line-cut.h"
#include "metric-rows.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[64], path[128];
static char logged[1000];
static int n_logged;

static void append(const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, text, strlen(text), NULL), 0);
    close(fd);
}

static kj_events *open_text(const char *spec, uint32_t flags)
{
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    options.text_path = path;
    options.poll_ms = 3600000;
    kj_events *source = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_open(spec, &options, &source, &err) < 0)
        fail_msg("%s", err.message);
    return source;
}

static void assert_row(const kji_rows *rows, size_t k, int64_t step, double value)
{
    assert_true(k < rows->n);
    assert_true(rows->rows[k].step == step);
    assert_true(rows->rows[k].value == value || (isnan(value) && isnan(rows->rows[k].value)));
    assert_string_equal(rows->rows[k].run, ".");
    assert_string_equal(rows->rows[k].tag, "value");
}

static void test_matches_are_counted(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/val_loss=(\\S+)/", 0);
    append("start\nval_loss=0.5 acc=1\nnothing\nval_loss=nan\nval_loss=-inf\nval_loss=1e-3");
    assert_int_equal(kji_rows_drain(source, &got), 3);
    assert_row(&got, 0, 0, 0.5);
    assert_row(&got, 1, 1, NAN);
    assert_row(&got, 2, 2, -INFINITY);
    append("2\n"); /* the torn line becomes whole */
    assert_int_equal(kji_rows_drain(source, &got), 1);
    assert_row(&got, 3, 3, 1e-32);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_named_groups(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/step=(?<step>-?\\d+).*loss=(?<value>\\S+)/", 0);
    append("step=10 (x) loss=0.25\nstep=-2 loss=4\n");
    kji_rows_drain(source, &got);
    assert_row(&got, 0, 10, 0.25);
    assert_row(&got, 1, -2, 4);
    kj_events_close(source);
    kji_rows_done(&got);
    source = open_text("stdout:/(?<step>\\d+): (\\S+)/", 0);
    kji_rows_drain(source, &got);
    append("7: 8\n");
    kji_rows_drain(source, &got);
    assert_row(&got, 0, 7, 8);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_last_line_without_newline_counts_when_finished(void **state)
{
    (void)state;
    kji_rows got = {0};
    append("loss=1\nloss=2");
    kj_events *source = open_text("stdout:/loss=(\\S+)/", 0);
    assert_int_equal(kji_rows_drain(source, &got), 1);
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.waiting_files, 1);
    kj_events_finish(source);
    assert_int_equal(kji_rows_drain(source, &got), 1);
    assert_row(&got, 1, 1, 2);
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.waiting_files, 0);
    assert_int_equal(stats.records, 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_what_is_no_number_is_told_and_skipped(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/(?:step=(?<step>\\S+) )?loss=(?<value>\\S*)/", 0);
    append("loss=1\nloss=none\nstep=x loss=2\nloss=\nloss=3\n");
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, 2);
    assert_row(&got, 0, 0, 1);
    assert_row(&got, 1, 4, 3);
    assert_int_equal(n_logged, 3);
    assert_non_null(strstr(logged, "line 4: no number as value: \"\""));
    for (int k = 0; k < 20; k++)
        append("loss=x\n");
    kji_rows_drain(source, &got);
    assert_int_equal(n_logged, 10);
    assert_non_null(strstr(logged, "further ones are not reported"));
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_carriage_returns_start_the_line_anew(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/loss=(\\S+)$/", 0);
    append("loss=1\r\n10% loss=2\r20% loss=3\r");
    assert_int_equal(kji_rows_drain(source, &got), 1);
    append("100% loss=4\n");
    assert_int_equal(kji_rows_drain(source, &got), 1);
    assert_row(&got, 0, 0, 1);
    assert_row(&got, 1, 1, 4);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_long_lines_are_cut(void **state)
{
    (void)state;
    static char line[KJI_LINE_CUT + 100];
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/^loss=(\\S+)(?: x*)?$/", 0);
    memset(line, 'x', sizeof line - 1);
    memcpy(line, "loss=5 ", 7);
    append(line);
    append(" loss=6\nloss=7\n");
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, 2);
    assert_row(&got, 0, 0, 5);
    assert_row(&got, 1, 1, 7);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_bytes_that_are_not_utf8(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/\\x{3b5}=(\\S+)/", 0);
    append("\xff\xfe \xce\xb5=5 \xff\n");
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, 1);
    assert_row(&got, 0, 0, 5);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_work_is_bounded(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_text("stdout:/(a+)+(a+)+(a+)+b=(?<value>1)/", 0);
    append("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab=2 1\naaab=1\n");
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, 1);
    assert_int_equal(n_logged, 1);
    assert_non_null(strstr(logged, "takes too much work"));
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_file_that_appears_and_is_replaced(void **state)
{
    (void)state;
    kji_rows got = {0};
    snprintf(path, sizeof path, "%s/later/out.txt", top);
    kj_events *source = open_text("stdout:/loss=(\\S+)/", 0);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(kji_rows_drain(source, &got), 0);
    assert_int_equal(poll(&wait, 1, 0), 0);
    char folder[100];
    snprintf(folder, sizeof folder, "%s/later", top);
    mkdir(folder, 0700);
    kji_rows_drain(source, &got);
    append("loss=1\nloss=2\n");
    assert_int_equal(poll(&wait, 1, 60000), 1);
    kji_rows_await(source, &got, 2);
    assert_int_equal(truncate(path, 0), 0);
    kji_rows_drain(source, &got);
    append("loss=3\n");
    kji_rows_await(source, &got, 3);
    assert_row(&got, 2, 0, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_cursor(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    char *cursor;
    append("loss=1\nx\nloss=2\nlo");
    kj_events *source = open_text("stdout:/loss=(\\S+)/", 0);
    kji_rows_drain(source, &got);
    assert_int_equal(kj_events_get_cursor(source, &cursor, NULL, NULL), 0);
    kj_events_close(source);
    append("ss=3\n");
    options.text_path = path;
    options.cursor = cursor;
    assert_int_equal(kj_events_open("stdout:/loss=(\\S+)/", &options, &source, NULL), 0);
    kj_free(cursor);
    assert_int_equal(kji_rows_drain(source, &got), 1);
    assert_row(&got, 2, 2, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_stopping_early(void **state)
{
    (void)state;
    kji_rows got = {.stop_after = 1};
    append("loss=1\nloss=2\nloss=3");
    kj_events *source = open_text("stdout:/loss=(\\S+)/", KJ_EVENTS_FINISHED);
    for (int k = 0; k < 3; k++)
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 1);
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    assert_row(&got, 2, 2, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_text_that_cannot_be_read(void **state)
{
    (void)state;
    assert_int_equal(symlink(path, path), 0);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.text_path = path;
    kj_events *source = NULL;
    assert_int_equal(kj_events_open("stdout:/(x)/", &options, &source, NULL), 0);
    for (int k = 0; k < 2; k++)
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, NULL, NULL), 0);
    assert_int_equal(n_logged, 1);
    assert_non_null(
        strstr(logged, "out.txt: cannot be read: Too many levels of symbolic links; tried again"));
    kj_events_close(source);
}

static void keep_log(void *userdata, int level, const char *message)
{
    (void)userdata;
    if (level > KJ_LOG_WARNING)
        return;
    n_logged++;
    snprintf(logged, sizeof logged, "%s", message);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/kj-text-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(path, sizeof path, "%s/out.txt", top);
    n_logged = 0;
    kj_log_set(keep_log, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kj_log_set(NULL, NULL);
    kji_test_remove_tree(top);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_matches_are_counted),
        TEST(test_named_groups),
        TEST(test_last_line_without_newline_counts_when_finished),
        TEST(test_what_is_no_number_is_told_and_skipped),
        TEST(test_carriage_returns_start_the_line_anew),
        TEST(test_long_lines_are_cut),
        TEST(test_bytes_that_are_not_utf8),
        TEST(test_work_is_bounded),
        TEST(test_file_that_appears_and_is_replaced),
        TEST(test_cursor),
        TEST(test_stopping_early),
        TEST(test_text_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
