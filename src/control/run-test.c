/* SPDX-License-Identifier: Apache-2.0 */
/* Commands from both doors, and what the training does with them. */
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int conn;

static int set_up(void **state)
{
    if (fix_set_up(state) < 0)
        return -1;
    fix_open(NULL, 0);
    conn = fix_connect();
    return 0;
}

static int tear_down(void **state)
{
    close(conn);
    return fix_tear_down(state);
}

static struct json_object *command(const char *line)
{
    return fix_command(conn, line);
}

static void expect_state(const char *line, const char *state)
{
    fix_expect_state(conn, line, state);
}

static void expect_rejected(const char *line, const char *part_of_message)
{
    fix_expect_rejected(conn, line, part_of_message);
}

/* The record with which the command just sent ends. */
static struct json_object *outcome(const char *state)
{
    return fix_wait_event(conn, "command", state);
}

static void test_set_is_read_back(void **state)
{
    (void)state;
    kj_run_begin_epoch(fix.run, 0);
    kj_run_begin_step(fix.run, 4);
    expect_state("set lr=0.01 units=64 mode=\"very slow\"", "accepted");
    assert_true(fix.lr == 0.1);
    assert_int_equal(kj_run_begin_step(fix.run, 5), 0);
    assert_true(fix.lr == 0.01);
    assert_int_equal(fix.units, 64);
    assert_string_equal(fix.mode, "very slow");
    struct json_object *record = outcome("done"), *values;
    assert_int_equal(fix_int(record, "step"), 5);
    assert_int_equal(fix_int(record, "epoch"), 0);
    assert_string_equal(fix_text(record, "place"), "step");
    json_object_object_get_ex(record, "old", &values);
    assert_int_equal(fix_int(values, "units"), 32);
    json_object_object_get_ex(record, "new", &values);
    assert_int_equal(fix_int(values, "units"), 64);
    json_object_put(record);
}

static void test_bad_sets_change_nothing(void **state)
{
    (void)state;
    expect_rejected("set lr=nan", "finite");
    expect_rejected("set lr=inf", "finite");
    expect_rejected("set lr=0", "must be > 0.0 and <= 1.0");
    expect_rejected("set lr=1.5", "out of range");
    expect_rejected("set lr=fast", "no float");
    expect_rejected("set units=1.5", "no int");
    expect_rejected("set units=0", "must be >= 1.0");
    expect_rejected("set units=64 lrr=1", "did you mean lr?");
    expect_rejected("set units=64 fixed=1", "read only");
    expect_rejected("set", "NAME=VALUE");
    expect_rejected("set lr 0.1", "key=value");
    expect_rejected("set lr=0.1 at=later", "step:N");
    expect_rejected("set lr=0.1 wait=done", "kajitori command");
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_true(fix.lr == 0.1);
    assert_int_equal(fix.units, 32);
}

static void test_a_setter_that_fails_takes_all_back(void **state)
{
    (void)state;
    fix.fail_units = true;
    expect_state("set lr=0.5 units=7", "accepted");
    kj_run_poll(fix.run);
    struct json_object *record = outcome("failed");
    assert_string_equal(fix_text(record, "error"), "units: no room for 7");
    assert_true(fix.lr == 0.1);
    json_object_put(record);
}

static void test_unknown_things_name_the_nearest(void **state)
{
    (void)state;
    expect_rejected("stpo", "did you mean stop?");
    expect_rejected("explode", "there are ping, help");
    expect_rejected("tikc", "did you mean tick?");
    expect_rejected("tick m=3", "key");
    expect_rejected("tick n=x", "no int");
    expect_rejected("tick loud=maybe", "no bool");
    expect_rejected("stop now", "takes no word");
    expect_rejected("stop when=now", "no key \"when\"; there is validate");
    expect_rejected("resume when=now", "takes no key");
    expect_rejected("get lrr", "did you mean lr?");
    expect_rejected("resume at=step:4", "resume");
    expect_rejected("status at=epoch", "at once");
    expect_rejected("stop \"", "quote");
    expect_rejected("# nothing", "no command");
}

