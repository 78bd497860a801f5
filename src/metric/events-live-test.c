/* SPDX-License-Identifier: Apache-2.0 */
/* Event files that grow, come, go and are replaced while they are followed. */
#include "event-frame.h"
#include "files.h"
#include "live-fixture.h"
#include "mem.h"

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

static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    kj_events *source = live_follow_by_inotify("a");
    kj_events_stats stats = {.size = sizeof stats};
    for (size_t k = 0; k < live_base_size; k++) {
        live_append("a/" LIVE_NAME, k, k + 1);
        size_t before = got.n;
        kji_rows_drain(source, &got);
        assert_true(got.n - before <= 1);
    }
    live_assert_all(&got, 1);
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.bytes, live_base_size);
    assert_int_equal(stats.records, 21);
    assert_int_equal(stats.skipped_records, 0);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void *write_slowly(void *unused)
{
    (void)unused;
    for (size_t k = 0; k < live_base_size; k += 100)
        live_append("a/" LIVE_NAME, k, k + 100 < live_base_size ? k + 100 : live_base_size);
    return NULL;
}

static void test_growth_wakes_the_descriptor(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_slowly, NULL), 0);
    while (got.n < live_base_rows.n) {
        assert_int_equal(poll(&wait, 1, 60000), 1);
        kji_rows_drain(source, &got);
    }
    pthread_join(thread, NULL);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_what_appears_later(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = live_follow_by_inotify("not/yet/there");
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    static const char *const folders[] = {"not", "not/yet", "not/yet/there", "not/yet/there/run",
                                          "not/yet/there/run/b"};
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        mkdir(live_path(folders[k]), 0700);
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    }
    live_append("not/yet/there/run/b/" LIVE_NAME, 0, live_base_size);
    kji_rows_await(source, &got, live_base_rows.n);
    assert_string_equal(got.rows[0].run, "run/b");
    live_append("not/yet/there/" LIVE_NAME, 0, live_base_size);
    kji_rows_await(source, &got, 2 * live_base_rows.n);
    assert_string_equal(got.rows[live_base_rows.n].run, ".");
    live_assert_all(&got, 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void check_file_that_appears_later(const char *name, uint32_t flags, uint32_t poll_ms)
{
    kji_rows got = {0};
    kj_events *source = live_follow(name, flags, poll_ms);
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    live_append(name, 0, 200);
    kji_rows_await(source, &got, 1);
    assert_string_equal(got.rows[0].run, ".");
    live_append(name, 200, live_base_size);
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* One file that is named before it is there, whatever its name. */
static void test_file_that_appears_later(void **state)
{
    (void)state;
    check_file_that_appears_later(LIVE_NAME, 0, 3600000);
    check_file_that_appears_later("metrics", KJ_EVENTS_POLL, 1);
}

/* Beyond the year 2262, which 64 bits of nanoseconds do not reach. */
static void test_far_times_of_change(void **state)
{
    (void)state;
    const struct timespec times[2] = {{.tv_sec = INT64_C(1) << 33}, {.tv_sec = INT64_C(1) << 33}};
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    assert_int_equal(utimensat(AT_FDCWD, live_path("a/" LIVE_NAME), times, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, live_path("a"), times, 0), 0);
    kj_events *source = live_follow("a", 0, 1);
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* For each point another one is written. */
static int write_another(void *userdata, const kj_point *point)
{
    size_t *n = userdata;
    (void)point;
    if (++*n % live_base_rows.n == 0)
        live_append("a/" LIVE_NAME, 0, live_base_size);
    assert_true(*n < 1000000);
    return 0;
}

static int count_point(void *userdata, const kj_point *point)
{
    (void)point;
    ++*(size_t *)userdata;
    return 0;
}

/* The step comes back all the same, and nothing is missing afterwards. */
static void check_fast_writer(uint32_t flags)
{
    size_t n = 0;
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow("a", flags, flags & KJ_EVENTS_POLL ? 1 : 3600000);
    assert_true(kj_events_step(source, 0, write_another, &n, NULL) > 1);
    size_t end = n / live_base_rows.n * live_base_rows.n + live_base_rows.n;
    while (n < end)
        assert_true(kj_events_step(source, -1, count_point, &n, NULL) >= 0);
    assert_int_equal(n, end);
    kj_events_close(source);
    unlink(live_path("a/" LIVE_NAME));
}

static void test_writer_as_fast_as_the_reader(void **state)
{
    (void)state;
    check_fast_writer(0);
    check_fast_writer(KJ_EVENTS_POLL);
}

/* A whole tree that is there in one moment. */
static void test_tree_moved_in(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("x"), 0700);
    mkdir(live_path("x/y"), 0700);
    live_append("x/y/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow_by_inotify("logs");
    kji_rows_drain(source, &got);
    assert_int_equal(rename(live_path("x"), live_path("logs")), 0);
    kji_rows_await(source, &got, live_base_rows.n);
    assert_string_equal(got.rows[0].run, "y");
    assert_int_equal(rename(live_path("logs/y"), live_path("logs/z")), 0);
    kji_rows_await(source, &got, 2 * live_base_rows.n);
    assert_string_equal(got.rows[live_base_rows.n].run, "z");
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_folder_removed_and_made_again(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size / 2);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    size_t half = got.n;
    assert_in_range(half, 1, live_base_rows.n - 1);
    kji_test_remove_tree(live_path("a"));
    kji_rows_drain(source, &got);
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1); /* recognised: nothing comes twice */
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_polling_only(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = live_follow("a", KJ_EVENTS_POLL, 1);
    kji_rows_drain(source, &got);
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, 300);
    kji_rows_await(source, &got, 1);
    live_append("a/" LIVE_NAME, 300, live_base_size);
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* Without events a file that grows is looked at soon again, not only with all the others. */
static void test_growing_file_is_polled_more_often(void **state)
{
    (void)state;
    kji_rows got = {0};
    const struct timespec now[2] = {{0, UTIME_OMIT}, {4000000000, 0}}; /* by another clock */
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, 300);
    assert_int_equal(utimensat(AT_FDCWD, live_path("a/" LIVE_NAME), now, 0), 0);
    kj_events *source = live_follow("a", KJ_EVENTS_POLL, 3600000);
    kji_rows_drain(source, &got);
    for (size_t k = 300; k < live_base_size; k += 100) {
        live_append("a/" LIVE_NAME, k, k + 100 < live_base_size ? k + 100 : live_base_size);
        kji_rows_await(source, &got, got.n + (k < 350));
    }
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_replaced_by_a_longer_copy(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    kj_events *source = live_follow_by_inotify("a");
    for (size_t size = 100; size < live_base_size + 100; size += 100) {
        live_put("a/.copy", 0, size < live_base_size ? size : live_base_size, O_TRUNC);
        assert_int_equal(rename(live_path("a/.copy"), live_path("a/" LIVE_NAME)), 0);
        kji_rows_drain(source, &got);
    }
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* As object stores and copying tools do: from empty to what it was, and more. */
static void test_rewritten_in_place(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size / 2);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    live_put("a/" LIVE_NAME, 0, 0, O_TRUNC);
    for (size_t k = 0; k < live_base_size; k += 50) {
        kji_rows_drain(source, &got);
        live_append("a/" LIVE_NAME, k, k + 50 < live_base_size ? k + 50 : live_base_size);
    }
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static int cut_at_the_first(void *userdata, const kj_point *point)
{
    kji_rows *rows = userdata;
    if (rows->n == 0)
        assert_int_equal(truncate(live_path("a/" LIVE_NAME), 0), 0);
    return kji_rows_collect(userdata, point);
}

/* What was read is recognised though it was gone before the look at it ended. */
static void test_cut_while_it_is_read(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size / 2);
    kj_events *source = live_follow_by_inotify("a");
    assert_true(kj_events_step(source, 0, cut_at_the_first, &got, NULL) > 1);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kji_rows_await(source, &got, live_base_rows.n);
    kji_rows_drain(source, &got);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_begun_anew_by_another_writer(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    live_put("a/" LIVE_NAME, LIVE_FIRST_END, 300, O_TRUNC); /* begins with another record */
    assert_int_not_equal(kji_rows_drain(source, &got), 0);
    live_append("a/" LIVE_NAME, 300, live_base_size);
    kji_rows_await(source, &got, 2 * live_base_rows.n);
    live_assert_all(&got, 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_truncated_file_is_read_anew_after_the_grace_time(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow("a", 0, 3600000);
    kji_rows_drain(source, &got);
    assert_int_equal(truncate(live_path("a/" LIVE_NAME), 300), 0);
    assert_int_equal(kji_rows_drain(source, &got), 0);
    assert_int_equal(kj_events_is_finished(source), 0);
    kj_events_finish(source);
    assert_int_equal(kj_events_is_finished(source), 1);
    size_t n = kji_rows_drain(source, &got);
    assert_in_range(n, 1, live_base_rows.n - 1);
    kj_events_close(source);
    kji_rows_done(&got);
    live_append("a/" LIVE_NAME, 300, live_base_size);
    source = live_follow_as("a", 0, 3600000, 1);
    kji_rows_drain(source, &got);
    assert_int_equal(truncate(live_path("a/" LIVE_NAME), 300), 0);
    kji_rows_await(source, &got, live_base_rows.n + n);
    assert_true(got.rows[live_base_rows.n].step == live_base_rows.rows[0].step);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_other_file_of_the_same_name(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    live_put("a/.copy", LIVE_FIRST_END, live_base_size, O_TRUNC); /* without its first record */
    live_append("a/.copy", LIVE_FIRST_END, live_base_size);
    assert_int_equal(rename(live_path("a/.copy"), live_path("a/" LIVE_NAME)), 0);
    kji_rows_await(source, &got, 3 * live_base_rows.n);
    live_assert_all(&got, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* The same in place, so fast that nobody saw it short; its records even begin where the old ones
 * ended. */
static void test_overwritten_in_place(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    live_put("a/" LIVE_NAME, LIVE_FIRST_END, live_base_size, O_TRUNC);
    live_append("a/" LIVE_NAME, LIVE_FIRST_END, live_base_size);
    live_append("a/" LIVE_NAME, LIVE_FIRST_END, live_base_size);
    kji_rows_await(source, &got, 4 * live_base_rows.n);
    live_assert_all(&got, 4);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_hole_filled_in_later(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, 400);
    assert_int_equal(truncate(live_path("a/" LIVE_NAME), (off_t)live_base_size), 0);
    kj_events *source = live_follow_by_inotify("a");
    kji_rows_drain(source, &got);
    int fd = open(live_path("a/" LIVE_NAME), O_WRONLY);
    assert_true(pwrite(fd, live_base + 600, live_base_size - 600, 600) > 0);
    kji_rows_drain(source, &got);
    assert_true(got.n < live_base_rows.n);
    assert_int_equal(pwrite(fd, live_base + 400, 200, 400), 200);
    close(fd);
    kji_rows_await(source, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_names_that_are_no_event_files(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/." LIVE_NAME, 0, live_base_size);
    live_append("a/" LIVE_NAME ".gz", 0, live_base_size);
    live_append("a/" LIVE_NAME ".profile-empty", 0, live_base_size);
    live_append("a/" LIVE_NAME ".tmp", 0, live_base_size);
    live_append("a/tfevents", 0, live_base_size);
    mkdir(live_path("a/" LIVE_NAME ".d"), 0700);
    kj_events *source = live_follow("a", KJ_EVENTS_FINISHED, 0);
    assert_int_equal(kji_rows_drain(source, &got), 0);
    kj_events_close(source);
}

static void test_links(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    mkdir(live_path("a/sub"), 0700);
    live_append("a/sub/" LIVE_NAME, 0, live_base_size);
    assert_int_equal(symlink("..", live_path("a/sub/loop")), 0);
    assert_int_equal(symlink("sub", live_path("a/latest")), 0);
    mkdir(live_path("elsewhere"), 0700);
    live_append("elsewhere/" LIVE_NAME, 0, live_base_size);
    assert_int_equal(symlink("../elsewhere", live_path("a/other")), 0);
    kj_events *source = live_follow("a", KJ_EVENTS_FINISHED, 0);
    kji_rows_drain(source, &got);
    live_assert_all(&got, 2);
    assert_string_equal(got.rows[0].run, "other");
    assert_string_equal(got.rows[live_base_rows.n].run, "sub");
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
    mkdir(live_path("a"), 0700);
    int fd = open(live_path("a/" LIVE_NAME), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(kji_write_all(fd, head, sizeof head, NULL), 0);
    assert_int_equal(kji_write_all(fd, event, size, NULL), 0);
    assert_int_equal(kji_write_all(fd, tail, sizeof tail, NULL), 0);
    close(fd);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kji_rows got = {.stop_after = 7777};
    kj_events *source = live_follow_by_inotify("a");
    assert_int_equal(kji_rows_drain(source, &got), N + live_base_rows.n);
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
    mkdir(live_path("a"), 0700);
    assert_int_equal(chmod(live_path("a"), 0), 0);
    assert_int_equal(chmod(live_top, 0755), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0);
    kj_events *source = live_follow("a", 0, 3600000);
    int r = kj_events_step(source, 0, kji_rows_collect, &got, &err);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(r, KJ_EPERM);
    assert_non_null(strstr(err.message, "cannot list folder"));
    kj_events_close(source);
    assert_int_equal(chmod(live_path("a"), 0700), 0);
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
    mkdir(live_path("a"), 0700);
    /* A file whose first byte is an error. */
    assert_int_equal(symlink("/proc/self/mem", live_path("a/" LIVE_NAME)), 0);
    kj_events *source = live_follow("a", 0, 1);
    n_told = 0;
    kj_log_set(keep_log, NULL);
    for (int k = 0; k < 3; k++) /* with polls in between */
        assert_int_equal(kj_events_step(source, 3, kji_rows_collect, &got, NULL), 0);
    kj_log_set(NULL, NULL);
    assert_int_equal(n_told, 1);
    assert_non_null(strstr(told, LIVE_NAME ": cannot be read at offset 0: Input/output error"));
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
    kj_events *source = live_follow_by_inotify("a");
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
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, live_base_size);
    kj_events *source = live_follow_by_inotify("a");
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    while (got.n < live_base_rows.n) {
        assert_int_equal(poll(&wait, 1, 60000), 1);
        assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 1);
    }
    assert_int_equal(kj_events_step(source, 0, kji_rows_collect, &got, NULL), 0);
    live_assert_all(&got, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* Every single bit that flips loses at most its own record and invents none. */
static void test_single_bit_flips(void **state)
{
    (void)state;
    mkdir(live_path("a"), 0700);
    for (size_t bit = 0; bit < live_base_size * 8; bit += 7) {
        live_base[bit / 8] ^= (char)(1 << bit % 8);
        live_put("a/" LIVE_NAME, 0, live_base_size, O_TRUNC);
        live_base[bit / 8] ^= (char)(1 << bit % 8);
        kji_rows got = {0};
        kj_events *source = live_follow("a", KJ_EVENTS_FINISHED | KJ_EVENTS_POLL, 0);
        kji_rows_drain(source, &got);
        assert_in_range(got.n, live_base_rows.n - 1, live_base_rows.n);
        size_t at = 0; /* got is live_base_rows with at most one row left out */
        for (size_t k = 0; k < got.n; k++, at++) {
            while (at < live_base_rows.n && (live_base_rows.rows[at].value != got.rows[k].value ||
                                             live_base_rows.rows[at].step != got.rows[k].step))
                at++;
            assert_true(at < live_base_rows.n);
        }
        kj_events_close(source);
        kji_rows_done(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIVE_TEST(test_one_byte_at_a_time),
        LIVE_TEST(test_growth_wakes_the_descriptor),
        LIVE_TEST(test_what_appears_later),
        LIVE_TEST(test_file_that_appears_later),
        LIVE_TEST(test_far_times_of_change),
        LIVE_TEST(test_writer_as_fast_as_the_reader),
        LIVE_TEST(test_tree_moved_in),
        LIVE_TEST(test_folder_removed_and_made_again),
        LIVE_TEST(test_polling_only),
        LIVE_TEST(test_growing_file_is_polled_more_often),
        LIVE_TEST(test_replaced_by_a_longer_copy),
        LIVE_TEST(test_rewritten_in_place),
        LIVE_TEST(test_cut_while_it_is_read),
        LIVE_TEST(test_begun_anew_by_another_writer),
        LIVE_TEST(test_truncated_file_is_read_anew_after_the_grace_time),
        LIVE_TEST(test_other_file_of_the_same_name),
        LIVE_TEST(test_overwritten_in_place),
        LIVE_TEST(test_hole_filled_in_later),
        LIVE_TEST(test_names_that_are_no_event_files),
        LIVE_TEST(test_links),
        LIVE_TEST(test_large_summary),
        LIVE_TEST(test_folder_that_may_not_be_listed),
        LIVE_TEST(test_file_that_cannot_be_read),
        LIVE_TEST(test_a_signal_ends_the_wait),
        LIVE_TEST(test_stopping_early),
        LIVE_TEST(test_single_bit_flips),
    };
    return cmocka_run_group_tests(tests, live_load, live_drop);
}
