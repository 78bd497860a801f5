/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint, evaluate, extend, as a program provides and refuses them; save=yes; notes. */
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <stdio.h>
#include <string.h>

static int conn;
static int n_saved;
static bool fail_to_save;
static bool save_nowhere;

static int set_up(void **state)
{
    if (fix_set_up(state) < 0)
        return -1;
    n_saved = 0;
    fail_to_save = save_nowhere = false;
    fix_open(NULL, 0);
    conn = fix_connect();
    return 0;
}

static int tear_down(void **state)
{
    close(conn);
    return fix_tear_down(state);
}

static int save(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    char result[80];
    assert_true(pthread_equal(pthread_self(), fix.training));
    assert_int_equal(kj_run_poll(fix.run), kj_run_should_stop(fix.run));
    if (fail_to_save) {
        snprintf(err->message, sizeof err->message, "disk full");
        return KJ_EIO;
    }
    n_saved++;
    snprintf(result, sizeof result, "{\"path\": \"ckpt-%lld\", \"size_bytes\": 12}",
             (long long)kj_call_get_step(call));
    return save_nowhere ? 0 : kj_call_set_result(call, result, err);
}

static int evaluate(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    return kj_call_set_result(call, "{\"val_loss\": 0.25}", err);
}

static int extend(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    kj_value n;
    char result[60];
    bool by_epochs = kj_call_get_arg(call, "epochs", &n) == 1;
    if (!by_epochs)
        assert_int_equal(kj_call_get_arg(call, "steps", &n), 1);
    snprintf(result, sizeof result, "{\"total_%s\": %lld}", by_epochs ? "epochs" : "steps",
             (long long)n.i + 100);
    return kj_call_set_result(call, result, err);
}

static void provide(const char *name, int (*run)(void *, kj_call *, kj_error *), uint32_t flags)
{
    kj_verb verb = {.size = sizeof verb, .flags = flags, .name = name, .run = run};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
}

static struct json_object *outcome(const char *state)
{
    return fix_wait_event(conn, "command", state);
}

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("no \"%s\" in %s", key, json_object_to_json_string(object));
    return value;
}

/* What help says of a verb, borrowed from *ret_help. */
static struct json_object *described(const char *verb, struct json_object **ret_help)
{
    KJI_CLEANUP(kji_freep) char *params = kji_format("{\"verb\": \"%s\"}", verb);
    *ret_help = fix_call(conn, "help", params);
    return json_object_array_get_idx(member(*ret_help, "verbs"), 0);
}

static void test_what_is_not_provided_is_listed_and_rejected(void **state)
{
    (void)state;
    static const char *const lines[] = {"checkpoint", "evaluate", "extend epochs=1"};
    static const char *const names[] = {"checkpoint", "evaluate", "extend"};
    for (size_t k = 0; k < 3; k++) {
        struct json_object *help, *verb = described(names[k], &help);
        assert_string_equal(fix_text(verb, "why_not"), "this program does not provide it");
        json_object_put(help);
        fix_expect_rejected(conn, lines[k], "this program does not provide it");
        fix_expect_rejected(conn, lines[k], "may still register");
    }
    kj_run_begin_step(fix.run, 0);
    fix_expect_rejected(conn, "stop save=yes", "nothing can be saved: checkpoint: this program");
    fix_expect_rejected(conn, "stop save=yes dry_run=yes", "nothing can be saved");
    fix_expect_rejected(conn, "pause save=yes", "nothing can be saved");
    fix_expect_rejected(conn, "prune save=yes", "nothing can be saved");
    fix_expect_rejected(conn, "set lr=0.2 save=yes", "set takes no save=");
    fix_expect_rejected(conn, "abort save=yes", "abort takes no save=");
    fix_expect_rejected(conn, "stop save=perhaps", "yes or no");
    fix_expect_state(conn, "set lr=0.2 save=no", "accepted");
    assert_int_equal(kj_run_poll(fix.run), 0);
}

