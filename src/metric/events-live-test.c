/* SPDX-License-Identifier: Apache-2.0 */
/* Event files that grow, come, go and are replaced while they are followed. */
#include "event-frame.h"
#include "files.h"
#include "mem.h"
#include "metric-rows.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static char top[64]; /* a fresh folder for each test */
static char *base;   /* an event file of 21 records with 20 scalars */
static size_t base_size;
static kji_rows base_rows;

static const char *in_top(const char *name)
{
    static char path[4][256];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", top, name);
    return at;
}

static void put(const char *name, size_t from, size_t to, int flags)
{
    int fd = open(in_top(name), O_WRONLY | O_CREAT | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, base + from, to - from, NULL), 0);
    close(fd);
}

static void append(const char *name, size_t from, size_t to)
{
    put(name, from, to, O_APPEND);
}

static kj_events *follow_as(const char *where, uint32_t flags, uint32_t poll_ms, uint32_t grace_ms)
{
    char spec[300];
    snprintf(spec, sizeof spec, "events:%s/%s", top, where);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    options.poll_ms = poll_ms;
    options.grace_ms = grace_ms;
    kj_events *source = NULL;
    assert_int_equal(kj_events_open(spec, &options, &source, NULL), 0);
    return source;
}

static kj_events *follow(const char *where, uint32_t flags, uint32_t poll_ms)
{
    return follow_as(where, flags, poll_ms, 3600000);
}

static kj_events *follow_with_grace(const char *where, uint32_t grace_ms)
{
    return follow_as(where, 0, 3600000, grace_ms);
}

/* So slow that only inotify can be the reason when something comes. */
static kj_events *follow_by_inotify(const char *where)
{
    return follow(where, 0, 3600000);
}

static void assert_all(const kji_rows *got, size_t n_times)
{
    assert_int_equal(got->n, n_times * base_rows.n);
    for (size_t k = 0; k < n_times; k++) {
        kji_rows part = {.rows = got->rows + k * base_rows.n, .n = base_rows.n};
        for (size_t j = 0; j < base_rows.n; j++) {
            assert_true(part.rows[j].step == base_rows.rows[j].step);
            assert_true(part.rows[j].value == base_rows.rows[j].value);
        }
    }
}

#define NAME "events.out.tfevents.1796045548.h.1.0"

static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    kj_events *source = follow_by_inotify("a");
    kj_events_stats stats = {.size = sizeof stats};
    for (size_t k = 0; k < base_size; k++) {
        append("a/" NAME, k, k + 1);
        size_t before = got.n;
        kji_rows_drain(source, &got);
        assert_true(got.n - before <= 1);
    }
    assert_all(&got, 1);
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.bytes, base_size);
    assert_int_equal(stats.records, 21);
    assert_int_equal(stats.skipped_records, 0);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void *write_slowly(void *unused)
{
    (void)unused;
    for (size_t k = 0; k < base_size; k += 100)
        append("a/" NAME, k, k + 100 < base_size ? k + 100 : base_size);
    return NULL;
}

