/* SPDX-License-Identifier: Apache-2.0 */
/* Subscribing with a cursor: what a reader gets over several connections is all there was, once. */
#include "mem.h"
#include "rng.h"
#include "rpc.h"
#include "run-fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char cursor[KJI_FEED_CURSOR_TEXT];

static void remember(struct json_object *holder)
{
    assert_true(*fix_text(holder, "cursor"));
    snprintf(cursor, sizeof cursor, "%s", fix_text(holder, "cursor"));
}

/* A new connection that subscribes to `events` (a JSON list), after `after` when it is not NULL. */
static int subscribe(const char *events, const char *after)
{
    int fd = fix_connect();
    KJI_CLEANUP(kji_freep)
    char *params = after ? kji_format("{\"events\": %s, \"after\": \"%s\"}", events, after)
                         : kji_format("{\"events\": %s}", events);
    struct json_object *answer = fix_call(fd, "subscribe", params);
    remember(answer);
    json_object_put(answer);
    return fd;
}

static struct json_object *next_event(int fd)
{
    struct json_object *message = fix_receive(fd), *params;
    assert_non_null(message);
    assert_true(json_object_object_get_ex(message, "params", &params));
    json_object_get(params);
    json_object_put(message);
    remember(params);
    return params;
}

static void expect_gap(int fd, int64_t lost)
{
    struct json_object *event = next_event(fd);
    assert_string_equal(fix_text(event, "event"), "gap");
    assert_int_equal(fix_int(event, "lost"), lost);
    json_object_put(event);
}

static void expect_metric(int fd, int64_t step)
{
    struct json_object *event = next_event(fd);
    assert_string_equal(fix_text(event, "event"), "metric");
    assert_int_equal(fix_int(event, "step"), step);
    json_object_put(event);
}

static void report(int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++)
        assert_int_equal(kj_run_report(fix.run, "loss", step, 0.5, NULL), 0);
}

typedef struct counts {
    int64_t metrics, records;           /* that happened */
    int64_t seen_metrics, seen_records; /* that the reader got */
    int64_t last_n;                     /* number of the newest record's line */
} counts;

static void happen(counts *tally, int other)
{
    report(tally->metrics, tally->metrics + 3);
    tally->metrics += 3;
    json_object_put(fix_call(other, "command", "{\"line\": \"tick\"}"));
    kj_run_poll(fix.run);
    tally->records += 3; /* accepted, applied, done */
}

static void see(counts *tally, int fd)
{
    struct json_object *event = next_event(fd);
    if (strcmp(fix_text(event, "event"), "metric") == 0) {
        assert_int_equal(fix_int(event, "step"), tally->seen_metrics++);
    } else {
        assert_string_equal(fix_text(event, "event"), "command");
        assert_true(fix_int(event, "n") == tally->last_n + 1 || tally->last_n == 0);
        tally->last_n = fix_int(event, "n");
        tally->seen_records++;
    }
    json_object_put(event);
}

static void test_a_reader_that_is_killed_at_random(void **state)
{
    (void)state;
    counts tally = {0};
    kji_rng rng;
    kji_rng_seed(&rng, 4);
    fix_open(NULL, 0);
    int other = fix_connect(), fd = subscribe("[\"metric\", \"command\"]", NULL);
    for (int round = 0; round < 3000; round++) {
        int64_t waiting = tally.metrics + tally.records - tally.seen_metrics - tally.seen_records;
        switch (kji_rng_uint32(&rng) % 8) {
        case 0:
            happen(&tally, other);
            break;
        case 1: /* what is on its way to the reader is lost with the connection */
            close(fd);
            fd = subscribe("[\"metric\", \"command\"]", cursor);
            break;
        default:
            if (waiting > 0)
                see(&tally, fd);
        }
    }
    while (tally.seen_metrics < tally.metrics || tally.seen_records < tally.records)
        see(&tally, fd);
    close(other);
    close(fd);
}

static void test_what_came_while_nobody_watched(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    close(subscribe("[\"metric\"]", NULL));
    report(0, KJI_FEED_METRIC_ROOM);
    int fd = subscribe("[\"metric\"]", cursor);
    for (int64_t step = 0; step < KJI_FEED_METRIC_ROOM; step++)
        expect_metric(fd, step);
    close(fd);
}

static void test_a_gap_has_the_exact_number(void **state)
{
    (void)state;
    enum { LOST = 3616 };
    fix_open(NULL, 0);
    int fd = subscribe("[\"metric\"]", NULL);
    report(0, 10);
    for (int64_t step = 0; step < 10; step++)
        expect_metric(fd, step);
    close(fd);
    report(10, 10 + KJI_FEED_METRIC_ROOM + LOST);
    fd = subscribe("[\"metric\"]", cursor);
    expect_gap(fd, LOST);
    char behind_gap[sizeof cursor];
    strcpy(behind_gap, cursor);
    for (int64_t step = 10 + LOST; step < 10 + LOST + 100; step++)
        expect_metric(fd, step);
    close(fd);
    fd = subscribe("[\"metric\"]", behind_gap); /* the gap was told, and is not told again */
    expect_metric(fd, 10 + LOST);
    close(fd);
}