static void test_before_the_first_step_more_may_come(void **state)
{
    (void)state;
    expect_rejected("set later=1", "may still register");
    expect_rejected("explode", "may still register");
    kj_run_begin_step(fix.run, 0);
    struct json_object *answer = command("set later=1");
    assert_null(strstr(fix_text(answer, "message"), "may still"));
    json_object_put(answer);
}

static void test_own_verb(void **state)
{
    (void)state;
    expect_state("tick n=5 loud=yes", "accepted");
    kj_run_poll(fix.run);
    struct json_object *record = outcome("done"), *result;
    json_object_object_get_ex(record, "result", &result);
    assert_int_equal(fix_int(result, "ticks"), 1);
    assert_int_equal(fix.tick_sum, 5);
    assert_string_equal(fix_text(record, "place"), "poll");
    json_object_put(record);
    expect_state("tick n=-1", "accepted");
    kj_run_poll(fix.run);
    record = outcome("failed");
    assert_string_equal(fix_text(record, "error"), "cannot tick backwards");
    json_object_put(record);
}

static void test_stop_now(void **state)
{
    (void)state;
    assert_int_equal(kj_run_should_stop(fix.run), 0);
    expect_state("stop reason=\"good enough\" by=me", "accepted");
    expect_state("stop reason=second", "accepted");
    assert_int_equal(kj_run_should_stop(fix.run), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 0), KJ_RUN_STOP);
    assert_int_equal(kj_run_should_stop(fix.run), 1);
    assert_string_equal(kj_run_stop_reason(fix.run), "good enough");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP); /* for ever */
    struct json_object *record = command("stop"), *result;
    assert_string_equal(fix_text(record, "state"), "done");
    json_object_object_get_ex(record, "result", &result);
    assert_int_equal(fix_int(result, "seq"), 1);
    json_object_put(record);
    expect_rejected("pause", "stopping");
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 2), "state"), "done");
    assert_string_equal(fix_text(fix_last_record(journal, 1), "by"), "me");
    json_object_put(journal);
}

static void test_stop_at_a_step(void **state)
{
    (void)state;
    expect_state("stop at=step:10", "scheduled");
    assert_int_equal(kj_run_get_cell(fix.run)->due_step, 10);
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 9), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 12), KJ_RUN_STOP); /* at or after */
    assert_true(kj_run_get_cell(fix.run)->due_step == INT64_MAX);
}

static void test_stop_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    kj_run_begin_epoch(fix.run, 3);
    expect_state("stop at=epoch", "scheduled");
    assert_int_equal(kj_run_begin_step(fix.run, 100), 0);
    assert_int_equal(kj_run_end_epoch(fix.run, 3), KJ_RUN_STOP);
    struct json_object *record = outcome("applied");
    assert_string_equal(fix_text(record, "place"), "epoch");
    json_object_put(record);
}

static void test_an_earlier_stop_replaces_a_scheduled_one(void **state)
{
    (void)state;
    kj_run_begin_epoch(fix.run, 0);
    expect_state("stop at=epoch:7", "scheduled");
    expect_state("stop at=epoch:9", "scheduled"); /* later: waits for the first to act */
    expect_state("stop at=epoch:2", "scheduled");
    struct json_object *record = outcome("expired");
    assert_int_equal(fix_int(record, "seq"), 1);
    assert_non_null(strstr(fix_text(record, "error"), "seq 3"));
    json_object_put(record);
    kj_run_begin_epoch(fix.run, 1);
    assert_int_equal(kj_run_end_epoch(fix.run, 1), 0);
    kj_run_begin_epoch(fix.run, 2);
    assert_int_equal(kj_run_end_epoch(fix.run, 2), KJ_RUN_STOP);
}

