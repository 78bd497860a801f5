/* SPDX-License-Identifier: Apache-2.0 */
/* The socket for those who only look: it answers questions, changes nothing, and keeps nobody out.
 */
#include "client-wire.h"
#include "run-fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int look(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fix_connect_to(fd, "monitor");
    return fd;
}

static size_t journal_lines(void)
{
    struct json_object *journal = fix_journal();
    size_t n = json_object_array_length(journal);
    json_object_put(journal);
    return n;
}

static void test_questions_are_answered(void **state)
{
    (void)state;
    static const char *const lines[] = {"ping", "help set", "status", "params", "get lr"};
    fix_open(NULL, 0);
    int fd = look();
    size_t before = journal_lines();
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        char params[80];
        snprintf(params, sizeof params, "{\"line\": \"%s\"}", lines[k]);
        struct json_object *record = fix_call(fd, "command", params), *result;
        assert_string_equal(fix_text(record, "state"), "done");
        assert_string_equal(fix_text(record, "door"), "monitor");
        assert_false(json_object_object_get_ex(record, "seq", NULL));
        assert_true(json_object_object_get_ex(record, "result", &result));
        json_object_put(record);
    }
    static const char *const methods[] = {"ping", "help", "status", "params", "journal"};
    for (size_t k = 0; k < sizeof methods / sizeof *methods; k++) {
        struct json_object *answer = fix_call(fd, methods[k], NULL);
        assert_false(json_object_object_get_ex(answer, "code", NULL));
        json_object_put(answer);
    }
    assert_int_equal(journal_lines(), before);
    assert_int_equal(fix.run->last_seq, 0);
    close(fd);
}

static void test_get_reads_nothing_anew(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int fd = look(), owner = fix_connect();
    json_object_put(fix_call(fd, "command", "{\"line\": \"get\"}"));
    json_object_put(fix_call(fd, "command", "{\"line\": \"get lr\"}"));
    assert_int_equal(fix.run->cell.pending & KJI_PENDING_REFRESH, 0);
    json_object_put(fix_call(owner, "command", "{\"line\": \"get lr\"}"));
    assert_int_equal(fix.run->cell.pending & KJI_PENDING_REFRESH, KJI_PENDING_REFRESH);
    close(owner);
    close(fd);
}

static void test_commands_are_refused_and_leave_no_trace(void **state)
{
    (void)state;
    static const char *const lines[] = {"stop", "set lr=0.5", "tick", "pause dry_run=yes",
                                        "nonsense"};
    fix_open(NULL, 0);
    int fd = look();
    size_t before = journal_lines();
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        char params[80];
        snprintf(params, sizeof params, "{\"line\": \"%s\"}", lines[k]);
        struct json_object *error = fix_call(fd, "command", params);
        assert_int_equal(fix_int(error, "code"), KJ_EPERM);
        assert_non_null(strstr(fix_text(error, "message"), "monitor"));
        json_object_put(error);
    }
    struct json_object *error = fix_call(fd, "command", "{\"line\": \"get nothing\"}");
    assert_int_equal(fix_int(error, "code"), KJ_EREJECTED);
    json_object_put(error);
    assert_int_equal(journal_lines(), before);
    assert_int_equal(fix.run->last_seq, 0);
    assert_int_equal(kj_run_poll(fix.run), 0);
    close(fd);
}

static void test_a_watcher_gets_events(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int fd = look(), owner = fix_connect();
    json_object_put(fix_call(fd, "subscribe", NULL));
    json_object_put(fix_call(owner, "command", "{\"line\": \"tick\"}"));
    kj_run_poll(fix.run);
    json_object_put(fix_wait_event(fd, "command", "done"));
    kj_run_report(fix.run, "loss", 1, 0.5, NULL);
    struct json_object *early = fix_wait_event(fd, "metric", "");
    assert_false(json_object_object_get_ex(early, "epoch", NULL));
    json_object_put(early);
    kj_run_begin_epoch(fix.run, 3);
    kj_run_report(fix.run, "loss", 2, 0.5, NULL);
    struct json_object *late = fix_wait_event(fd, "metric", "");
    assert_int_equal(fix_int(late, "step"), 2);
    assert_int_equal(fix_int(late, "epoch"), 3);
    json_object_put(late);
    fix_close();
    json_object_put(fix_wait_event(fd, "state", "ended"));
    close(owner);
    close(fd);
}

