/* SPDX-License-Identifier: Apache-2.0 */
/* The program gets a secret as it is; nothing that is written down or told has it. */
#include "run-fixture.h"

#include "files.h"
#include "json.h"
#include "mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char secret[] = "hunter2x";

static char api_key[64];
static char given[64]; /* to the verb */

static int get_api_key(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)userdata, (void)err;
    *ret_value = (kj_value){.type = KJ_TYPE_STRING, .s = api_key};
    return 0;
}

static int set_api_key(void *userdata, const kj_value *value, kj_error *err)
{
    (void)userdata;
    if (strcmp(value->s, "refused-hunter2x") == 0) {
        snprintf(err->message, sizeof err->message, "the server knows no <%s>", value->s);
        return KJ_EFAILED;
    }
    snprintf(api_key, sizeof api_key, "%s", value->s);
    return 0;
}

static int log_in(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    kj_value value = {0};
    assert_int_equal(kj_call_get_arg(call, "token", &value), 1);
    snprintf(given, sizeof given, "%s", value.s);
    return kj_call_set_result(call, "{\"session_token\": \"hunter2x\", \"n\": 1}", err);
}

static void open_run(void)
{
    static const kj_arg token = {.size = sizeof token, .type = KJ_TYPE_STRING, .name = "token"};
    kj_verb verb = {
        .size = sizeof verb, .name = "login", .args = &token, .n_args = 1, .run = log_in};
    kj_param param = {.size = sizeof param,
                      .type = KJ_TYPE_STRING,
                      .name = "api_key",
                      .get = get_api_key,
                      .set = set_api_key};
    strcpy(api_key, secret);
    fix_open(NULL, 0);
    assert_int_equal(kj_run_add_param(fix.run, &param, NULL), 0);
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
}

static void expect_masked(struct json_object *json)
{
    const char *text = json_object_to_json_string(json);
    if (strstr(text, secret) || !strstr(text, "***"))
        fail_msg("%s", text);
    json_object_put(json);
}

/* The whole journal: the secret is not in it. */
static void expect_clean_journal(void)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/runs/test/journal.jsonl", fix.state);
    KJI_CLEANUP(kji_freep) char *text = NULL;
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 20, &text, NULL, NULL), 0);
    if (strstr(text, secret))
        fail_msg("%s", text);
}

static void test_the_program_gets_a_secret_and_the_journal_does_not(void **state)
{
    (void)state;
    open_run();
    fix_write(fix_ctl(), "set api_key=new-hunter2x\nlogin token=\"my hunter2x\"\n");
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_string_equal(api_key, "new-hunter2x");
    assert_string_equal(given, "my hunter2x");
    struct json_object *journal = fix_journal();
    struct json_object *record = fix_last_record(journal, 1);
    assert_string_equal(fix_text(kji_test_member(record, "new"), "api_key"), "***");
    assert_string_equal(fix_text(kji_test_member(record, "old"), "api_key"), "***");
    assert_true(json_object_get_boolean(kji_test_member(record, "masked")));
    record = fix_last_record(journal, 2);
    assert_string_equal(fix_text(kji_test_member(record, "args"), "token"), "***");
    assert_string_equal(fix_text(kji_test_member(record, "result"), "session_token"), "***");
    assert_int_equal(fix_int(kji_test_member(record, "result"), "n"), 1);
    json_object_put(journal);
    expect_clean_journal();
}

static void test_what_cannot_be_read_or_done_is_masked(void **state)
{
    (void)state;
    open_run();
    fix_write(fix_ctl(), "set api_key=\"hunter2x no end\n"
                         "{\"verb\": \"login\", \"token\": \"hunter2x\"}\n"
                         "set token=hunter2x\n"
                         "stop reason=\"as https://me:hunter2x@host/ says\"\n"
                         "set api_key=refused-hunter2x\n");
    fix_wait_seq(5);
    kj_run_poll(fix.run);
    kj_run_poll(fix.run);
    assert_string_equal(kj_run_stop_reason(fix.run), "as https://me:hunter2x@host/ says");
    fix_close();
    expect_clean_journal();
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 5), "error"),
                        "api_key: the server knows no <***>");
    json_object_put(journal);
}

static void test_floods_and_stale_texts_are_masked(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    int fd = open(fix.fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    static const char stale[] = "set password=hunter2x\n";
    assert_int_equal(kji_write_all(fd, stale, strlen(stale), NULL), 0);
    fix_open(fix.fifo, 0);
    for (int k = 0; k < 150; k++)
        assert_int_equal(kji_write_all(fd, "token=hunter2x\n", 15, NULL), 0);
    fix_wait_seq(100);
    close(fd);
    fix_close();
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_find_event(journal, "stale"), "text"), "set password=*** ");
    assert_string_equal(fix_text(fix_find_event(journal, "flood"), "text"), "token=***");
    json_object_put(journal);
    expect_clean_journal();
}

static void test_answers_and_events_are_masked(void **state)
{
    (void)state;
    open_run();
    kj_run_poll(fix.run);
    int fd = fix_connect(), other = fix_connect();
    expect_masked(fix_call(fd, "params", NULL));
    expect_masked(fix_call(fd, "command", "{\"verb\": \"get\", \"words\": [\"api_key\"]}"));
    json_object_put(fix_call(other, "subscribe", NULL));
    expect_masked(
        fix_call(fd, "command", "{\"line\": \"set api_key=hunter2x at=step:5 command_id=c\"}"));
    expect_masked(fix_call(fd, "status", NULL));
    expect_masked(fix_wait_event(other, "command", "scheduled"));
    expect_masked(fix_call(fd, "command", "{\"line\": \"stop command_id=c\"}"));
    expect_masked(fix_call(fd, "journal", NULL));
    close(fd);
    close(other);
}

/* Warnings go where the program's own messages go: often a terminal. */
static void test_warnings_are_masked_and_have_no_control_characters(void **state)
{
    (void)state;
    setenv("KAJITORI_RUN_ID", "\x1b[2J token=hunter2x\x07", 1);
    kj_run *run = fix_open_other(NULL, 0, NULL);
    unsetenv("KAJITORI_RUN_ID");
    assert_non_null(strstr(fix.log, " [2J token=***"));
    assert_null(strpbrk(fix.log, "\x1b\x07"));
    kj_run_close(run);
}

static void test_the_mask_is_no_value(void **state)
{
    (void)state;
    open_run();
    fix_write(fix_ctl(), "set api_key=***\nset mode=***\n");
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_string_equal(api_key, secret);
    assert_string_equal(fix.mode, "***");
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 1), "state"), "rejected");
    json_object_put(journal);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_the_program_gets_a_secret_and_the_journal_does_not),
        TEST(test_what_cannot_be_read_or_done_is_masked),
        TEST(test_floods_and_stale_texts_are_masked),
        TEST(test_answers_and_events_are_masked),
        TEST(test_warnings_are_masked_and_have_no_control_characters),
        TEST(test_the_mask_is_no_value),
    };
    return cmocka_run_group_tests_name("secrets", tests, NULL, NULL);
}
