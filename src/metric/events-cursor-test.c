/* SPDX-License-Identifier: Apache-2.0 */
/* A reader that is opened with the cursor of another one goes on as if it were that one. */
#include "event-make.h"
#include "files.h"
#include "mem.h"
#include "metric-rows.h"
#include "number.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_1 "events.out.tfevents.1.h"
#define FILE_2 "events.out.tfevents.2.h"

static const char *in_top(const char *name)
{
    static char path[4][256];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", kji_test_top, name);
    return at;
}

static int try_open(const char *spec, const char *cursor, kj_events **ret_events, kj_error *err)
{
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = KJ_EVENTS_POLL;
    options.grace_ms = 3600000;
    options.cursor = cursor;
    return kj_events_open(spec, &options, ret_events, err);
}

static kj_events *open_with(const char *folder, const char *cursor)
{
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s", folder);
    kj_events *events = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (try_open(spec, cursor, &events, &err) < 0)
        fail_msg("%s", err.message);
    return events;
}

/* For free; one line of ASCII and UTF-8. */
static char *cursor_of(const kj_events *events)
{
    char *cursor = NULL;
    uint64_t size = 0;
    assert_int_equal(kj_events_get_cursor(events, &cursor, &size, NULL), 0);
    assert_int_equal(strlen(cursor), size);
    assert_null(strchr(cursor, '\n'));
    return cursor;
}

/* Closes the reader and opens another one with its cursor. */
static kj_events *change_reader(kj_events *events, const char *folder)
{
    KJI_CLEANUP(kji_freep) char *cursor = cursor_of(events);
    kj_events_close(events);
    events = open_with(folder, cursor);
    KJI_CLEANUP(kji_freep) char *again = cursor_of(events);
    assert_string_equal(again, cursor);
    return events;
}

static int add_tag(void *userdata, const kj_tag_info *info)
{
    kji_strbuf_printf(userdata, "%u %s ", info->series, info->run);
    kji_strbuf_add(userdata, info->tag, info->tag_size);
    char last[KJI_DOUBLE_TEXT], min[KJI_DOUBLE_TEXT], max[KJI_DOUBLE_TEXT];
    kji_strbuf_printf(userdata, " %llu %lld %lld %s %s %s %s|%s|%s %u %u\n",
                      (unsigned long long)info->count, (long long)info->first_step,
                      (long long)info->last_step, kji_double_text(info->last_value, last),
                      kji_double_text(info->min_value, min), kji_double_text(info->max_value, max),
                      info->plugin, info->display_name, info->description, info->selected,
                      info->dtype);
    return 0;
}

static int add_file(void *userdata, const kj_file_info *info)
{
    kji_strbuf_printf(userdata, "%s %s %llu %llu %llu %llu %llu %llu %u %u %u\n", info->run,
                      info->path, (unsigned long long)info->file_size,
                      (unsigned long long)info->committed, (unsigned long long)info->records,
                      (unsigned long long)info->points, (unsigned long long)info->skipped_records,
                      (unsigned long long)info->skipped_bytes, info->generation, info->present,
                      info->state);
    return 0;
}

static int add_damage(void *userdata, const kj_damage *damage)
{
    kji_strbuf_printf(userdata, "%u %s %s %llu %llu %llu %u %u\n", damage->kind, damage->run,
                      damage->file, (unsigned long long)damage->begin,
                      (unsigned long long)damage->end, (unsigned long long)damage->record,
                      damage->skipped, damage->generation);
    return 0;
}

/* All that a reader tells of itself, for free. */
static char *facts_of(kj_events *events)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    kji_strbuf_printf(&text, "%llu %llu %llu %llu %llu %llu %llu %llu\n",
                      (unsigned long long)stats.files, (unsigned long long)stats.bytes,
                      (unsigned long long)stats.records, (unsigned long long)stats.points,
                      (unsigned long long)stats.skipped_records,
                      (unsigned long long)stats.skipped_bytes,
                      (unsigned long long)stats.waiting_files, (unsigned long long)stats.runs);
    for (size_t k = 0; k < KJ_EVENT_KINDS; k++)
        kji_strbuf_printf(&text, "%llu ", (unsigned long long)stats.kinds[k]);
    assert_int_equal(kj_events_list_tags(events, add_tag, &text, NULL), 0);
    assert_int_equal(kj_events_list_files(events, add_file, &text), 0);
    assert_int_equal(kj_events_list_damage(events, add_damage, &text), 0);
    assert_false(text.failed);
    return kji_strbuf_take(&text);
}

static void drain_finished(kj_events *events, kji_rows *rows)
{
    kj_events_finish(events);
    kji_rows_drain(events, rows);
}