/* The reader is connected all the while, and reads nothing. */
static void test_a_slow_reader_loses_the_oldest(void **state)
{
    (void)state;
    enum { REPORTS = 60000 };
    fix_open(NULL, 0);
    int fd = subscribe("[\"metric\"]", NULL);
    int64_t received = 0, lost = 0, next = 0;
    report(0, REPORTS);
    while (next < REPORTS) {
        struct json_object *event = next_event(fd);
        if (strcmp(fix_text(event, "event"), "gap") == 0) {
            lost += fix_int(event, "lost");
            next += fix_int(event, "lost");
        } else {
            assert_int_equal(fix_int(event, "step"), next++);
            received++;
        }
        json_object_put(event);
    }
    assert_int_equal(received + lost, REPORTS);
    assert_true(lost > 0);
    close(fd);
}

static void test_records_of_commands_are_kept_too(void **state)
{
    (void)state;
    enum { LOST = 100 };
    fix_open(NULL, 0);
    int other = fix_connect();
    close(subscribe("[\"command\"]", NULL));
    report(0, KJI_FEED_METRIC_ROOM + 1); /* pushes out no record */
    for (int k = 0; k < KJI_FEED_ROOM + LOST; k++)
        json_object_put(fix_call(other, "command", "{\"line\": \"ping\"}"));
    int fd = subscribe("[\"command\"]", cursor);
    expect_gap(fd, LOST);
    for (int64_t seq = LOST + 1; seq <= LOST + KJI_FEED_ROOM; seq++) {
        struct json_object *event = next_event(fd);
        assert_int_equal(fix_int(event, "seq"), seq);
        json_object_put(event);
    }
    close(other);
    close(fd);
}

static int shout(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    static char json[60003];
    memset(json, 'x', sizeof json - 1);
    json[0] = json[sizeof json - 2] = '"';
    return kj_call_set_result(call, json, err);
}

static void test_large_records_are_bounded_by_their_bytes(void **state)
{
    (void)state;
    kj_verb verb = {.size = sizeof verb, .name = "shout", .run = shout};
    fix_open(NULL, 0);
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    int other = fix_connect();
    close(subscribe("[\"command\"]", NULL));
    for (int k = 0; k < 200; k++) { /* 12 MB */
        json_object_put(fix_call(other, "command", "{\"line\": \"shout\"}"));
        kj_run_poll(fix.run);
        json_object_put(fix_wait_event(other, "command", "done"));
    }
    const kji_feed_ring *ring = &fix.run->feed.ring[KJI_FEED_SENT];
    assert_true(ring->bytes <= KJI_FEED_BYTES);
    int fd = subscribe("[\"command\"]", cursor);
    expect_gap(fd, (int64_t)ring->first);
    close(other);
    close(fd);
}

static void test_a_cursor_of_an_earlier_run(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    report(0, 5);
    close(subscribe("[\"metric\"]", NULL));
    fix_close();
    fix_open(NULL, 0);
    report(100, 103);
    int fd = subscribe("[\"metric\"]", cursor);
    expect_gap(fd, -1);
    for (int64_t step = 100; step < 103; step++)
        expect_metric(fd, step);
    close(fd);
}

static void test_without_a_cursor_from_now_on(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    report(0, 5);
    int fd = subscribe("[\"metric\"]", NULL);
    report(5, 6);
    expect_metric(fd, 5);
    close(fd);
}

/* Also the records that a sender gets without subscribing have it. */
static void test_all_events_have_a_cursor(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int fd = fix_connect();
    json_object_put(fix_call(fd, "command", "{\"line\": \"tick\"}"));
    kj_run_poll(fix.run);
    json_object_put(next_event(fd)); /* accepted */
    close(fd);
    fd = subscribe("[\"command\"]", cursor);
    struct json_object *event = next_event(fd);
    assert_string_equal(fix_text(event, "state"), "applied");
    json_object_put(event);
    close(fd);
}

static void test_what_is_no_cursor(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int fd = subscribe("[\"metric\"]", NULL);
    KJI_CLEANUP(kji_freep)
    char *forged = kji_format("\"%.*s.0.0.1.0\"", (int)strcspn(cursor, "."), cursor);
    const char *const bad[] = {"\"\"",           "\"x\"",         "5",   "null", "\"1.2.3.4\"",
                               "\"1.2.3.4.5.\"", "\"1.2.3.4.g\"", forged};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char params[200];
        snprintf(params, sizeof params, "{\"after\": %s}", bad[k]);
        struct json_object *error = fix_call(fd, "subscribe", params);
        assert_int_equal(fix_int(error, "code"), KJI_RPC_BAD_PARAMS);
        json_object_put(error);
    }
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_reader_that_is_killed_at_random),
        TEST(test_what_came_while_nobody_watched),
        TEST(test_a_gap_has_the_exact_number),
        TEST(test_a_slow_reader_loses_the_oldest),
        TEST(test_records_of_commands_are_kept_too),
        TEST(test_large_records_are_bounded_by_their_bytes),
        TEST(test_a_cursor_of_an_earlier_run),
        TEST(test_without_a_cursor_from_now_on),
        TEST(test_all_events_have_a_cursor),
        TEST(test_what_is_no_cursor),
    };
    return cmocka_run_group_tests_name("cursor", tests, NULL, NULL);
}
