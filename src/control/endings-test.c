/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a training, and what meets it: stop, prune, abort, pauses that leave or hold. */
#include "json.h"
#include "run-fixture.h"

#include <string.h>
#include <unistd.h>

static int conn;
static bool fail_to_save;

static int save(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    return fail_to_save ? KJ_EIO : kj_call_set_result(call, "{\"path\": \"there\"}", err);
}

static int set_up(void **state)
{
    if (fix_set_up(state) < 0)
        return -1;
    kj_verb verb = {.size = sizeof verb, .name = "checkpoint", .run = save};
    fail_to_save = false;
    fix_open(NULL, 0);
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    conn = fix_connect();
    return 0;
}

static int tear_down(void **state)
{
    close(conn);
    return fix_tear_down(state);
}

static void say(const char *line, const char *state)
{
    fix_expect_state(conn, line, state);
}

/* The next record of `state` is that of command `seq`. */
static void expect(const char *state, int64_t seq)
{
    struct json_object *record = fix_wait_event(conn, "command", state);
    if (fix_int(record, "seq") != seq)
        fail_msg("not %lld: %s", (long long)seq, json_object_to_json_string(record));
    json_object_put(record);
}

static void expect_run_ended(const char *ending, bool has_checkpoint)
{
    fix_close();
    struct json_object *journal = fix_journal();
    struct json_object *ended = fix_find_event(journal, "run_ended");
    assert_string_equal(fix_text(ended, "ending"), ending);
    assert_int_equal(json_object_object_get_ex(ended, "checkpoint", NULL), has_checkpoint);
    json_object_put(journal);
}

static void test_a_stop_is_said_in_the_end(void **state)
{
    (void)state;
    assert_int_equal(kj_run_ending(fix.run), KJ_ENDING_NONE);
    assert_int_equal(kj_run_exit_status(fix.run), 0);
    say("stop reason=enough", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_int_equal(kj_run_ending(fix.run), KJ_ENDING_STOP);
    assert_int_equal(kj_run_exit_status(fix.run), 0);
    expect_run_ended("stop", false);
}

static void test_prune(void **state)
{
    (void)state;
    fix_expect_rejected(conn, "prune value=high", "no float");
    say("prune dry_run=yes rule=median", "done");
    say("prune rule=median value=nan threshold=0.5 reason=\"too slow\" at=step:4", "scheduled");
    assert_int_equal(kj_run_begin_step(fix.run, 3), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 4), KJ_RUN_STOP | KJ_RUN_PRUNED);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP | KJ_RUN_PRUNED); /* for ever */
    assert_int_equal(kj_run_ending(fix.run), KJ_ENDING_PRUNE);
    assert_int_equal(kj_run_exit_status(fix.run), KJ_EXIT_PRUNED);
    assert_string_equal(kj_run_stop_reason(fix.run), "too slow");
    struct json_object *record = fix_wait_event(conn, "command", "applied"), *args;
    assert_true(json_object_object_get_ex(record, "args", &args));
    assert_string_equal(fix_text(args, "rule"), "median");
    assert_string_equal(fix_text(args, "value"), "NaN");
    json_object_put(record);
    say("stop", "done");
    say("prune", "done");
    expect_run_ended("prune", false);
}

static void test_validation_can_be_chosen_where_the_program_can(void **state)
{
    (void)state;
    fix_expect_rejected(conn, "stop validate=no", "cannot choose");
    kj_run_declare(fix.run, KJ_CAN_SKIP_VALIDATION);
    assert_int_equal(kj_run_stop_validate(fix.run), -1);
    say("stop validate=no", "accepted");
    say("stop validate=yes", "accepted");
    say("stop", "accepted");
    kj_run_poll(fix.run);
    assert_int_equal(kj_run_stop_validate(fix.run), 0);
    expect("expired", 3); /* wanted something else */
    expect("done", 4);
    say("stop validate=no", "done");
    fix_expect_rejected(conn, "stop validate=yes", "without validate=yes");
}

static void expect_of_the_validation(uint32_t abilities, const char *line, const char *expected)
{
    kj_run_declare(fix.run, abilities);
    kj_run_set_phase(fix.run, "validation");
    say(line, "accepted");
    kj_run_poll(fix.run);
    struct json_object *journal = fix_journal(), *result = NULL;
    struct json_object *record = fix_last_record(journal, 1);
    json_object_object_get_ex(record, "result", &result);
    assert_string_equal(fix_text(record, "phase"), "validation");
    assert_string_equal(result ? fix_text(result, "validation") : "", expected);
    json_object_put(journal);
}