/* With another reader after each `by` points, and one after the end: the same rows and facts. */
static void check_folder(const char *folder, size_t by)
{
    kji_rows expected = {0}, got = {.stop_after = by};
    kj_events *whole = open_with(folder, NULL), *events = open_with(folder, NULL);
    kji_rows_drain(whole, &expected);
    drain_finished(whole, &expected);
    while (kj_events_step(events, 0, kji_rows_collect, &got, NULL) > 0)
        events = change_reader(events, folder);
    drain_finished(events, &got);
    events = change_reader(events, folder);
    drain_finished(events, &got);
    assert_int_equal(got.n, expected.n);
    kji_rows_assert_same(&got, &expected, 0, expected.n, folder);
    for (size_t k = 0; k < got.n; k++)
        assert_int_equal(got.rows[k].flags, expected.rows[k].flags);
    KJI_CLEANUP(kji_freep) char *facts = facts_of(events);
    KJI_CLEANUP(kji_freep) char *expected_facts = facts_of(whole);
    assert_string_equal(facts, expected_facts);
    kj_events_close(whole);
    kj_events_close(events);
    kji_rows_done(&expected);
    kji_rows_done(&got);
}

static void check_all(const char *name)
{
    KJI_CLEANUP(kji_freep) char *root = strdup(kji_test_data(name));
    DIR *dir = opendir(root);
    assert_non_null(dir);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", root, entry->d_name);
        struct stat st;
        if (entry->d_name[0] == '.' || stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        check_folder(path, 1);
        check_folder(path, 7);
        n++;
    }
    closedir(dir);
    assert_true(n > 3);
}

static void test_cases(void **state)
{
    (void)state;
    check_all("events/cases");
}

static void test_wire_cases(void **state)
{
    (void)state;
    check_all("events/wire");
}

static void test_damaged_files(void **state)
{
    (void)state;
    check_all("events/damaged/torch");
}

/* Points of `step` in two tags, in one event. */
static void append(const char *name, int64_t from, int64_t n)
{
    static const char *const tags[] = {"a", "b"};
    kji_strbuf bytes = KJI_STRBUF_INIT;
    for (int64_t k = from; k < from + n; k++) {
        const float values[] = {(float)k, (float)-k};
        kji_make_scalars(&bytes, k, 1.0, tags, values, 2);
    }
    kji_make_file(in_top(name), &bytes);
    kji_strbuf_done(&bytes);
}

static void copy(const char *from, const char *to, size_t limit)
{
    char *text;
    size_t size;
    assert_int_equal(kji_read_file(AT_FDCWD, in_top(from), 1 << 20, &text, &size, NULL), 0);
    int fd = open(in_top(to), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, text, size < limit ? size : limit, NULL), 0);
    close(fd);
    free(text);
}

/* Steps in the order of delivery, which are to be from, from + 1, ..., twice each. */
static void assert_steps(const kji_rows *rows, size_t first, int64_t from, int64_t n)
{
    assert_int_equal(rows->n - first, 2 * n);
    for (int64_t k = 0; k < 2 * n; k++)
        assert_int_equal(rows->rows[first + (size_t)k].step, from + k / 2);
}

static void test_what_happened_meanwhile(void **state)
{
    (void)state;
    kji_rows rows = {0};
    append("a/" FILE_1, 0, 10);
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);

    append("a/" FILE_1, 10, 5); /* it grew, and another one came */
    append("a/" FILE_2, 15, 5);
    append("a/b/" FILE_1, 20, 5);
    events = change_reader(events, in_top("a"));
    kji_rows_drain(events, &rows);
    assert_steps(&rows, 0, 0, 25);

    copy("a/" FILE_1, "a/copy", SIZE_MAX); /* another inode, longer */
    assert_int_equal(rename(in_top("a/copy"), in_top("a/" FILE_1)), 0);
    append("a/" FILE_1, 25, 5);
    events = change_reader(events, in_top("a"));
    kji_rows_drain(events, &rows);
    assert_steps(&rows, 0, 0, 30);

    assert_int_equal(rename(in_top("a/b"), in_top("away")), 0); /* it is gone */
    events = change_reader(events, in_top("a"));
    kji_rows_drain(events, &rows);
    events = change_reader(events, in_top("a"));
    assert_int_equal(rename(in_top("away"), in_top("a/b")), 0);
    append("a/b/" FILE_1, 30, 1);
    kji_rows_drain(events, &rows);
    assert_steps(&rows, 0, 0, 31);

    assert_int_equal(unlink(in_top("a/" FILE_1)), 0); /* another file of that name */
    append("a/" FILE_1, 100, 40);
    events = change_reader(events, in_top("a"));
    size_t before = rows.n;
    kji_rows_drain(events, &rows);
    assert_steps(&rows, before, 100, 40);
    kj_events_close(events);
    kji_rows_done(&rows);
}