static void test_order_is_that_of_the_sequence(void **state)
{
    (void)state;
    expect_state("set lr=0.2", "accepted");
    expect_state("set lr=0.3", "accepted");
    expect_state("set lr=0.4 at=step:0", "scheduled");
    kj_run_begin_step(fix.run, 0);
    assert_true(fix.lr == 0.4);
    struct json_object *journal = fix_journal(), *old;
    json_object_object_get_ex(fix_last_record(journal, 3), "old", &old);
    double value;
    json_object_object_get_ex(old, "lr", &old);
    assert_true(kji_json_get_double(old, &value) && value == 0.3);
    json_object_put(journal);
}

static void expect_done(const char *line)
{
    expect_state(line, "accepted");
    json_object_put(outcome("done"));
}

static void *steer_a_pause(void *data)
{
    (void)data;
    json_object_put(fix_wait_event(conn, "state", "paused"));
    struct json_object *status = fix_call(conn, "status", NULL);
    assert_string_equal(fix_text(status, "state"), "paused");
    json_object_put(status);
    expect_state("pause", "done");
    expect_done("set lr=0.7");
    expect_done("tick n=2");
    expect_state("get lr", "done");
    expect_state("resume", "accepted");
    json_object_put(fix_wait_event(conn, "state", "running"));
    return NULL;
}

static void test_pause_waits_and_answers(void **state)
{
    (void)state;
    json_object_put(fix_call(conn, "subscribe", NULL));
    expect_state("resume", "done"); /* nothing to resume */
    expect_state("pause", "accepted");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, steer_a_pause, NULL), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 3), 0); /* returns after resume only */
    pthread_join(thread, NULL);
    assert_true(fix.lr == 0.7);
    assert_int_equal(fix.n_ticks, 1);
}

static void *stop_a_pause(void *data)
{
    (void)data;
    json_object_put(fix_wait_event(conn, "state", "paused"));
    fix_write(fix_ctl(), "stop\n");
    json_object_put(fix_wait_event(conn, "state", "stopping"));
    return NULL;
}

static void test_stop_ends_a_pause(void **state)
{
    (void)state;
    json_object_put(fix_call(conn, "subscribe", "{\"events\": [\"state\"]}"));
    expect_state("pause", "accepted");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_a_pause, NULL), 0);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    pthread_join(thread, NULL);
}

static void test_questions_do_not_need_the_training(void **state)
{
    (void)state;
    kj_run_report(fix.run, "loss", 3, NAN, NULL);
    kj_run_report(fix.run, "loss", 4, 0.5, NULL);
    kj_run_set_phase(fix.run, "validation");
    kj_run_get_cell(fix.run)->step = 17; /* as a binding does */
    struct json_object *status = fix_call(conn, "status", NULL), *metrics;
    assert_int_equal(fix_int(status, "step"), 17);
    assert_int_equal(fix_int(status, "epoch"), -1);
    assert_string_equal(fix_text(status, "phase"), "validation");
    json_object_object_get_ex(status, "metrics", &metrics);
    assert_int_equal(json_object_array_length(metrics), 1);
    assert_int_equal(fix_int(json_object_array_get_idx(metrics, 0), "step"), 4);
    json_object_put(status);
    struct json_object *params = fix_call(conn, "params", NULL);
    json_object_object_get_ex(params, "params", &metrics);
    assert_int_equal(json_object_array_length(metrics), 4);
    json_object_put(params);
    struct json_object *help = fix_call(conn, "help", "{\"verb\": \"tick\"}");
    json_object_object_get_ex(help, "verbs", &metrics);
    assert_string_equal(fix_text(json_object_array_get_idx(metrics, 0), "name"), "tick");
    json_object_put(help);
}