static void test_growth_wakes_the_descriptor(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_slowly, NULL), 0);
    while (got.n < base_rows.n) {
        assert_int_equal(poll(&wait, 1, 60000), 1);
        kji_rows_drain(source, &got);
    }
    pthread_join(thread, NULL);
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_what_appears_later(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = follow_by_inotify("not/yet/there");
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    static const char *const folders[] = {"not", "not/yet", "not/yet/there", "not/yet/there/run",
                                          "not/yet/there/run/b"};
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        mkdir(in_top(folders[k]), 0700);
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    }
    append("not/yet/there/run/b/" NAME, 0, base_size);
    kji_rows_await(source, &got, base_rows.n);
    assert_string_equal(got.rows[0].run, "run/b");
    append("not/yet/there/" NAME, 0, base_size);
    kji_rows_await(source, &got, 2 * base_rows.n);
    assert_string_equal(got.rows[base_rows.n].run, ".");
    assert_all(&got, 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* A whole tree that is there in one moment. */
static void test_tree_moved_in(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("x"), 0700);
    mkdir(in_top("x/y"), 0700);
    append("x/y/" NAME, 0, base_size);
    kj_events *source = follow_by_inotify("logs");
    kji_rows_drain(source, &got);
    assert_int_equal(rename(in_top("x"), in_top("logs")), 0);
    kji_rows_await(source, &got, base_rows.n);
    assert_string_equal(got.rows[0].run, "y");
    assert_int_equal(rename(in_top("logs/y"), in_top("logs/z")), 0);
    kji_rows_await(source, &got, 2 * base_rows.n);
    assert_string_equal(got.rows[base_rows.n].run, "z");
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_folder_removed_and_made_again(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size / 2);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    size_t half = got.n;
    assert_in_range(half, 1, base_rows.n - 1);
    kji_test_remove_tree(in_top("a"));
    kji_rows_drain(source, &got);
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kji_rows_await(source, &got, base_rows.n);
    assert_all(&got, 1); /* recognised: nothing comes twice */
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_polling_only(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = follow("a", KJ_EVENTS_POLL, 1);
    kji_rows_drain(source, &got);
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, 300);
    kji_rows_await(source, &got, 1);
    append("a/" NAME, 300, base_size);
    kji_rows_await(source, &got, base_rows.n);
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_replaced_by_a_longer_copy(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    kj_events *source = follow_by_inotify("a");
    for (size_t size = 100; size < base_size + 100; size += 100) {
        put("a/.copy", 0, size < base_size ? size : base_size, O_TRUNC);
        assert_int_equal(rename(in_top("a/.copy"), in_top("a/" NAME)), 0);
        kji_rows_drain(source, &got);
    }
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* As object stores and copying tools do: from empty to what it was, and more. */
static void test_rewritten_in_place(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size / 2);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    put("a/" NAME, 0, 0, O_TRUNC);
    for (size_t k = 0; k < base_size; k += 50) {
        kji_rows_drain(source, &got);
        append("a/" NAME, k, k + 50 < base_size ? k + 50 : base_size);
    }
    kji_rows_await(source, &got, base_rows.n);
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_begun_anew_by_another_writer(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    put("a/" NAME, 88, 300, O_TRUNC); /* begins with another record */
    assert_int_not_equal(kji_rows_drain(source, &got), 0);
    append("a/" NAME, 300, base_size);
    kji_rows_await(source, &got, 2 * base_rows.n);
    assert_all(&got, 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_truncated_file_is_read_anew_after_the_grace_time(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kj_events *source = follow("a", 0, 3600000);
    kji_rows_drain(source, &got);
    assert_int_equal(truncate(in_top("a/" NAME), 300), 0);
    assert_int_equal(kji_rows_drain(source, &got), 0);
    assert_int_equal(kj_events_is_finished(source), 0);
    kj_events_finish(source);
    assert_int_equal(kj_events_is_finished(source), 1);
    size_t n = kji_rows_drain(source, &got);
    assert_in_range(n, 1, base_rows.n - 1);
    kj_events_close(source);
    kji_rows_done(&got);
    append("a/" NAME, 300, base_size);
    source = follow_with_grace("a", 1);
    kji_rows_drain(source, &got);
    assert_int_equal(truncate(in_top("a/" NAME), 300), 0);
    kji_rows_await(source, &got, base_rows.n + n);
    assert_true(got.rows[base_rows.n].step == base_rows.rows[0].step);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_other_file_of_the_same_name(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    put("a/.copy", 88, base_size, O_TRUNC); /* without its first record */
    append("a/.copy", 88, base_size);
    assert_int_equal(rename(in_top("a/.copy"), in_top("a/" NAME)), 0);
    kji_rows_await(source, &got, 3 * base_rows.n);
    assert_all(&got, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* The same in place, so fast that nobody saw it short; its records even begin where the old ones
 * ended. */
static void test_overwritten_in_place(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    put("a/" NAME, 88, base_size, O_TRUNC);
    append("a/" NAME, 88, base_size);
    append("a/" NAME, 88, base_size);
    kji_rows_await(source, &got, 4 * base_rows.n);
    assert_all(&got, 4);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_hole_filled_in_later(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, 400);
    assert_int_equal(truncate(in_top("a/" NAME), (off_t)base_size), 0);
    kj_events *source = follow_by_inotify("a");
    kji_rows_drain(source, &got);
    int fd = open(in_top("a/" NAME), O_WRONLY);
    assert_true(pwrite(fd, base + 600, base_size - 600, 600) > 0);
    kji_rows_drain(source, &got);
    assert_true(got.n < base_rows.n);
    assert_int_equal(pwrite(fd, base + 400, 200, 400), 200);
    close(fd);
    kji_rows_await(source, &got, base_rows.n);
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_names_that_are_no_event_files(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    append("a/." NAME, 0, base_size);
    append("a/" NAME ".gz", 0, base_size);
    append("a/" NAME ".profile-empty", 0, base_size);
    append("a/" NAME ".tmp", 0, base_size);
    append("a/tfevents", 0, base_size);
    mkdir(in_top("a/" NAME ".d"), 0700);
    kj_events *source = follow("a", KJ_EVENTS_FINISHED, 0);
    assert_int_equal(kji_rows_drain(source, &got), 0);
    kj_events_close(source);
}

static void test_links(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    mkdir(in_top("a/sub"), 0700);
    append("a/sub/" NAME, 0, base_size);
    assert_int_equal(symlink("..", in_top("a/sub/loop")), 0);
    assert_int_equal(symlink("sub", in_top("a/latest")), 0);
    mkdir(in_top("elsewhere"), 0700);
    append("elsewhere/" NAME, 0, base_size);
    assert_int_equal(symlink("../elsewhere", in_top("a/other")), 0);
    kj_events *source = follow("a", KJ_EVENTS_FINISHED, 0);
    kji_rows_drain(source, &got);
    assert_all(&got, 2);
    assert_string_equal(got.rows[0].run, "other");
    assert_string_equal(got.rows[base_rows.n].run, "sub");
    kj_events_close(source);
    kji_rows_done(&got);
}

static size_t put_varint(unsigned char *to, uint64_t value)
{
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        to[n++] = (unsigned char)(value | 0x80);
    to[n++] = (unsigned char)value;
    return n;
}

/* One event of more than the read buffer: 20,000 scalars in one summary. */
static void test_large_summary(void **state)
{
    (void)state;
    enum { N = 20000, VALUE_SIZE = 16 };
    static unsigned char event[N * (VALUE_SIZE + 2) + 20];
    unsigned char head[KJI_FRAME_HEAD], tail[4], *to = event;
    *to++ = 0x2a;
    to += put_varint(to, N * (VALUE_SIZE + 2));
    for (int k = 0; k < N; k++) {
        float value = (float)k;
        to[0] = 0x0a, to[1] = VALUE_SIZE, to[2] = 0x0a, to[3] = 9;
        char tag[10];
        snprintf(tag, sizeof tag, "tag_%05d", k);
        memcpy(to + 4, tag, 9);
        to[13] = 0x15;
        memcpy(to + 14, &value, 4);
        to += VALUE_SIZE + 2;
    }
    size_t size = (size_t)(to - event);
    kji_frame_seal(event, size, head, tail);
    mkdir(in_top("a"), 0700);
    int fd = open(in_top("a/" NAME), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(kji_write_all(fd, head, sizeof head, NULL), 0);
    assert_int_equal(kji_write_all(fd, event, size, NULL), 0);
    assert_int_equal(kji_write_all(fd, tail, sizeof tail, NULL), 0);
    close(fd);
    append("a/" NAME, 0, base_size);
    kji_rows got = {.stop_after = 7777};
    kj_events *source = follow_by_inotify("a");
    assert_int_equal(kji_rows_drain(source, &got), N + base_rows.n);
    for (int k = 0; k < N; k++)
        assert_true(got.rows[k].value == k);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* Root may list everything, so another user is asked for; elsewhere the rights are enough. */
static void test_folder_that_may_not_be_listed(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_error err = KJ_ERROR_INIT;
    uid_t user = geteuid();
    mkdir(in_top("a"), 0700);
    assert_int_equal(chmod(in_top("a"), 0), 0);
    assert_int_equal(chmod(top, 0755), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0);
    kj_events *source = follow("a", 0, 3600000);
    int r = kj_events_step(source, 0, kji_rows_collect, &got, &err);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(r, KJ_EPERM);
    assert_non_null(strstr(err.message, "cannot list folder"));
    kj_events_close(source);
    assert_int_equal(chmod(in_top("a"), 0700), 0);
}

static char told[400];
static int n_told;

static void keep_log(void *userdata, int level, const char *message)
{
    (void)userdata, (void)level;
    snprintf(told, sizeof told, "%s", message);
    n_told++;
}

static void test_file_that_cannot_be_read(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(in_top("a"), 0700);
    /* A file whose first byte is an error. */
    assert_int_equal(symlink("/proc/self/mem", in_top("a/" NAME)), 0);
    kj_events *source = follow("a", 0, 1);
    n_told = 0;
    kj_log_set(keep_log, NULL);
    for (int k = 0; k < 3; k++) /* with polls in between */
        assert_int_equal(kj_events_step(source, 3, kji_rows_collect, &got, NULL), 0);
    kj_log_set(NULL, NULL);
    assert_int_equal(n_told, 1);
    assert_non_null(strstr(told, NAME ": cannot be read at offset 0: Input/output error"));
    kj_events_close(source);
}

static void ignore_signal(int number)
{
    (void)number;
}

static void test_a_signal_ends_the_wait(void **state)
{
    (void)state;
    kji_rows got = {0};
    struct sigaction action = {.sa_handler = ignore_signal}, old;
    struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    kj_events *source = follow_by_inotify("a");
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &every_ms, NULL), 0);
    assert_int_equal(kj_events_step(source, -1, kji_rows_collect, &got, NULL), 0);
    assert_int_equal(kj_events_step(source, 3600000, kji_rows_collect, &got, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    kj_events_close(source);
}

/* Stopping after every point loses and repeats nothing. */
static void test_stopping_early(void **state)
{
    (void)state;
    kji_rows got = {.stop_after = 1};
    mkdir(in_top("a"), 0700);
    append("a/" NAME, 0, base_size);
    kj_events *source = follow_by_inotify("a");
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    while (got.n < base_rows.n) {
        assert_int_equal(poll(&wait, 1, 60000), 1);
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 1);
    }
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* Every single bit that flips loses at most its own record and invents none. */
static void test_single_bit_flips(void **state)
{
    (void)state;
    mkdir(in_top("a"), 0700);
    for (size_t bit = 0; bit < base_size * 8; bit += 7) {
        base[bit / 8] ^= (char)(1 << bit % 8);
        put("a/" NAME, 0, base_size, O_TRUNC);
        base[bit / 8] ^= (char)(1 << bit % 8);
        kji_rows got = {0};
        kj_events *source = follow("a", KJ_EVENTS_FINISHED | KJ_EVENTS_POLL, 0);
        kji_rows_drain(source, &got);
        assert_in_range(got.n, base_rows.n - 1, base_rows.n);
        size_t at = 0; /* got is base_rows with at most one row left out */
        for (size_t k = 0; k < got.n; k++, at++) {
            while (at < base_rows.n && (base_rows.rows[at].value != got.rows[k].value ||
                                        base_rows.rows[at].step != got.rows[k].step))
                at++;
            assert_true(at < base_rows.n);
        }
        kj_events_close(source);
        kji_rows_done(&got);
    }
}

static int set_up(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/kj-events-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kji_test_remove_tree(top);
    return 0;
}

static int load_base(void **state)
{
    (void)state;
    kji_rows_load(&base_rows, kji_test_data("events/damaged/torch/empty_record_middle.jsonl"));
    /* The undamaged file is the first half of this one. */
    int r = kji_read_file(AT_FDCWD,
                          kji_test_data("events/damaged/torch/concatenated/"
                                        "events.out.tfevents.1796045548.gpu12.15877.12"),
                          1 << 20, &base, &base_size, NULL);
    base_size /= 2;
    return r;
}

static int drop_base(void **state)
{
    (void)state;
    free(base);
    kji_rows_done(&base_rows);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_byte_at_a_time),
        TEST(test_growth_wakes_the_descriptor),
        TEST(test_what_appears_later),
        TEST(test_tree_moved_in),
        TEST(test_folder_removed_and_made_again),
        TEST(test_polling_only),
        TEST(test_replaced_by_a_longer_copy),
        TEST(test_rewritten_in_place),
        TEST(test_begun_anew_by_another_writer),
        TEST(test_truncated_file_is_read_anew_after_the_grace_time),
        TEST(test_other_file_of_the_same_name),
        TEST(test_overwritten_in_place),
        TEST(test_hole_filled_in_later),
        TEST(test_names_that_are_no_event_files),
        TEST(test_links),
        TEST(test_large_summary),
        TEST(test_folder_that_may_not_be_listed),
        TEST(test_file_that_cannot_be_read),
        TEST(test_a_signal_ends_the_wait),
        TEST(test_stopping_early),
        TEST(test_single_bit_flips),
    };
    return cmocka_run_group_tests(tests, load_base, drop_base);
}