static void test_a_checkpoint_is_remembered(void **state)
{
    (void)state;
    provide("checkpoint", save, 0);
    kj_run_begin_epoch(fix.run, 2);
    fix_expect_state(conn, "checkpoint at=step:7", "scheduled");
    fix_expect_state(conn, "checkpoint dry_run=yes", "done");
    kj_run_begin_step(fix.run, 6);
    assert_int_equal(n_saved, 0);
    assert_int_equal(kj_run_begin_step(fix.run, 7), 0);
    assert_int_equal(n_saved, 1);
    struct json_object *record = outcome("done");
    assert_string_equal(fix_text(member(record, "result"), "path"), "ckpt-7");
    json_object_put(record);
    struct json_object *status = fix_call(conn, "status", NULL);
    struct json_object *checkpoint = member(status, "checkpoint");
    assert_string_equal(fix_text(checkpoint, "path"), "ckpt-7");
    assert_int_equal(fix_int(checkpoint, "step"), 7);
    assert_int_equal(fix_int(checkpoint, "epoch"), 2);
    json_object_put(status);
    fix_close();
    struct json_object *journal = fix_journal();
    struct json_object *ended = fix_find_event(journal, "run_ended");
    assert_string_equal(fix_text(member(ended, "checkpoint"), "path"), "ckpt-7");
    assert_false(json_object_object_get_ex(ended, "ending", NULL));
    json_object_put(journal);
}

static void test_a_checkpoint_nowhere_is_none(void **state)
{
    (void)state;
    provide("checkpoint", save, 0);
    save_nowhere = true;
    fix_expect_state(conn, "checkpoint", "accepted");
    kj_run_poll(fix.run);
    struct json_object *record = outcome("failed");
    assert_non_null(strstr(fix_text(record, "error"), "no \"path\""));
    json_object_put(record);
    struct json_object *status = fix_call(conn, "status", NULL);
    assert_false(json_object_object_get_ex(status, "checkpoint", NULL));
    json_object_put(status);
}

static void test_evaluate_and_extend(void **state)
{
    (void)state;
    provide("evaluate", evaluate, 0);
    provide("extend", extend, 0);
    fix_expect_rejected(conn, "extend", "either epochs=N or steps=N");
    fix_expect_rejected(conn, "extend epochs=1 steps=2", "either epochs=N or steps=N");
    fix_expect_rejected(conn, "extend epochs=0", "must be >= 1");
    fix_expect_rejected(conn, "extend hours=1", "there are epochs, steps");
    fix_expect_state(conn, "extend epochs=5 dry_run=yes", "done");
    fix_expect_state(conn, "evaluate", "accepted");
    fix_expect_state(conn, "extend epochs=5", "accepted");
    fix_expect_state(conn, "extend steps=7", "accepted");
    assert_int_equal(kj_run_poll(fix.run), 0);
    struct json_object *record = outcome("done");
    assert_string_equal(json_object_to_json_string(member(record, "result")),
                        "{ \"val_loss\": 0.25 }");
    json_object_put(record);
    struct json_object *status = fix_call(conn, "status", NULL);
    assert_int_equal(fix_int(status, "total_epochs"), 105);
    assert_int_equal(fix_int(status, "total_steps"), 107);
    json_object_put(status);
    fix_expect_state(conn, "extend epochs=5 at=step:1", "scheduled");
    fix_expect_state(conn, "stop", "accepted");
    assert_int_equal(kj_run_begin_step(fix.run, 0), KJ_RUN_STOP);
    fix_expect_rejected(conn, "extend epochs=1", "stopping");
    kj_run_begin_step(fix.run, 1);
    record = outcome("failed");
    assert_non_null(strstr(fix_text(record, "error"), "cannot be extended"));
    json_object_put(record);
}

static void test_help_shows_what_is_provided(void **state)
{
    (void)state;
    kj_verb verb = {.size = sizeof verb, .name = "extend", .run = extend, .help = "longer"};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), KJ_EEXIST);
    struct json_object *help, *extend_verb = described("extend", &help);
    assert_string_equal(fix_text(extend_verb, "help"), "longer");
    assert_int_equal(json_object_array_length(member(extend_verb, "args")), 2);
    assert_false(json_object_get_boolean(member(extend_verb, "own")));
    assert_false(json_object_object_get_ex(extend_verb, "why_not", NULL));
    json_object_put(help);
    help = fix_call(conn, "help", "{}");
    size_t n_extends = 0, n = json_object_array_length(member(help, "verbs"));
    for (size_t k = 0; k < n; k++)
        n_extends += strcmp(fix_text(json_object_array_get_idx(member(help, "verbs"), k), "name"),
                            "extend") == 0;
    assert_int_equal(n_extends, 1);
    json_object_put(help);
    kj_arg arg = {.size = sizeof arg, .type = KJ_TYPE_INT, .name = "keep"};
    kj_verb declared = {
        .size = sizeof declared, .name = "checkpoint", .run = save, .args = &arg, .n_args = 1};
    assert_int_equal(kj_run_add_verb(fix.run, &declared, NULL), 0);
    fix_expect_state(conn, "checkpoint keep=3", "accepted");
    fix_expect_rejected(conn, "checkpoint keep=all", "no int");
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_int_equal(n_saved, 1);
}