static void test_get_asks_for_a_fresh_value(void **state)
{
    (void)state;
    fix.lr = 0.9; /* changed by the training itself */
    expect_state("get lr", "done");
    kj_run_begin_step(fix.run, 8);
    struct json_object *record = command("get lr"), *list;
    json_object_object_get_ex(record, "result", &list);
    json_object_object_get_ex(list, "params", &list);
    assert_int_equal(fix_int(json_object_array_get_idx(list, 0), "step"), 8);
    json_object_put(record);
    fix.units = 99;
    kj_run_end_epoch(fix.run, 0);
    struct json_object *status = fix_call(conn, "status", NULL), *values;
    json_object_object_get_ex(status, "params", &values);
    assert_int_equal(fix_int(values, "units"), 99);
    json_object_put(status);
}

static void test_dry_run_changes_nothing(void **state)
{
    (void)state;
    expect_state("set lr=0.5 dry_run=yes", "done");
    expect_state("stop dry_run=yes", "done");
    expect_rejected("set lr=7 dry_run=yes", "out of range");
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_true(fix.lr == 0.1);
}

static void test_a_repeat_is_harmless(void **state)
{
    (void)state;
    expect_state("tick n=1 command_id=abc", "accepted");
    expect_state("tick n=1 command_id=abc", "accepted");
    kj_run_poll(fix.run);
    struct json_object *record = command("tick n=1 command_id=abc");
    assert_string_equal(fix_text(record, "state"), "done");
    assert_int_equal(fix_int(record, "seq"), 1);
    json_object_put(record);
    fix_write(fix_ctl(), "tick n=1 command_id=abc\ntick n=10\n");
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 11);
    expect_rejected("tick n=x command_id=bad", "no int");
    expect_rejected("tick n=1 command_id=bad", "no int"); /* the first one's answer */
}

static void test_json_commands(void **state)
{
    (void)state;
    struct json_object *record = fix_call(conn, "command",
                                          "{\"verb\": \"SET\", \"args\": {\"lr\": 0.25, \"units\": "
                                          "8, \"mode\": \"m\"}, \"at\": \"now\", "
                                          "\"by\": \"alice\", \"dry_run\": false}");
    assert_string_equal(fix_text(record, "state"), "accepted");
    assert_string_equal(fix_text(record, "by"), "alice");
    assert_int_equal(fix_int(record, "uid"), geteuid());
    assert_int_equal(fix_int(record, "pid"), getpid());
    json_object_put(record);
    kj_run_poll(fix.run);
    assert_true(fix.lr == 0.25);
    static const char *const bad[] = {
        "{}",
        "{\"verb\": 1}",
        "{\"verb\": \"set\", \"args\": []}",
        "{\"verb\": \"set\", \"args\": {\"lr\": null}}",
        "{\"verb\": \"set\", \"args\": {\"lr\": [1]}}",
        "{\"verb\": \"set\", \"args\": {\"lr\": true}}",
        "{\"verb\": \"set\", \"args\": {\"units\": 1.5}}",
        "{\"verb\": \"set\", \"args\": {\"mode\": 5}}",
        "{\"verb\": \"set\", \"args\": {\"at\": \"now\"}}",
        "{\"verb\": \"stop\", \"words\": [1]}",
        "{\"verb\": \"stop\", \"when\": \"now\"}",
        "{\"line\": \"stop\", \"at\": \"now\"}",
        "{\"verb\": \"stop\\u0000\"}",
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct json_object *error = fix_call(conn, "command", bad[k]);
        if (fix_int(error, "code") != KJ_EREJECTED)
            fail_msg("%s was not rejected", bad[k]);
        json_object_put(error);
    }
    assert_int_equal(kj_run_poll(fix.run), 0);
}

static void test_what_was_not_carried_out_expires(void **state)
{
    (void)state;
    json_object_put(fix_call(conn, "subscribe", "{\"events\": [\"state\"]}"));
    expect_state("tick n=1 at=step:1000", "scheduled");
    expect_state("tick n=2", "accepted");
    fix_close();
    struct json_object *record = outcome("expired");
    assert_int_equal(fix_int(record, "seq"), 1);
    json_object_put(record);
    json_object_put(outcome("expired"));
    json_object_put(fix_wait_event(conn, "state", "ended"));
    assert_null(fix_receive(conn));
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 2), "state"), "expired");
    assert_non_null(fix_find_event(journal, "run_started"));
    assert_non_null(fix_find_event(journal, "run_ended"));
    json_object_put(journal);
    assert_int_equal(fix.tick_sum, 0);
}

