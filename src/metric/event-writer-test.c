/* SPDX-License-Identifier: Apache-2.0 */
/* What is written is read back, in the files that are to be. */
#include "event-tail.h"
#include "event-writer-impl.h"
#include "files.h"
#include "mem.h"
#include "metric-rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static kj_event_writer *open_in(const char *dir, uint32_t flags)
{
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.flags = flags;
    kj_event_writer *writer = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_event_writer_open(dir, &options, &writer, &err) < 0)
        fail_msg("%s", err.message);
    return writer;
}

static void add(kj_event_writer *writer, const char *tag, int64_t step, double value)
{
    kj_error err = KJ_ERROR_INIT;
    if (kj_event_writer_add_scalar(writer, tag, step, 1000.5, value, &err) < 0)
        fail_msg("%s", err.message);
}

static void close_writer(kj_event_writer *writer)
{
    assert_int_equal(kj_event_writer_close(writer, NULL), 0);
}

/* Everything that is below the folder, and nothing that waits or is damaged. */
static kji_rows read_back(const char *dir)
{
    char spec[300];
    kj_events *events = NULL;
    kji_rows rows = {0};
    snprintf(spec, sizeof spec, "events:%s", dir);
    assert_int_equal(kj_events_open(spec, NULL, &events, NULL), 0);
    kji_rows_drain(events, &rows);
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    assert_int_equal(stats.skipped_bytes, 0);
    assert_int_equal(stats.waiting_files, 0);
    kj_events_close(events);
    return rows;
}

static size_t count_files(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += strstr(entry->d_name, "tfevents") != NULL;
    closedir(dir);
    return n;
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

struct value {
    const char *tag;
    int64_t step;
    double wall_time, value;
};

static const struct value values[] = {
    {"loss", 0, 0, 0.25},
    {"loss", 1, 1e-300, NAN},
    {"loss", -1, -1, INFINITY},
    {"loss", INT64_MIN, 1.7e9, -INFINITY},
    {"loss", INT64_MAX, 1.7e9 + 0.125, -0.0},
    {"a", 127, 1, FLT_MAX},
    {"a", 128, 1, FLT_TRUE_MIN},
    {"損失/\xf0\x9f\xa6\x8a \"x=1\"\n\x01", 300, 1, 1},
};
enum { N_VALUES = sizeof values / sizeof *values };

static void check_values(uint32_t flags)
{
    kj_event_writer *writer = open_in(kji_test_top, flags);
    for (size_t k = 0; k < N_VALUES; k++)
        assert_int_equal(kj_event_writer_add_scalar(writer, values[k].tag, values[k].step,
                                                    values[k].wall_time, values[k].value, NULL),
                         0);
    close_writer(writer);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, N_VALUES);
    for (size_t k = 0; k < N_VALUES; k++) {
        assert_string_equal(rows.rows[k].tag, values[k].tag);
        assert_int_equal(rows.rows[k].step, values[k].step);
        assert_memory_equal(&rows.rows[k].wall_time, &values[k].wall_time, 8);
        assert_true(isnan(values[k].value) ? isnan(rows.rows[k].value)
                                           : rows.rows[k].value == values[k].value);
    }
    assert_true(signbit(rows.rows[4].value));
    kji_rows_done(&rows);
}

static void test_any_value_as_float(void **state)
{
    (void)state;
    check_values(0);
}

static void test_any_value_as_double(void **state)
{
    (void)state;
    check_values(KJ_EVENT_WRITER_DOUBLE | KJ_EVENT_WRITER_BUFFER);
}

static void test_double_is_exact(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_DOUBLE);
    add(writer, "x", 1, 0.1);
    close_writer(writer);
    writer = open_in(kji_test_top, 0);
    add(writer, "x", 2, 0.1);
    close_writer(writer);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 2);
    assert_true(rows.rows[0].value == 0.1 && rows.rows[1].value == (double)0.1f);
    kji_rows_done(&rows);
}

