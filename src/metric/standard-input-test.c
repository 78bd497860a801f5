/* SPDX-License-Identifier: Apache-2.0 */
/* "-" for FILE: a pipe, a file, nothing at all on descriptor 0. */
#include "lines-place.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static int writer = -1;

/* The reading end becomes standard input. */
static void make_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    writer = ends[1];
}

static void put(const char *text)
{
    assert_int_equal(write(writer, text, strlen(text)), (ssize_t)strlen(text));
}

static void check_pipe(const char *spec, const char *first, const char *expected_first,
                       const char *last, const char *expected_last)
{
    make_pipe();
    kj_events *source = kji_place_open(spec, 0);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    kji_place_expect(source, "");
    assert_int_equal(poll(&wait, 1, 0), 0);
    put(first);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    kji_place_expect(source, expected_first);
    kj_events_finish(source); /* a pipe is finished at its end */
    put(last);
    kji_place_expect(source, "");
    assert_int_equal(kj_events_is_finished(source), 0);
    close(writer);
    kji_place_expect(source, expected_last);
    assert_int_equal(kj_events_is_finished(source), 1);
    assert_int_equal(kj_events_step(source, -1, NULL, NULL, NULL), 0);
    kj_events_close(source);
}

static void test_pipes(void **state)
{
    (void)state;
    check_pipe("jsonl:-", "{\"step\":1,\"a\":2}\n", ". a 1 nan 2\n", "{\"step\":3,\"a\":4}",
               ". a 3 nan 4\n");
    check_pipe("csv:-", "step,a\n1,2\n", ". a 1 nan 2\n", "3,4", ". a 3 nan 4\n");
    make_pipe();
    kj_events *source = kji_place_open("text:-:/a=(\\S+)/", 0);
    kji_rows got = {0};
    for (const char *at = "a=1\nb=2\na=3\na=4"; *at; at++) {
        put((const char[]){*at, 0});
        kji_rows_drain(source, &got);
    }
    assert_int_equal(got.n, 2);
    close(writer);
    kji_rows_await(source, &got, 3);
    assert_true(got.rows[1].value == 3 && got.rows[2].value == 4 && got.rows[2].step == 2);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_end_of_a_pipe_wakes_the_reader(void **state)
{
    (void)state;
    make_pipe();
    kj_events *source = kji_place_open("jsonl:-", KJ_EVENTS_FINISHED);
    assert_int_equal(kj_events_step(source, 0, NULL, NULL, NULL), 0);
    assert_int_equal(kj_events_is_finished(source), 0);
    close(writer);
    assert_int_equal(kj_events_step(source, -1, NULL, NULL, NULL), 0);
    assert_int_equal(kj_events_is_finished(source), 1);
    kj_events_close(source);
}

static void test_a_line_over_many_reads(void **state)
{
    (void)state;
    static char text[40000];
    make_pipe();
    kj_events *source = kji_place_open("jsonl:-", 0);
    put("{\"text\":\"");
    memset(text, 'x', sizeof text - 1);
    for (int k = 0; k < 10; k++) {
        put(text);
        kji_place_expect(source, "");
    }
    put("\",\"a\":1}\n");
    kji_place_expect(source, ". a 0 nan 1\n");
    close(writer);
    kj_events_close(source);
}

static void test_a_file_on_standard_input(void **state)
{
    (void)state;
    kji_place_append("step,a\n1,2\n");
    int fd = open(kji_place.path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    close(fd);
    kj_events *source = kji_place_open("csv:-", 0);
    kji_place_expect(source, ". a 1 nan 2\n");
    kji_place_append("3,4\n5");
    kji_place_expect(source, ". a 3 nan 4\n");
    kj_events_finish(source);
    kji_place_expect(source, "");
    assert_int_equal(kj_events_is_finished(source), 1);
    kj_events_close(source);
}

static void test_nothing_on_standard_input(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    close(fd);
    kj_events *source = kji_place_open("jsonl:-", 0);
    assert_int_equal(kj_events_step(source, -1, NULL, NULL, NULL), 0);
    assert_int_equal(kj_events_is_finished(source), 1);
    kj_events_close(source);
    close(STDIN_FILENO);
    source = kji_place_open("jsonl:-", 0);
    assert_int_equal(kj_events_step(source, -1, NULL, NULL, NULL), 0);
    kj_events_close(source);
    assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO); /* nobody else gets the number */
}

static void test_only_when_asked_for(void **state)
{
    (void)state;
    char left[8];
    make_pipe();
    put("abc");
    kji_place_append("{\"a\":1}\n");
    kj_events *source = kji_place_open("jsonl:%s", KJ_EVENTS_FINISHED);
    kji_place_expect(source, ". a 0 nan 1\n");
    kj_events_close(source);
    assert_int_equal(read(STDIN_FILENO, left, sizeof left), 3);
    close(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_PLACE_TEST(test_pipes),
        KJI_PLACE_TEST(test_end_of_a_pipe_wakes_the_reader),
        KJI_PLACE_TEST(test_a_line_over_many_reads),
        KJI_PLACE_TEST(test_a_file_on_standard_input),
        KJI_PLACE_TEST(test_nothing_on_standard_input),
        KJI_PLACE_TEST(test_only_when_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