static void test_a_full_queue_has_room_for_a_stop(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *ctl = kji_format("%s/ctl", kj_run_dir(fix.run));
    int fd = open(ctl, O_WRONLY | O_CLOEXEC);
    for (int k = 0; k < KJI_QUEUE_MAX; k++)
        assert_int_equal(write(fd, "tick n=1 at=step:0\n", 19), 19);
    close(fd);
    fix_wait_seq(KJI_QUEUE_MAX);
    expect_rejected("tick n=1", "10000 commands wait already");
    expect_state("pause", "accepted");
    expect_state("resume", "accepted");
    expect_state("stop", "accepted");
    assert_int_equal(kj_run_begin_step(fix.run, 0), KJ_RUN_STOP);
    assert_int_equal(fix.n_ticks, KJI_QUEUE_MAX);
    for (int k = 0; k < 3; k++) /* whatever all the others say: pause, resume, stop */
        json_object_put(outcome("applied"));
}

static int poll_inside(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata, (void)call, (void)err;
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 5), 0);
    assert_int_equal(kj_run_end_epoch(fix.run, 0), 0);
    assert_int_equal(fix.n_ticks, 0);
    return 0;
}

static void test_no_command_begins_inside_another(void **state)
{
    (void)state;
    kj_verb verb = {.size = sizeof verb, .name = "inside", .run = poll_inside};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    expect_state("inside", "accepted");
    expect_state("tick n=1", "accepted");
    kj_run_poll(fix.run);
    assert_int_equal(fix.n_ticks, 1);
}

static int odd_result(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    assert_int_equal(kj_call_set_result(call, "{\"a\": \"\xff\"}", NULL), KJ_EDATA);
    return kj_call_set_result(call, "[NaN, -Infinity, {\"x\": 1., \"y\": 1}]", err);
}

static int get_latin1(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)userdata, (void)err;
    *ret_value = (kj_value){.type = KJ_TYPE_STRING, .s = "caf\xe9"};
    return 0;
}

static int set_nothing(void *userdata, const kj_value *value, kj_error *err)
{
    (void)userdata, (void)value, (void)err;
    return 0;
}

/* Whatever a program gives, the journal and the answers are JSON in UTF-8. */
static void test_what_programs_give_is_made_json(void **state)
{
    (void)state;
    kj_verb verb = {.size = sizeof verb, .name = "odd", .run = odd_result};
    kj_param latin1 = {.size = sizeof latin1,
                       .type = KJ_TYPE_STRING,
                       .name = "latin1",
                       .get = get_latin1,
                       .set = set_nothing};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    assert_int_equal(kj_run_add_param(fix.run, &latin1, NULL), 0);
    expect_state("odd", "accepted");
    kj_run_poll(fix.run);
    struct json_object *record = outcome("done"), *result;
    assert_true(json_object_object_get_ex(record, "result", &result));
    assert_string_equal(json_object_to_json_string_ext(result, JSON_C_TO_STRING_PLAIN),
                        "[\"NaN\",\"-Infinity\",{\"x\":1.0,\"y\":1}]");
    json_object_put(record);
    expect_state("set latin1=x", "accepted");
    kj_run_poll(fix.run);
    record = outcome("done");
    assert_true(json_object_object_get_ex(record, "old", &result));
    assert_string_equal(fix_text(result, "latin1"), "caf\xef\xbf\xbd");
    json_object_put(record);
}

static void expect_json_rejected(const char *params, const char *part_of_message)
{
    struct json_object *error = fix_call(conn, "command", params);
    assert_int_equal(fix_int(error, "code"), KJ_EREJECTED);
    if (!strstr(fix_text(error, "message"), part_of_message))
        fail_msg("%s: \"%s\" is not in \"%s\"", params, part_of_message,
                 fix_text(error, "message"));
    json_object_put(error);
}