static void test_tag_of_any_length(void **state)
{
    (void)state;
    static char tag[4098];
    kj_event_writer *writer = open_in(kji_test_top, 0);
    memset(tag, 'x', 4097);
    assert_int_equal(kj_event_writer_add_scalar(writer, tag, 1, 1, 1, NULL), KJ_EARG);
    for (size_t size = 1; size <= 4096; size += size < 300 ? 1 : 949) {
        memset(tag, 'x', size);
        tag[size] = 0;
        add(writer, tag, (int64_t)size, 1);
    }
    close_writer(writer);
    kji_rows rows = read_back(kji_test_top);
    for (size_t k = 0; k < rows.n; k++)
        assert_int_equal(rows.rows[k].tag_size, rows.rows[k].step);
    assert_int_equal(rows.rows[rows.n - 1].tag_size, 4096);
    kji_rows_done(&rows);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    kj_event_writer *writer = NULL;
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.flags = 8;
    assert_int_equal(kj_event_writer_open(kji_test_top, &options, &writer, NULL), KJ_EARG);
    options.flags = 0;
    static const char *const suffixes[] = {"/x", ".gz", ".x.profile-empty"};
    for (size_t k = 0; k < 3; k++) {
        options.suffix = suffixes[k];
        assert_int_equal(kj_event_writer_open(kji_test_top, &options, &writer, NULL), KJ_EARG);
    }
    assert_int_equal(kj_event_writer_open("", NULL, &writer, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_open(NULL, NULL, &writer, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_open("/dev/null/x", NULL, &writer, NULL), KJ_EIO);
    assert_null(writer);
    writer = open_in(kji_test_top, 0);
    off_t size = size_of(kj_event_writer_path(writer));
    assert_int_equal(kj_event_writer_add_scalar(writer, "", 0, 0, 0, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_add_scalar(writer, NULL, 0, 0, 0, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_add_scalar(writer, "\xff", 0, 0, 0, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_add_scalar(writer, "x", 0, INFINITY, 0, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_add_text(writer, "x", 0, 0, NULL, NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_add_text(writer, "x", 0, 0, "\xc3", NULL), KJ_EARG);
    assert_int_equal(kj_event_writer_end_hparams(writer, 0, 0, NULL), KJ_EARG);
    assert_int_equal(size_of(kj_event_writer_path(writer)), size);
    close_writer(writer);
    assert_int_equal(kj_event_writer_close(NULL, NULL), 0);
}

static void test_hparams_that_are_refused(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, 0);
    kj_hparam param = {.name = "x", .value = {.type = KJ_TYPE_NONE}};
    kj_hparams hparams = KJ_HPARAMS_INIT;
    hparams.params = &param;
    hparams.n_params = 1;
    assert_int_equal(kj_event_writer_add_hparams(writer, &hparams, NULL), KJ_EARG);
    param.value.type = KJ_TYPE_STRING;
    assert_int_equal(kj_event_writer_add_hparams(writer, &hparams, NULL), KJ_EARG);
    param.value.s = "";
    param.name = "";
    assert_int_equal(kj_event_writer_add_hparams(writer, &hparams, NULL), KJ_EARG);
    param.name = "x";
    assert_int_equal(kj_event_writer_add_hparams(writer, &hparams, NULL), 0);
    hparams.size = 8;
    assert_int_equal(kj_event_writer_add_hparams(writer, &hparams, NULL), KJ_EARG);
    close_writer(writer);
}

static void test_buffer_waits_and_flush_does_not(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_BUFFER);
    off_t begin = size_of(kj_event_writer_path(writer));
    add(writer, "x", 1, 1);
    assert_int_equal(size_of(kj_event_writer_path(writer)), begin);
    assert_int_equal(kj_event_writer_flush(writer, NULL), 0);
    off_t one = size_of(kj_event_writer_path(writer)) - begin;
    assert_true(one > 0);
    for (off_t k = 1; k < 65536 / one + 1; k++)
        add(writer, "x", 1, 1);
    assert_int_equal(size_of(kj_event_writer_path(writer)), begin + one);
    add(writer, "x", 1, 1);
    assert_int_equal(size_of(kj_event_writer_path(writer)), begin + one + 65536 / one * one);
    assert_int_equal(kj_event_writer_sync(writer, NULL), 0);
    assert_int_equal(size_of(kj_event_writer_path(writer)), begin + (65536 / one + 2) * one);
    close_writer(writer);
}

static void test_large_text_keeps_its_place(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 2);
    memset(text, 't', SIZE + 1);
    text[SIZE + 1] = 0;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_BUFFER);
    add(writer, "x", 1, 1);
    assert_int_equal(kj_event_writer_add_text(writer, "t", 1, 0, text, NULL), KJ_EARG);
    text[SIZE] = 0;
    assert_int_equal(kj_event_writer_add_text(writer, "t", 1, 0, text, NULL), 0);
    add(writer, "x", 2, 1);
    close_writer(writer);
    free(text);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 2);
    kji_rows_done(&rows);
}

static void test_restart_is_told(void **state)
{
    (void)state;
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.has_purge_step = 1;
    options.purge_step = 2;
    kj_event_writer *writer = open_in(kji_test_top, 0);
    for (int64_t step = 0; step < 4; step++)
        add(writer, "x", step, 1);
    close_writer(writer);
    assert_int_equal(kj_event_writer_open(kji_test_top, &options, &writer, NULL), 0);
    add(writer, "x", 2, 2);
    close_writer(writer);
    kji_rows rows = read_back(kji_test_top);
    assert_true(rows.n > 5);
    assert_int_equal(rows.rows[3].step, 3);
    for (size_t k = 4; k + 1 < rows.n; k++) {
        assert_int_equal(rows.rows[k].flags, KJ_POINT_RESTART);
        assert_int_equal(rows.rows[k].step, 2);
    }
    assert_true(rows.rows[rows.n - 1].value == 2);
    kji_rows_done(&rows);
}

static void test_new_files_stand_behind_old_ones(void **state)
{
    (void)state;
    char last[300] = "", path[300];
    for (int k = 0; k < 12; k++) {
        kj_event_writer *writer = open_in(kji_test_top, 0);
        add(writer, "x", k, 1);
        snprintf(path, sizeof path, "%s", kj_event_writer_path(writer));
        assert_true(strcmp(last, path) < 0);
        memcpy(last, path, sizeof last);
        close_writer(writer);
    }
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 12);
    for (size_t k = 0; k < rows.n; k++)
        assert_int_equal(rows.rows[k].step, k);
    kji_rows_done(&rows);
}

static void test_many_openers_of_one_second(void **state)
{
    (void)state;
    kj_event_writer *writers[50];
    for (int k = 0; k < 50; k++) {
        writers[k] = open_in(kji_test_top, 0);
        add(writers[k], "x", k, 1);
    }
    for (int k = 0; k < 50; k++)
        close_writer(writers[k]);
    assert_int_equal(count_files(kji_test_top), 50);
}

static void test_folders_are_made(void **state)
{
    (void)state;
    char dir[200], path[300];
    snprintf(dir, sizeof dir, "%s/a/b/c", kji_test_top);
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.suffix = ".v2";
    kj_event_writer *writer;
    assert_int_equal(kj_event_writer_open(dir, &options, &writer, NULL), 0);
    snprintf(path, sizeof path, "%s", kj_event_writer_path(writer));
    assert_memory_equal(path, dir, strlen(dir));
    assert_string_equal(path + strlen(path) - 3, ".v2");
    close_writer(writer);
    assert_int_equal(count_files(dir), 1);
}

static void append_one(const char *dir, const char *suffix, int64_t step)
{
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.flags = KJ_EVENT_WRITER_APPEND;
    options.suffix = suffix;
    kj_event_writer *writer;
    assert_int_equal(kj_event_writer_open(dir, &options, &writer, NULL), 0);
    add(writer, "x", step, 1);
    close_writer(writer);
}

static void test_append_goes_on(void **state)
{
    (void)state;
    for (int k = 0; k < 10; k++)
        append_one(kji_test_top, NULL, k);
    assert_int_equal(count_files(kji_test_top), 1);
    append_one(kji_test_top, ".other", 10);
    assert_int_equal(count_files(kji_test_top), 2);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 11);
    kji_rows_done(&rows);
}