static void test_watchers_keep_nobody_out(void **state)
{
    (void)state;
    int many[KJI_CLIENTS_MAX];
    fix_open(NULL, 0);
    for (int k = 0; k < KJI_CLIENTS_MAX; k++) {
        many[k] = look();
        json_object_put(fix_call(many[k], "ping", NULL));
    }
    int extra = look(), owner = fix_connect();
    struct json_object *answer = fix_receive(extra), *error;
    json_object_object_get_ex(answer, "error", &error);
    assert_int_equal(fix_int(error, "code"), KJ_EPERM);
    json_object_put(answer);
    struct json_object *record = fix_call(owner, "command", "{\"line\": \"stop\"}");
    assert_string_equal(fix_text(record, "state"), "accepted");
    json_object_put(record);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    for (int k = 0; k < KJI_CLIENTS_MAX; k++)
        close(many[k]);
    close(extra);
    close(owner);
}

static void test_the_client_that_only_reads(void **state)
{
    (void)state;
    kj_client_options options = KJ_CLIENT_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    char *json;
    fix_open(NULL, 0);
    options.flags = KJ_CLIENT_READ_ONLY;
    assert_int_equal(kj_client_open_with(kj_run_dir(fix.run), &options, &client, &err), 0);
    assert_string_equal(kj_client_get_version(client), kj_version());
    assert_int_equal(kj_client_call(client, "status", NULL, -1, &json, &err), 0);
    kj_free(json);
    assert_int_equal(
        kj_client_command(client, "{\"line\": \"get lr\"}", KJ_WAIT_DONE, -1, &json, &err), 0);
    kj_free(json);
    assert_int_equal(
        kj_client_command(client, "{\"line\": \"stop\"}", KJ_WAIT_DONE, -1, &json, &err), KJ_EPERM);
    kj_client_close(client);
    options.flags = 2;
    assert_int_equal(kj_client_open_with(kj_run_dir(fix.run), &options, &client, &err), KJ_EARG);
    options.flags = 0;
    options.timeout_ms = -1;
    assert_int_equal(kj_client_open_with(kj_run_dir(fix.run), &options, &client, &err), KJ_EARG);
}

static void test_a_run_without_it_is_an_older_one(void **state)
{
    (void)state;
    kj_client_options options = KJ_CLIENT_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    char path[300];
    fix_open(NULL, 0);
    snprintf(path, sizeof path, "%s/monitor", kj_run_dir(fix.run));
    assert_int_equal(unlink(path), 0);
    options.flags = KJ_CLIENT_READ_ONLY;
    assert_int_equal(kj_client_open_with(kj_run_dir(fix.run), &options, &client, &err),
                     KJ_EUNSUPPORTED);
    assert_int_equal(kj_client_open(kj_run_dir(fix.run), &client, &err), 0);
    kj_client_close(client);
}

static void test_hello_is_said_again_in_what_both_know(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    char *json;
    fix_open(NULL, 0);
    assert_int_equal(kj_client_open(kj_run_dir(fix.run), &client, &err), 0);
    int64_t before = client->last_id;
    assert_int_equal(kji_client_hello(client, 7, INT64_MAX, &err), 0);
    assert_int_equal(client->last_id, before + 2);
    assert_int_equal(kj_client_call(client, "ping", NULL, -1, &json, &err), 0);
    kj_free(json);
    kj_client_close(client);
}

static void test_it_is_private_and_goes_with_the_run(void **state)
{
    (void)state;
    char path[300];
    struct stat st;
    fix_open(NULL, 0);
    snprintf(path, sizeof path, "%s/monitor", kj_run_dir(fix.run));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    fix_close();
    assert_int_equal(stat(path, &st), -1);
    *strrchr(path, '/') = 0;
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_questions_are_answered),
        TEST(test_get_reads_nothing_anew),
        TEST(test_commands_are_refused_and_leave_no_trace),
        TEST(test_a_watcher_gets_events),
        TEST(test_watchers_keep_nobody_out),
        TEST(test_the_client_that_only_reads),
        TEST(test_a_run_without_it_is_an_older_one),
        TEST(test_hello_is_said_again_in_what_both_know),
        TEST(test_it_is_private_and_goes_with_the_run),
    };
    return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}