static void test_numbers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"lr\":NaN}}", "lr: NaN is refused");
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"lr\":1e400}}", "lr: Infinity is refused");
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"units\":9223372036854775808}}",
                         "units: \"9223372036854775808\" is no int");
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"lr\":99999999999999999999}}", "no float");
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"lr\":[[[[0.1]]]]}}", "no float");
    expect_json_rejected("{\"verb\":\"set\",\"args\":{\"lr\":null}}", "no float");
    assert_true(fix.lr == 0.1);
    struct json_object *journal = fix_journal(), *args;
    json_object_object_get_ex(fix_last_record(journal, 1), "args", &args);
    assert_string_equal(fix_text(args, "lr"), "NaN"); /* a string, not a bare token */
    json_object_put(journal);
}

static void test_a_locale_with_a_decimal_comma_changes_nothing(void **state)
{
    (void)state;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* as in base-test.c */
    expect_state("set lr=0.25", "accepted");
    kj_run_poll(fix.run);
    assert_true(fix.lr == 0.25);
    json_object_put(fix_call(conn, "command", "{\"verb\":\"set\",\"args\":{\"lr\":0.125}}"));
    kj_run_poll(fix.run);
    assert_true(fix.lr == 0.125);
    expect_rejected("set lr=0,5", "no float");
    struct json_object *status = fix_call(conn, "status", NULL), *params;
    json_object_object_get_ex(status, "params", &params);
    assert_non_null(strstr(json_object_to_json_string(params), "0.125"));
    json_object_put(status);
    setlocale(LC_ALL, "C");
    json_object_put(fix_journal()); /* parses */
}

static int threads_end; /* atomic */

static void *ask_all_the_time(void *data)
{
    const char *id = kj_run_id(fix.run), *dir = kj_run_dir(fix.run);
    long *n_asked = data;
    while (!__atomic_load_n(&threads_end, __ATOMIC_ACQUIRE)) {
        ++*n_asked;
        if (kj_run_should_stop(fix.run) && strcmp(kj_run_stop_reason(fix.run), "enough") != 0)
            return NULL;
        if (kj_run_id(fix.run) != id || kj_run_dir(fix.run) != dir)
            return NULL;
    }
    return data;
}

static void test_any_thread_may_ask(void **state)
{
    (void)state;
    enum { THREADS = 4, STEPS = 300 };
    pthread_t threads[THREADS];
    long n_asked[THREADS] = {0};
    threads_end = 0;
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, ask_all_the_time, &n_asked[k]), 0);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == STEPS / 2)
            expect_state("stop reason=enough", "accepted");
        json_object_put(fix_call(conn, "status", NULL));
        assert_int_equal(kj_run_report(fix.run, "loss", step, 0.5, NULL), 0);
        kj_run_begin_step(fix.run, step);
    }
    __atomic_store_n(&threads_end, 1, __ATOMIC_RELEASE);
    for (int k = 0; k < THREADS; k++) {
        void *good;
        pthread_join(threads[k], &good);
        assert_ptr_equal(good, &n_asked[k]);
    }
    assert_int_equal(kj_run_should_stop(fix.run), 1);
}

/* For bindings that keep due_step from one safe point to the next. */
static void test_a_smaller_due_step_is_pending(void **state)
{
    (void)state;
    kj_run_cell *cell = kj_run_get_cell(fix.run);
    expect_state("tick at=step:9", "scheduled");
    kj_run_poll(fix.run);
    assert_int_equal(cell->pending, 0);
    assert_int_equal(cell->due_step, 9);
    expect_state("tick at=step:12", "scheduled");
    assert_int_equal(cell->pending, 0);
    expect_state("tick at=step:5", "scheduled");
    assert_int_not_equal(cell->pending, 0);
    assert_int_equal(cell->due_step, 5);
}