static void test_two_writers_of_a_process_share(void **state)
{
    (void)state;
    kj_event_writer *one = open_in(kji_test_top, KJ_EVENT_WRITER_APPEND);
    kj_event_writer *two = open_in(kji_test_top, KJ_EVENT_WRITER_APPEND | KJ_EVENT_WRITER_BUFFER);
    assert_string_equal(kj_event_writer_path(one), kj_event_writer_path(two));
    for (int k = 0; k < 3000; k++)
        add(k % 2 ? one : two, k % 2 ? "one" : "two", k, 1);
    close_writer(two);
    close_writer(one);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 3000);
    kji_rows_done(&rows);
}

static void test_append_leaves_others_alone(void **state)
{
    (void)state;
    append_one(kji_test_top, NULL, 0);
    kj_event_writer *alone = open_in(kji_test_top, 0); /* its owner does not lock */
    append_one(kji_test_top, NULL, 1);
    append_one(kji_test_top, NULL, 2);
    assert_int_equal(count_files(kji_test_top), 3);
    add(alone, "x", 3, 1);
    close_writer(alone);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 4);
    kji_rows_done(&rows);
}

static void test_append_leaves_a_torn_file_alone(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_APPEND);
    add(writer, "x", 0, 1);
    char path[300];
    snprintf(path, sizeof path, "%s", kj_event_writer_path(writer));
    close_writer(writer);
    off_t size = size_of(path);
    assert_int_equal(truncate(path, size - 1), 0);
    append_one(kji_test_top, NULL, 1);
    assert_int_equal(size_of(path), size - 1);
    assert_int_equal(count_files(kji_test_top), 2);
}