/* The source is one file, which is not there when the cursor is read. */
static void test_one_file_that_was_away(void **state)
{
    (void)state;
    kji_rows rows = {0};
    append("metrics", 0, 10);
    kj_events *events = open_with(in_top("metrics"), NULL);
    kji_rows_drain(events, &rows);
    assert_int_equal(rename(in_top("metrics"), in_top("away")), 0);
    events = change_reader(events, in_top("metrics"));
    kji_rows_drain(events, &rows);
    assert_int_equal(rename(in_top("away"), in_top("metrics")), 0);
    append("metrics", 10, 5);
    kji_rows_await(events, &rows, 30);
    assert_steps(&rows, 0, 0, 15);
    kj_events_close(events);
    kji_rows_done(&rows);
}

static void test_shorter_than_the_cursor_says(void **state)
{
    (void)state;
    kji_rows rows = {0};
    append("a/" FILE_1, 0, 10);
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);
    assert_int_equal(rename(in_top("a/" FILE_1), in_top("whole")), 0);
    copy("whole", "a/" FILE_1, 300);
    events = change_reader(events, in_top("a"));
    kji_rows_drain(events, &rows); /* who copies it anew will soon have it as it was */
    append("whole", 10, 1);
    copy("whole", "a/" FILE_1, SIZE_MAX);
    events = change_reader(events, in_top("a"));
    kji_rows_drain(events, &rows);
    assert_steps(&rows, 0, 0, 11);
    copy("whole", "a/" FILE_1, 300);
    events = change_reader(events, in_top("a"));
    kj_events_finish(events);
    size_t before = rows.n;
    kji_rows_drain(events, &rows);
    assert_true(rows.n > before);
    assert_int_equal(rows.rows[before].step, 0);
    kj_events_close(events);
    kji_rows_done(&rows);
}

static uint64_t bytes_read(void)
{
    char *text;
    unsigned long long n;
    assert_int_equal(kji_read_file(AT_FDCWD, "/proc/self/io", 4096, &text, NULL, NULL), 0);
    assert_int_equal(sscanf(text, "rchar: %llu", &n), 1);
    free(text);
    return n;
}

/* Nothing but what is new, and what the file is recognised by. */
static void test_reads_only_what_is_new(void **state)
{
    (void)state;
    kji_rows rows = {0};
    append("a/" FILE_1, 0, 10000);
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);
    append("a/" FILE_1, 10000, 1);
    events = change_reader(events, in_top("a"));
    uint64_t before = bytes_read();
    kji_rows_drain(events, &rows);
    assert_true(bytes_read() - before < 1000);
    assert_steps(&rows, 0, 0, 10001);
    kj_events_close(events);
    kji_rows_done(&rows);
}

static void test_names_of_any_bytes(void **state)
{
    (void)state;
    static const char *const folders[] = {"a/\xff\xfe", "a/50%", "a/\"\\\n", "a/\xc3\xa9"};
    kji_rows rows = {0};
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        KJI_CLEANUP(kji_freep) char *name = kji_format("%s/" FILE_1, folders[k]);
        append(name, 0, 1);
    }
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        KJI_CLEANUP(kji_freep) char *name = kji_format("%s/" FILE_1, folders[k]);
        append(name, 1, 1);
    }
    events = change_reader(events, in_top("a"));
    KJI_CLEANUP(kji_freep) char *cursor = cursor_of(events);
    for (const char *at = cursor; *at; at++)
        assert_true((unsigned char)*at >= ' ');
    assert_int_equal(kji_rows_drain(events, &rows), 8);
    kj_events_close(events);
    kji_rows_done(&rows);
}

static void assert_refused(const char *spec, const char *cursor, const char *message)
{
    kj_events *events = NULL;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(try_open(spec, cursor, &events, &err), KJ_EDATA);
    assert_null(events);
    if (message && !strstr(err.message, message))
        fail_msg("%s", err.message);
    assert_null(strchr(err.message, '\n'));
}

static void test_cursors_that_are_none(void **state)
{
    (void)state;
    append("a/b/" FILE_1, 0, 2);
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s", in_top("a"));
    kji_rows rows = {0};
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);
    kji_rows_done(&rows);
    KJI_CLEANUP(kji_freep) char *cursor = cursor_of(events);
    kj_events_close(events);
    for (size_t size = 0; size < strlen(cursor); size++) {
        KJI_CLEANUP(kji_freep) char *part = strndup(cursor, size);
        assert_refused(spec, part, "not JSON");
    }
    assert_refused(spec, "[]", "no cursor of kajitori");
    assert_refused(spec, "{\"spec\":1}", "no cursor of kajitori");
    assert_refused(spec, "null", "no cursor of kajitori");
    assert_refused(spec, "{\"kajitori_cursor\":2}", "of version 2; this kajitori reads 1");
    assert_refused("events:/elsewhere", cursor, "of another source: its spec is \"events:/tmp");
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.run = "b";
    options.cursor = cursor;
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), KJ_EDATA);
}