/* For bindings that leave out the ends of epochs at which nothing is to be done. */
static void test_the_epoch_that_is_due_is_told(void **state)
{
    (void)state;
    kj_run_cell *cell = kj_run_get_cell(fix.run);
    assert_true(cell->due_epoch == INT64_MAX);
    kj_run_begin_epoch(fix.run, 3);
    expect_state("tick at=epoch:7", "scheduled");
    assert_int_not_equal(cell->pending, 0);
    kj_run_begin_step(fix.run, 3);
    assert_int_equal(cell->pending, 0);
    assert_int_equal(cell->due_epoch, 7);
    expect_state("tick at=epoch:9", "scheduled");
    assert_int_equal(cell->pending, 0);
    expect_state("stop at=epoch", "scheduled");
    assert_int_not_equal(cell->pending, 0);
    assert_int_equal(cell->due_epoch, 3);
    assert_true(cell->due_step == INT64_MAX);
    assert_int_equal(kj_run_end_epoch(fix.run, 3), KJ_RUN_STOP);
    assert_true(cell->due_epoch > 3);
}

static void test_a_remark_of_the_program(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_run_note(fix.run, "warm-up is over", &err), 0);
    assert_int_equal(kj_run_note(fix.run, "", &err), KJ_EARG);
    assert_int_equal(kj_run_note(fix.run, "a\xff", &err), KJ_EARG);
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_find_event(journal, "note"), "text"), "warm-up is over");
    json_object_put(journal);
}

static void test_bad_registrations(void **state)
{
    (void)state;
    kj_param param = {.size = sizeof param, .type = KJ_TYPE_FLOAT, .name = "at"};
    kj_verb verb = {.size = sizeof verb, .name = "stop"};
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_run_add_param(fix.run, &param, &err), KJ_EARG);
    param.name = "x";
    assert_int_equal(kj_run_add_param(fix.run, &param, &err), KJ_EARG); /* no getter */
    assert_int_equal(kj_run_add_verb(fix.run, &verb, &err), KJ_EARG);   /* no function */
    assert_int_equal(kj_run_report(fix.run, "", 0, 1, &err), KJ_EARG);
    assert_int_equal(kj_run_report(fix.run, "a\xff", 0, 1, &err), KJ_EARG);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    options.run_id = ".hidden";
    assert_int_equal(kj_run_open(&options, &run, &err), KJ_EARG);
    assert_null(run);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_set_is_read_back),
        TEST(test_bad_sets_change_nothing),
        TEST(test_a_setter_that_fails_takes_all_back),
        TEST(test_unknown_things_name_the_nearest),
        TEST(test_before_the_first_step_more_may_come),
        TEST(test_own_verb),
        TEST(test_stop_now),
        TEST(test_stop_at_a_step),
        TEST(test_stop_at_the_end_of_an_epoch),
        TEST(test_an_earlier_stop_replaces_a_scheduled_one),
        TEST(test_order_is_that_of_the_sequence),
        TEST(test_pause_waits_and_answers),
        TEST(test_stop_ends_a_pause),
        TEST(test_questions_do_not_need_the_training),
        TEST(test_get_asks_for_a_fresh_value),
        TEST(test_dry_run_changes_nothing),
        TEST(test_a_repeat_is_harmless),
        TEST(test_json_commands),
        TEST(test_what_was_not_carried_out_expires),
        TEST(test_a_full_queue_has_room_for_a_stop),
        TEST(test_no_command_begins_inside_another),
        TEST(test_what_programs_give_is_made_json),
        TEST(test_numbers_that_do_not_fit_are_refused),
        TEST(test_a_locale_with_a_decimal_comma_changes_nothing),
        TEST(test_any_thread_may_ask),
        TEST(test_a_smaller_due_step_is_pending),
        TEST(test_the_epoch_that_is_due_is_told),
        TEST(test_a_remark_of_the_program),
        TEST(test_bad_registrations),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