/* Another process that shares the file was killed in the midst of a record. */
static void test_shared_file_is_mended(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_APPEND);
    add(writer, "x", 0, 1);
    int fd = open(kj_event_writer_path(writer), O_WRONLY | O_APPEND);
    static const char torn[] = "\x30\0\0\0\0\0\0\0\x00";
    assert_int_equal(kji_write_all(fd, torn, sizeof torn - 1, NULL), 0);
    add(writer, "x", 1, 1);
    assert_int_equal(
        truncate(kj_event_writer_path(writer), size_of(kj_event_writer_path(writer)) - 3), 0);
    add(writer, "x", 2, 1);
    close(fd);
    close_writer(writer);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 2);
    assert_int_equal(rows.rows[0].step, 0);
    assert_int_equal(rows.rows[1].step, 2);
    kji_rows_done(&rows);
}

static void test_shared_file_that_was_removed(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_APPEND);
    assert_int_equal(unlink(kj_event_writer_path(writer)), 0);
    assert_int_equal(kj_event_writer_add_scalar(writer, "x", 0, 0, 0, NULL), KJ_EIO);
    kj_event_writer_close(writer, NULL);
}

static void test_tail_at_any_cut(void **state)
{
    (void)state;
    kj_event_writer *writer = open_in(kji_test_top, KJ_EVENT_WRITER_BUFFER);
    for (int k = 0; k < 3000; k++)
        add(writer, k % 3 ? "loss" : "a/longer/tag", k, k);
    char path[300];
    snprintf(path, sizeof path, "%s", kj_event_writer_path(writer));
    close_writer(writer);
    off_t size = size_of(path), before = 0, end;
    int fd = open(path, O_RDWR);
    assert_true(size > 2 * KJI_TAIL_WINDOW);
    for (off_t cut = 0; cut < 200; cut++) {
        assert_int_equal(ftruncate(fd, size - cut), 0);
        assert_int_equal(kji_event_tail(fd, 0, size - cut, &end, NULL), 0);
        assert_true(end <= size - cut && end > size - cut - 60);
        assert_true(cut == 0 || end <= before);
        before = end;
        assert_int_equal(kji_event_tail(fd, end, size - cut, &before, NULL), 0);
        assert_int_equal(before, end);
    }
    assert_int_equal(kji_event_tail(fd, 0, 0, &end, NULL), 0);
    assert_int_equal(end, 0);
    close(fd);
}