static void test_extend_has_its_arguments_already(void **state)
{
    (void)state;
    kj_arg arg = {.size = sizeof arg, .type = KJ_TYPE_INT, .name = "epochs"};
    kj_verb verb = {
        .size = sizeof verb, .name = "extend", .run = extend, .args = &arg, .n_args = 1};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), KJ_EARG);
    verb.name = "pause";
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), KJ_EEXIST);
}

static void test_a_remark_is_in_each_answer(void **state)
{
    (void)state;
    static const char told[] = "the best weights are put back";
    kj_run_begin_step(fix.run, 0);
    assert_int_equal(kj_run_remark(fix.run, "stop", "not yet", NULL), 0);
    assert_int_equal(kj_run_remark(fix.run, "stop", told, NULL), 0);
    assert_int_equal(kj_run_remark(fix.run, "pause", told, NULL), 0);
    assert_int_equal(kj_run_remark(fix.run, "pause", NULL, NULL), 0);
    assert_int_equal(kj_run_remark(fix.run, "stop", "", NULL), KJ_EARG);
    assert_int_equal(kj_run_remark(fix.run, "stop", "a\xff", NULL), KJ_EARG);
    assert_int_equal(kj_run_remark(fix.run, NULL, told, NULL), KJ_EARG);
    fix_expect_state(conn, "pause", "accepted");
    fix_expect_state(conn, "resume", "accepted");
    fix_expect_state(conn, "stop at=epoch", "scheduled");
    kj_run_begin_step(fix.run, 1);
    kj_run_end_epoch(fix.run, 0);
    struct json_object *journal = fix_journal();
    size_t n = 0;
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        const char *verb = fix_text(line, "verb");
        bool is_stop = verb && strcmp(verb, "stop") == 0;
        n += is_stop;
        if (is_stop)
            assert_string_equal(fix_text(line, "remark"), told);
        else
            assert_null(json_object_object_get(line, "remark"));
    }
    assert_int_equal(n, 4); /* accepted, scheduled, applied, done */
    json_object_put(journal);
}

static void test_a_refusal_gives_its_reason(void **state)
{
    (void)state;
    provide("checkpoint", save, 0);
    kj_run_begin_step(fix.run, 0);
    assert_int_equal(kj_run_refuse_verb(fix.run, "checkpoint", "weights are sharded", NULL), 0);
    assert_int_equal(kj_run_refuse_verb(fix.run, "pause", "two workers would wait", NULL), 0);
    assert_int_equal(kj_run_refuse_verb(fix.run, "stop", "no", NULL), KJ_EARG);
    assert_int_equal(kj_run_refuse_verb(fix.run, "tick", "no", NULL), KJ_EARG);
    assert_int_equal(kj_run_refuse_verb(fix.run, NULL, "no", NULL), KJ_EARG);
    fix_expect_rejected(conn, "checkpoint", "checkpoint: weights are sharded");
    fix_expect_rejected(conn, "stop save=yes", "weights are sharded");
    fix_expect_rejected(conn, "pause", "pause: two workers would wait");
    struct json_object *help, *pause = described("pause", &help);
    assert_string_equal(fix_text(pause, "why_not"), "two workers would wait");
    json_object_put(help);
    assert_int_equal(kj_run_refuse_verb(fix.run, "checkpoint", NULL, NULL), 0);
    fix_expect_state(conn, "checkpoint", "accepted");
    fix_expect_state(conn, "stop save=yes", "accepted");
    assert_int_equal(kj_run_refuse_verb(fix.run, "checkpoint", "not any more", NULL), 0);
    assert_int_equal(kj_run_poll(fix.run), 0);
    for (int k = 0; k < 2; k++) {
        struct json_object *record = outcome("failed");
        assert_non_null(strstr(fix_text(record, "error"), "not any more"));
        json_object_put(record);
    }
    assert_int_equal(n_saved, 0);
}

static void test_a_stop_saves_first(void **state)
{
    (void)state;
    provide("checkpoint", save, 0);
    fix_expect_state(conn, "stop save=yes", "accepted");
    assert_int_equal(kj_run_begin_step(fix.run, 3), KJ_RUN_STOP);
    assert_int_equal(n_saved, 1);
    struct json_object *record = outcome("applied");
    assert_string_equal(fix_text(member(member(record, "result"), "checkpoint"), "path"), "ckpt-3");
    assert_true(json_object_get_boolean(member(record, "save")));
    json_object_put(record);
    fix_expect_state(conn, "stop save=yes", "done"); /* it was saved */
}