static void test_a_stop_in_a_validation_says_what_becomes_of_it(void **state)
{
    (void)state;
    expect_of_the_validation(KJ_CAN_SKIP_VALIDATION, "stop", "runs to its end");
}

static void test_a_stop_in_a_validation_that_is_not_wanted(void **state)
{
    (void)state;
    expect_of_the_validation(KJ_CAN_SKIP_VALIDATION, "stop validate=no", "skipped");
}

static void test_a_program_that_skips_a_validation_unasked(void **state)
{
    (void)state;
    uint32_t abilities = KJ_CAN_SKIP_VALIDATION | KJ_SKIPS_VALIDATION;
    expect_of_the_validation(abilities, "prune", "skipped");
}

static void test_a_program_that_says_nothing_of_validations(void **state)
{
    (void)state;
    expect_of_the_validation(0, "stop", "");
}

static void test_nothing_is_said_of_the_validation(void **state)
{
    (void)state;
    say("stop", "accepted");
    kj_run_poll(fix.run);
    assert_int_equal(kj_run_stop_validate(fix.run), -1);
}

static void test_an_abort_needs_a_program_that_can(void **state)
{
    (void)state;
    fix_expect_rejected(conn, "abort", "abort: this program only knows how to stop");
    fix_expect_rejected(conn, "abort dry_run=yes", "only knows how to stop");
    kj_run_declare(fix.run, KJ_CAN_ABORT);
    say("abort dry_run=yes", "done");
    say("abort", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP | KJ_RUN_ABORTED);
    assert_int_equal(kj_run_exit_status(fix.run), KJ_EXIT_ABORTED);
    assert_int_equal(kj_run_stop_validate(fix.run), 0);
    say("abort", "done");
    say("stop", "done");
    expect_run_ended("abort", false);
}

static void test_an_abort_sharpens_a_stop(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_ABORT);
    say("stop reason=enough", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    const char *reason = kj_run_stop_reason(fix.run);
    say("abort reason=hurry", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP | KJ_RUN_ABORTED);
    assert_string_equal(kj_run_stop_reason(fix.run), "hurry");
    assert_string_equal(reason, "enough"); /* still readable */
    expect_run_ended("abort", false);
}

static void test_a_waiting_abort_outlives_a_stop(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_ABORT);
    say("abort at=epoch:5", "scheduled");
    say("stop", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_int_equal(kj_run_end_epoch(fix.run, 5), KJ_RUN_STOP | KJ_RUN_ABORTED);
    expect("done", 2);
    expect("done", 1);
}

static void test_an_abort_replaces_what_acts_later(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_ABORT);
    say("stop at=epoch:5", "scheduled");
    say("prune at=epoch:6", "scheduled");
    say("abort at=epoch:3", "scheduled");
    expect("expired", 1);
    expect("expired", 2);
}

static void test_a_prune_and_a_stop_replace_each_other(void **state)
{
    (void)state;
    say("stop at=epoch:5", "scheduled");
    say("prune at=epoch:2", "scheduled");
    expect("expired", 1);
    say("stop at=epoch:1", "scheduled");
    expect("expired", 2);
    assert_int_equal(kj_run_end_epoch(fix.run, 2), KJ_RUN_STOP);
}