static void test_tail_of_a_large_record(void **state)
{
    (void)state;
    char *text = calloc(1, 300001);
    memset(text, 't', 300000);
    kj_event_writer *writer = open_in(kji_test_top, 0);
    for (int k = 0; k < 3; k++)
        assert_int_equal(kj_event_writer_add_text(writer, "t", k, 0, text, NULL), 0);
    free(text);
    off_t size = size_of(kj_event_writer_path(writer)), end;
    int fd = open(kj_event_writer_path(writer), O_RDWR);
    assert_int_equal(kji_event_tail(fd, 0, size, &end, NULL), 0);
    assert_int_equal(end, size);
    close(fd);
    close_writer(writer);
}

static void test_forked_copy_writes_nothing(void **state)
{
    (void)state;
    kj_event_writer *direct = open_in(kji_test_top, 0),
                    *buffered = open_in(kji_test_top, KJ_EVENT_WRITER_BUFFER);
    add(direct, "x", 1, 1);
    add(buffered, "x", 2, 1);
    pid_t child = fork();
    if (child == 0) {
        int r = kj_event_writer_add_scalar(direct, "x", 3, 0, 0, NULL) == KJ_ESTATE &&
                kj_event_writer_flush(buffered, NULL) == KJ_ESTATE &&
                kj_event_writer_close(direct, NULL) == 0 &&
                kj_event_writer_close(buffered, NULL) == 0;
        _exit(r ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_writer(direct);
    close_writer(buffered);
    kji_rows rows = read_back(kji_test_top);
    assert_int_equal(rows.n, 2);
    kji_rows_done(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_TOP_TEST(test_any_value_as_float),
        KJI_TOP_TEST(test_any_value_as_double),
        KJI_TOP_TEST(test_double_is_exact),
        KJI_TOP_TEST(test_tag_of_any_length),
        KJI_TOP_TEST(test_what_is_refused),
        KJI_TOP_TEST(test_hparams_that_are_refused),
        KJI_TOP_TEST(test_buffer_waits_and_flush_does_not),
        KJI_TOP_TEST(test_large_text_keeps_its_place),
        KJI_TOP_TEST(test_restart_is_told),
        KJI_TOP_TEST(test_new_files_stand_behind_old_ones),
        KJI_TOP_TEST(test_many_openers_of_one_second),
        KJI_TOP_TEST(test_folders_are_made),
        KJI_TOP_TEST(test_append_goes_on),
        KJI_TOP_TEST(test_two_writers_of_a_process_share),
        KJI_TOP_TEST(test_append_leaves_others_alone),
        KJI_TOP_TEST(test_append_leaves_a_torn_file_alone),
        KJI_TOP_TEST(test_shared_file_is_mended),
        KJI_TOP_TEST(test_shared_file_that_was_removed),
        KJI_TOP_TEST(test_tail_at_any_cut),
        KJI_TOP_TEST(test_tail_of_a_large_record),
        KJI_TOP_TEST(test_forked_copy_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