static void test_a_stop_that_cannot_save_stops_nothing(void **state)
{
    (void)state;
    provide("checkpoint", save, 0);
    fail_to_save = true;
    kj_run_begin_epoch(fix.run, 0);
    fix_expect_state(conn, "stop at=epoch:4", "scheduled");
    fix_expect_state(conn, "stop save=yes", "accepted");
    assert_int_equal(kj_run_poll(fix.run), 0);
    struct json_object *record = outcome("failed");
    assert_string_equal(fix_text(record, "error"),
                        "the checkpoint failed, nothing else was done: disk full");
    assert_int_equal(fix_int(record, "seq"), 2);
    json_object_put(record);
    assert_int_equal(kj_run_should_stop(fix.run), 0);
    assert_int_equal(kj_run_end_epoch(fix.run, 4), KJ_RUN_STOP); /* the other one still waited */
    fix_expect_rejected(conn, "stop save=yes", "stopping already, by seq 1, without save=yes");
}

static void test_only_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    provide("checkpoint", save, KJ_VERB_AT_EPOCH_END);
    kj_run_begin_epoch(fix.run, 1);
    struct json_object *record = fix_command(conn, "checkpoint");
    assert_string_equal(fix_text(record, "at"), "epoch");
    json_object_put(record);
    kj_run_begin_step(fix.run, 10);
    assert_int_equal(n_saved, 0);
    assert_int_equal(kj_run_end_epoch(fix.run, 1), 0);
    assert_int_equal(n_saved, 1);
    kj_run_begin_epoch(fix.run, 2);
    fix_expect_state(conn, "stop save=yes at=step:15", "scheduled");
    assert_int_equal(kj_run_begin_step(fix.run, 16), 0);
    assert_true(kj_run_get_cell(fix.run)->due_step == INT64_MAX);
    record = outcome("scheduled");
    if (strcmp(fix_text(record, "at"), "epoch:2") != 0) { /* it was journalled before, as sent */
        json_object_put(record);
        record = outcome("scheduled");
    }
    assert_string_equal(fix_text(record, "at"), "epoch:2");
    json_object_put(record);
    assert_int_equal(kj_run_end_epoch(fix.run, 2), KJ_RUN_STOP);
    assert_int_equal(n_saved, 2);
}

static void test_notes(void **state)
{
    (void)state;
    kj_run_begin_epoch(fix.run, 3);
    kj_run_begin_step(fix.run, 30);
    fix_expect_rejected(conn, "note", "needs a text");
    fix_expect_rejected(conn, "note later at=epoch", "at once");
    fix_expect_rejected(conn, "note lr=0.1 is better", "double quotes");
    int watcher = fix_connect();
    json_object_put(fix_call(watcher, "subscribe", "{}"));
    struct json_object *record = fix_command(conn, "note the loss jumps by=ann");
    assert_string_equal(fix_text(record, "state"), "done");
    assert_int_equal(fix_int(record, "step"), 30);
    assert_int_equal(fix_int(record, "epoch"), 3);
    json_object_put(record);
    record = fix_wait_event(watcher, "command", "done");
    assert_int_equal(json_object_array_length(member(record, "words")), 3);
    json_object_put(record);
    close(watcher);
    assert_int_equal(kj_run_get_cell(fix.run)->pending & KJI_PENDING_COMMAND, 0);
}

/* A flood is summarised, but not what people want remembered. */
static void test_no_note_is_only_counted(void **state)
{
    (void)state;
    enum { NOTES = 300 };
    char text[NOTES * 8 + 1], *to = text;
    for (int k = 0; k < NOTES; k++)
        to += sprintf(to, "note x\n");
    fix_write(fix_ctl(), text);
    fix_wait_seq(NOTES);
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, NOTES), "state"), "done");
    assert_null(fix_find_event(journal, "flood"));
    json_object_put(journal);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_not_provided_is_listed_and_rejected),
        TEST(test_a_checkpoint_is_remembered),
        TEST(test_a_checkpoint_nowhere_is_none),
        TEST(test_evaluate_and_extend),
        TEST(test_help_shows_what_is_provided),
        TEST(test_extend_has_its_arguments_already),
        TEST(test_a_refusal_gives_its_reason),
        TEST(test_a_remark_is_in_each_answer),
        TEST(test_a_stop_saves_first),
        TEST(test_a_stop_that_cannot_save_stops_nothing),
        TEST(test_only_at_the_end_of_an_epoch),
        TEST(test_notes),
        TEST(test_no_note_is_only_counted),
    };
    return cmocka_run_group_tests_name("handlers", tests, NULL, NULL);
}