static void test_what_saves_replaces_nothing_before_it_has_acted(void **state)
{
    (void)state;
    say("stop at=epoch:5", "scheduled");
    say("stop save=yes", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    expect("applied", 2);
    expect("done", 1);
}

static void test_a_first_stop_that_does_not_save_is_no_saving_one(void **state)
{
    (void)state;
    say("stop", "accepted");
    say("stop save=yes", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    struct json_object *record = fix_wait_event(conn, "command", "expired");
    assert_non_null(strstr(fix_text(record, "error"), "by the stop with seq 1, without save=yes"));
    json_object_put(record);
    expect_run_ended("stop", false);
}

static void test_leave_needs_a_program_that_can(void **state)
{
    (void)state;
    fix_expect_rejected(conn, "pause level=leave", "cannot leave");
    kj_run_declare(fix.run, KJ_CAN_LEAVE);
    fix_expect_rejected(conn, "pause level=leave for=1h", "cannot have for=");
    fix_expect_rejected(conn, "pause level=nap", "hold or leave");
    assert_int_equal(kj_run_refuse_verb(fix.run, "checkpoint", "sharded", NULL), 0);
    fix_expect_rejected(conn, "pause level=leave", "sharded");
    assert_int_equal(kj_run_refuse_verb(fix.run, "checkpoint", NULL, NULL), 0);
    say("pause level=leave dry_run=yes", "done");
    assert_int_equal(kj_run_poll(fix.run), 0);
}

static void test_leave_saves_and_ends(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_LEAVE);
    say("stop at=epoch:9", "scheduled");
    say("pause level=leave", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP | KJ_RUN_LEFT);
    assert_int_equal(kj_run_exit_status(fix.run), KJ_EXIT_LEFT);
    struct json_object *record = fix_wait_event(conn, "command", "expired");
    assert_string_equal(fix_text(record, "error"),
                        "the run left before its turn came, by the pause with seq 2");
    json_object_put(record);
    fix_expect_rejected(conn, "pause level=leave", "stopping");
    expect_run_ended("leave", true);
}

static void test_leave_that_cannot_save_goes_on(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_LEAVE);
    fail_to_save = true;
    say("stop at=epoch:9", "scheduled");
    say("pause level=leave", "accepted");
    say("pause save=yes", "accepted");
    assert_int_equal(kj_run_poll(fix.run), 0); /* neither left nor held */
    expect("failed", 2);
    expect("failed", 3);
    assert_int_equal(kj_run_end_epoch(fix.run, 9), KJ_RUN_STOP);
    expect("applied", 1);
}

static void test_a_pause_for_a_time_is_over_by_itself(void **state)
{
    (void)state;
    fix_expect_rejected(conn, "pause for=soon", "for: soon: a time is");
    fix_expect_rejected(conn, "pause for=0", "more than 0");
    int watcher = fix_connect();
    json_object_put(fix_call(watcher, "subscribe", "{\"events\": [\"state\"]}"));
    say("pause for=0.02s", "accepted");
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_int_equal(kj_run_get_cell(fix.run)->pending & KJI_PENDING_COMMAND, 0);
    json_object_put(fix_wait_event(watcher, "state", "paused"));
    json_object_put(fix_wait_event(watcher, "state", "running"));
    close(watcher);
    struct json_object *journal = fix_journal();
    struct json_object *resumed = fix_find_event(journal, "resumed");
    assert_non_null(resumed);
    assert_int_equal(fix_int(resumed, "seq"), 3);
    assert_true(json_object_object_get_ex(resumed, "after_s", NULL));
    json_object_put(journal);
    say("resume", "done"); /* not paused */
}

/* An interruptible program comes back in between; the time runs on. */
static void test_a_pause_for_a_time_may_be_interrupted(void **state)
{
    (void)state;
    fix.run->flags |= KJ_RUN_INTERRUPTIBLE;
    say("pause for=1.2s", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_INTERRUPTED);
    while (kj_run_poll(fix.run) == KJ_RUN_INTERRUPTED)
        ;
    assert_false(fix.run->paused);
}

static bool has_resumed(void)
{
    struct json_object *journal = fix_journal();
    bool found = fix_find_event(journal, "resumed") != NULL;
    json_object_put(journal);
    return found;
}

static void test_without_a_thread_a_pause_is_over_by_itself_too(void **state)
{
    (void)state;
    fix_close();
    fix_open(NULL, KJ_RUN_THREADLESS);
    fix_write(fix_ctl(), "pause for=0.02s\n");
    while (!has_resumed())
        assert_int_equal(kj_run_poll(fix.run), 0);
}

static void *steer(void *lines)
{
    json_object_put(fix_wait_event(conn, "state", "paused"));
    for (const char *const *line = lines; *line; line++) {
        struct json_object *record = fix_command(conn, *line);
        if (strcmp(fix_text(record, "state"), "accepted") == 0)
            json_object_put(fix_wait_event(conn, "command", "done"));
        json_object_put(record);
    }
    return NULL;
}