/* `before` in a good cursor, replaced by `after`. */
static void check_changed(const char *spec, const char *cursor, const char *before,
                          const char *after, const char *message)
{
    const char *at = strstr(cursor, before);
    if (!at)
        fail_msg("no %s in %s", before, cursor);
    KJI_CLEANUP(kji_freep)
    char *changed = kji_format("%.*s%s%s", (int)(at - cursor), cursor, after, at + strlen(before));
    assert_refused(spec, changed, message);
}

static void test_cursors_that_cannot_be_true(void **state)
{
    (void)state;
    append("a/b/" FILE_1, 0, 2);
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s", in_top("a"));
    kji_rows rows = {0};
    kj_events *events = open_with(in_top("a"), NULL);
    kji_rows_drain(events, &rows);
    kji_rows_done(&rows);
    KJI_CLEANUP(kji_freep) char *cursor = cursor_of(events);
    kj_events_close(events);
    check_changed(spec, cursor, "[\"b\",1]", "[\"b\",1],[\"b\",1]", "run 1: not in their order");
    check_changed(spec, cursor, "[\"b\",1]", "[\"b\",2]", "run 0: a number out of range");
    check_changed(spec, cursor, "[\"b\",1]", "[\"../b\",1]", "place");
    check_changed(spec, cursor, "[\"b\",1]", "[\"b//c\",1]", "place");
    check_changed(spec, cursor, "[\"b\",1]", "[\"%0\",1]", "run 0: a malformed name");
    check_changed(spec, cursor, "[\"b\",1]", "[\"%00\",1]", "run 0: a malformed name");
    check_changed(spec, cursor, "[0,\"a\"", "[1,\"a\"", "series 0: no such run");
    check_changed(spec, cursor, "[0,\"a\"", "[-1,\"a\"", "series 0: a number out of range");
    check_changed(spec, cursor, "[0,\"b\"", "[0,\"a\"", "series 1: a second time");
    check_changed(spec, cursor, "[0,\"" FILE_1, "[0,\"x", "place");
    check_changed(spec, cursor, "[0,\"" FILE_1, "[0,\"c/" FILE_1, "place");
    check_changed(spec, cursor, "[0,\"" FILE_1, "[7,\"" FILE_1, "place");
    check_changed(spec, cursor, "\"stats\":[\"", "\"stats\":[\"0 ", "too many numbers");
    check_changed(spec, cursor, "\"stats\":[\"", "\"stats\":[\"x", "no whole number");
    check_changed(spec, cursor, "\"stats\":[\"", "\"stats\":[\"  ", "no whole number");
    check_changed(spec, cursor, "\"stats\":[\"", "\"stats\":[\"99999999999999999999 ",
                  "a number out of range");
    check_changed(spec, cursor, "\"stats\":[", "\"stats\":[0,", "no text");
    check_changed(spec, cursor, "\"place\":[", "\"place\":[[],", "place 1: too few values");
}

static void test_many_files(void **state)
{
    (void)state;
    enum { FILES = 1000 };
    kji_rows rows = {0};
    kji_strbuf bytes = KJI_STRBUF_INIT;
    for (int k = 0; k < FILES; k++) {
        KJI_CLEANUP(kji_freep)
        char *name = kji_format("a/trial-%d/events.out.tfevents.1796045548.gpu12.15877.12", k);
        kji_make_scalar(&bytes, k, 1796045548.25, "validation/loss", 0.125f);
        kji_make_file(in_top(name), &bytes);
    }
    kji_strbuf_done(&bytes);
    kj_events *events = open_with(in_top("a"), NULL);
    assert_int_equal(kji_rows_drain(events, &rows), FILES);
    events = change_reader(events, in_top("a"));
    assert_int_equal(kji_rows_drain(events, &rows), 0);
    KJI_CLEANUP(kji_freep) char *cursor = cursor_of(events);
    const char *place = strstr(cursor, "\"place\"");
    assert_true(strlen(place) < 300 * FILES);
    kj_events_close(events);
    kji_rows_done(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_TOP_TEST(test_cases),
        KJI_TOP_TEST(test_wire_cases),
        KJI_TOP_TEST(test_damaged_files),
        KJI_TOP_TEST(test_what_happened_meanwhile),
        KJI_TOP_TEST(test_one_file_that_was_away),
        KJI_TOP_TEST(test_shorter_than_the_cursor_says),
        KJI_TOP_TEST(test_reads_only_what_is_new),
        KJI_TOP_TEST(test_names_of_any_bytes),
        KJI_TOP_TEST(test_cursors_that_are_none),
        KJI_TOP_TEST(test_cursors_that_cannot_be_true),
        KJI_TOP_TEST(test_many_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