/* The first line is sent at once, the others while the run is paused. */
static int run_paused(const char *first, const char *const *lines)
{
    pthread_t thread;
    json_object_put(fix_call(conn, "subscribe", "{}"));
    say(first, "accepted");
    assert_int_equal(pthread_create(&thread, NULL, steer, (void *)lines), 0);
    int bits = kj_run_poll(fix.run);
    pthread_join(thread, NULL);
    return bits;
}

static void test_a_stop_ends_a_pause_for_a_time(void **state)
{
    (void)state;
    static const char *const lines[] = {"stop save=yes", NULL};
    assert_int_equal(run_paused("pause for=1h", lines), KJ_RUN_STOP);
    expect_run_ended("stop", true);
    struct json_object *journal = fix_journal();
    assert_null(fix_find_event(journal, "resumed"));
    json_object_put(journal);
}

static void test_a_resume_ends_a_pause_for_a_time(void **state)
{
    (void)state;
    static const char *const lines[] = {"resume", NULL};
    assert_int_equal(run_paused("pause for=1h", lines), 0);
    assert_int_equal(kji_run_hold_left_ms(fix.run), -1);
}

static void test_an_abort_ends_a_pause(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_ABORT);
    static const char *const lines[] = {"abort", NULL};
    assert_int_equal(run_paused("pause for=1h", lines), KJ_RUN_STOP | KJ_RUN_ABORTED);
}

static void test_a_paused_run_leaves(void **state)
{
    (void)state;
    kj_run_declare(fix.run, KJ_CAN_LEAVE);
    static const char *const lines[] = {"pause level=leave", NULL};
    assert_int_equal(run_paused("pause", lines), KJ_RUN_STOP | KJ_RUN_LEFT);
}

/* The hour becomes a moment; and a pause without a time is one until somebody ends it. */
static void test_a_second_pause_sets_the_time_anew(void **state)
{
    (void)state;
    static const char *const shorter[] = {"pause for=0.02s", NULL};
    static const char *const longer[] = {"pause", "pause", "resume", NULL};
    assert_int_equal(run_paused("pause for=1h", shorter), 0);
    assert_int_equal(run_paused("pause for=1h", longer), 0);
    struct json_object *journal = fix_journal(), *result;
    struct json_object *second = fix_last_record(journal, 4);
    assert_string_equal(fix_text(second, "verb"), "pause");
    assert_false(json_object_object_get_ex(second, "result", NULL));
    assert_true(json_object_object_get_ex(fix_last_record(journal, 5), "result", &result));
    assert_int_equal(fix_int(result, "seq"), 4); /* already paused, by that one */
    json_object_put(journal);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_stop_is_said_in_the_end),
        TEST(test_prune),
        TEST(test_validation_can_be_chosen_where_the_program_can),
        TEST(test_a_stop_in_a_validation_says_what_becomes_of_it),
        TEST(test_a_stop_in_a_validation_that_is_not_wanted),
        TEST(test_a_program_that_skips_a_validation_unasked),
        TEST(test_a_program_that_says_nothing_of_validations),
        TEST(test_nothing_is_said_of_the_validation),
        TEST(test_an_abort_needs_a_program_that_can),
        TEST(test_an_abort_sharpens_a_stop),
        TEST(test_a_waiting_abort_outlives_a_stop),
        TEST(test_an_abort_replaces_what_acts_later),
        TEST(test_a_prune_and_a_stop_replace_each_other),
        TEST(test_what_saves_replaces_nothing_before_it_has_acted),
        TEST(test_a_first_stop_that_does_not_save_is_no_saving_one),
        TEST(test_leave_needs_a_program_that_can),
        TEST(test_leave_saves_and_ends),
        TEST(test_leave_that_cannot_save_goes_on),
        TEST(test_a_pause_for_a_time_is_over_by_itself),
        TEST(test_a_pause_for_a_time_may_be_interrupted),
        TEST(test_without_a_thread_a_pause_is_over_by_itself_too),
        TEST(test_a_stop_ends_a_pause_for_a_time),
        TEST(test_a_resume_ends_a_pause_for_a_time),
        TEST(test_an_abort_ends_a_pause),
        TEST(test_a_paused_run_leaves),
        TEST(test_a_second_pause_sets_the_time_anew),
    };
    return cmocka_run_group_tests_name("endings", tests, NULL, NULL);
}
