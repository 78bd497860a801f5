/* SPDX-License-Identifier: Apache-2.0 */
/* The socket door, and what must not depend on the training thread or on a client's good will. */
#include "files.h"
#include "forks.h"
#include "json.h"
#include "mem.h"
#include "rpc.h"
#include "run-fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
    if (conn >= 0)
        close(conn);
    return fix_tear_down(state);
}

static void test_hello(void **state)
{
    (void)state;
    struct json_object *answer = fix_call(conn, "hello", "{\"protocol\": 1, \"client\": \"t\"}"),
                       *run, *data;
    json_object_object_get_ex(answer, "run", &run);
    assert_string_equal(fix_text(run, "id"), "test");
    assert_int_equal(fix_int(run, "pid"), getpid());
    json_object_put(answer);
    answer = fix_call(conn, "hello", "{\"protocol\": 2}");
    assert_int_equal(fix_int(answer, "code"), KJ_EPROTO);
    json_object_object_get_ex(answer, "data", &data);
    assert_int_equal(fix_int(data, "protocol"), 1);
    assert_string_equal(fix_text(data, "version"), kj_version());
    json_object_put(answer);
    answer = fix_call(conn, "hello", "{}");
    assert_int_equal(fix_int(answer, "code"), KJI_RPC_BAD_PARAMS);
    json_object_put(answer);
    answer = fix_call(conn, "explode", NULL);
    assert_int_equal(fix_int(answer, "code"), KJI_RPC_NO_METHOD);
    json_object_put(answer);
}

static void test_files_are_private(void **state)
{
    (void)state;
    static const char *const names[] = {"", "ctl", "sock", "monitor", "run.json", "lock"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", kj_run_dir(fix.run), names[k]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
    }
}

static void test_requests_in_pieces_and_in_bulk(void **state)
{
    (void)state;
    const char *piece = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":";
    assert_int_equal(write(conn, piece, strlen(piece)), strlen(piece));
    fix_send(conn, "\"ping\"}\r\n\n{\"jsonrpc\":\"2.0\",\"method\":\"ping\"}\n{\n"
                   "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}");
    struct json_object *answer = fix_receive(conn);
    assert_int_equal(fix_int(answer, "id"), 1);
    json_object_put(answer);
    answer = fix_receive(conn); /* the notification has no answer; "{" is no JSON */
    assert_true(json_object_object_get_ex(answer, "error", NULL));
    json_object_put(answer);
    answer = fix_receive(conn);
    assert_int_equal(fix_int(answer, "id"), 2);
    json_object_put(answer);
}

static void test_too_long_a_request_ends_the_connection(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *text = malloc(KJI_RPC_REQUEST_MAX + 2);
    memset(text, ' ', KJI_RPC_REQUEST_MAX + 1);
    text[KJI_RPC_REQUEST_MAX + 1] = 0;
    assert_int_equal(kji_write_all(conn, text, strlen(text), NULL), 0);
    struct json_object *answer = fix_receive(conn), *error;
    json_object_object_get_ex(answer, "error", &error);
    assert_int_equal(fix_int(error, "code"), KJI_RPC_INVALID_REQUEST);
    json_object_put(answer);
    assert_null(fix_receive(conn));
}

static void test_a_half_closed_client_gets_its_answers(void **state)
{
    (void)state;
    fix_send(conn, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}");
    shutdown(conn, SHUT_WR);
    struct json_object *answer = fix_receive(conn);
    assert_true(json_object_object_get_ex(answer, "result", NULL));
    json_object_put(answer);
    assert_null(fix_receive(conn));
}

/* More answers than find room at once; the sender has long said all that it has to say. */
static void test_all_requests_of_a_half_closed_client_are_answered(void **state)
{
    (void)state;
    enum { REQUESTS = 1500 };
    const char *request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"help\"}\n";
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf all = KJI_STRBUF_INIT;
    for (int k = 0; k < REQUESTS; k++)
        kji_strbuf_puts(&all, request);
    assert_int_equal(kji_write_all(conn, all.text, all.size, NULL), 0);
    shutdown(conn, SHUT_WR);
    char bytes[65536];
    int answers = 0;
    ssize_t n;
    while ((n = recv(conn, bytes, sizeof bytes, 0)) > 0)
        for (ssize_t k = 0; k < n; k++)
            answers += bytes[k] == '\n';
    assert_int_equal(answers, REQUESTS);
}

static int question_while_busy(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata, (void)call, (void)err;
    /* We are the training thread, inside a long call; the helper answers all the same. */
    int other = fix_connect();
    struct json_object *status = fix_call(other, "status", NULL);
    assert_string_equal(fix_text(status, "state"), "running");
    json_object_put(status);
    struct json_object *record = fix_call(other, "command", "{\"line\": \"tick n=1\"}");
    assert_string_equal(fix_text(record, "state"), "accepted");
    json_object_put(record);
    close(other);
    return 0;
}

static void test_status_while_the_training_is_blocked(void **state)
{
    (void)state;
    kj_verb verb = {.size = sizeof verb, .name = "busy", .run = question_while_busy};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    json_object_put(fix_call(conn, "command", "{\"line\": \"busy\"}"));
    kj_run_poll(fix.run);
    assert_int_equal(fix.n_ticks, 0); /* came meanwhile: the next safe point's */
    kj_run_poll(fix.run);
    assert_int_equal(fix.n_ticks, 1);
}

static void test_a_slow_reader_gets_a_gap_and_blocks_nobody(void **state)
{
    (void)state;
    enum { REPORTS = 100000 };
    json_object_put(fix_call(conn, "subscribe", "{\"events\": [\"metric\", \"command\"]}"));
    for (int k = 0; k < REPORTS; k++) /* nobody reads */
        assert_int_equal(kj_run_report(fix.run, "loss", k, 0.5, NULL), 0);
    int other = fix_connect();
    json_object_put(fix_call(other, "command", "{\"line\": \"tick n=1\"}"));
    kj_run_poll(fix.run);
    json_object_put(fix_wait_event(other, "command", "done"));
    close(other);
    int64_t received = 0, lost = 0, last = -1;
    bool command_seen = false;
    while (last < REPORTS - 1 || !command_seen) {
        struct json_object *message = fix_receive(conn), *params;
        json_object_object_get_ex(message, "params", &params);
        const char *event = fix_text(params, "event");
        if (strcmp(event, "gap") == 0)
            lost += fix_int(params, "lost");
        else if (strcmp(event, "command") == 0)
            command_seen |= strcmp(fix_text(params, "state"), "done") == 0;
        else {
            assert_true(fix_int(params, "step") > last);
            last = fix_int(params, "step");
            received++;
        }
        json_object_put(message);
    }
    assert_true(lost > 0);
    assert_int_equal(received + lost, REPORTS);
}

static void test_a_client_that_never_reads_is_not_read_from(void **state)
{
    (void)state;
    const char *request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"help\"}\n";
    fcntl(conn, F_SETFL, O_NONBLOCK);
    /* Until the run takes no more of it; other clients are served all the while. */
    int other = fix_connect();
    for (int64_t sent = 0, before = -1; sent != before;) {
        before = sent;
        while (send(conn, request, strlen(request), MSG_NOSIGNAL) > 0)
            sent++;
        json_object_put(fix_call(other, "ping", NULL));
        assert_true(sent < 1000000);
    }
    json_object_put(fix_call(other, "ping", NULL));
    close(other);
}

static void test_at_most_64_connections(void **state)
{
    (void)state;
    int many[KJI_CLIENTS_MAX];
    for (int k = 0; k < KJI_CLIENTS_MAX - 1; k++) {
        many[k] = fix_connect();
        json_object_put(fix_call(many[k], "ping", NULL));
    }
    int extra = fix_connect();
    struct json_object *answer = fix_receive(extra), *error;
    json_object_object_get_ex(answer, "error", &error);
    assert_int_equal(fix_int(error, "code"), KJ_EPERM);
    json_object_put(answer);
    assert_null(fix_receive(extra));
    close(extra);
    for (int k = 0; k < KJI_CLIENTS_MAX - 1; k++)
        close(many[k]);
    json_object_put(fix_call(conn, "ping", NULL));
}

/* Connections that have sent half a request, and nothing more. */
static void test_half_open_connections_are_let_go(void **state)
{
    (void)state;
    enum { MANY = 200 };
    int many[MANY];
    for (int k = 0; k < MANY; k++) {
        many[k] = fix_connect();
        send(many[k], "{\"jsonrpc\":", 11, MSG_NOSIGNAL); /* 137 are turned away at once */
    }
    json_object_put(fix_call(conn, "ping", NULL)); /* who was there is served */
    for (int k = 0; k < MANY; k++)
        close(many[k]);
    for (bool served = false; !served;) { /* the last of them may not have been noticed yet */
        int extra = fix_connect();
        const char *request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        send(extra, request, strlen(request), MSG_NOSIGNAL);
        struct json_object *answer = fix_receive(extra);
        served = answer && json_object_object_get_ex(answer, "result", NULL);
        json_object_put(answer);
        close(extra);
    }
}

/* Another thread takes every descriptor that is given back, the spare one too. */
static void test_no_descriptor_left_at_all(void **state)
{
    (void)state;
    int extra = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), many[256], n = 0;
    struct rlimit before, low;
    json_object_put(fix_call(conn, "ping", NULL));
    kji_forks_close(&fix.run->helper.socket.spare_fd);
    getrlimit(RLIMIT_NOFILE, &before);
    low = (struct rlimit){200, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((many[n] = dup(0)) >= 0)
        n++;
    fix_connect_as(extra); /* waits in the queue */
    json_object_put(fix_call(conn, "ping", NULL));
    while (n > 0)
        close(many[--n]);
    setrlimit(RLIMIT_NOFILE, &before);
    fix_send(extra, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
    struct json_object *answer = fix_receive(extra); /* taken in, some time later */
    assert_true(json_object_object_get_ex(answer, "result", NULL));
    json_object_put(answer);
    close(extra);
}

static void test_no_descriptor_left(void **state)
{
    (void)state;
    int extra = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), many[256], n = 0;
    struct rlimit before, low;
    json_object_put(fix_call(conn, "ping", NULL)); /* taken in before they run out */
    getrlimit(RLIMIT_NOFILE, &before);
    low = (struct rlimit){200, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((many[n] = dup(0)) >= 0)
        n++;
    fix_connect_as(extra);
    struct json_object *answer = fix_receive(extra), *error;
    json_object_object_get_ex(answer, "error", &error);
    assert_non_null(strstr(fix_text(error, "message"), "descriptor"));
    json_object_put(answer);
    assert_null(fix_receive(extra));
    while (n > 0)
        close(many[--n]);
    setrlimit(RLIMIT_NOFILE, &before);
    close(extra);
    json_object_put(fix_call(conn, "ping", NULL));
}

static void test_the_journal_is_read_in_parts(void **state)
{
    (void)state;
    enum { COMMANDS = 500 };
    for (int k = 0; k < COMMANDS; k++) {
        json_object_put(fix_call(conn, "command", "{\"line\": \"tick n=1\"}"));
        kj_run_poll(fix.run);
    }
    int64_t after = 0, last = -1;
    while (after != last) {
        char params[80];
        snprintf(params, sizeof params, "{\"after\": %lld, \"limit\": 130}", (long long)after);
        struct json_object *answer = fix_call(conn, "journal", params), *lines;
        last = fix_int(answer, "last");
        json_object_object_get_ex(answer, "lines", &lines);
        assert_true(json_object_array_length(lines) > 0);
        for (size_t k = 0; k < json_object_array_length(lines); k++)
            assert_int_equal(fix_int(json_object_array_get_idx(lines, k), "n"), ++after);
        json_object_put(answer);
    }
    assert_int_equal(last, 1 + 3 * COMMANDS);
}

static void test_a_repeater_gets_the_records(void **state)
{
    (void)state;
    json_object_put(fix_call(conn, "command", "{\"line\": \"tick command_id=a\"}"));
    close(conn); /* the first sender goes away */
    conn = fix_connect();
    struct json_object *record = fix_call(conn, "command", "{\"line\": \"tick command_id=a\"}");
    assert_string_equal(fix_text(record, "state"), "accepted");
    json_object_put(record);
    kj_run_poll(fix.run);
    json_object_put(fix_wait_event(conn, "command", "done"));
    assert_int_equal(fix.n_ticks, 1);
}

static void test_subscriptions_are_checked(void **state)
{
    (void)state;
    struct json_object *answer = fix_call(conn, "subscribe", "{\"events\": [\"metrics\"]}");
    assert_int_equal(fix_int(answer, "code"), KJI_RPC_BAD_PARAMS);
    json_object_put(answer);
    answer = fix_call(conn, "subscribe", "{\"events\": [null]}");
    assert_int_equal(fix_int(answer, "code"), KJI_RPC_BAD_PARAMS);
    json_object_put(answer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_hello),
        TEST(test_files_are_private),
        TEST(test_requests_in_pieces_and_in_bulk),
        TEST(test_too_long_a_request_ends_the_connection),
        TEST(test_a_half_closed_client_gets_its_answers),
        TEST(test_all_requests_of_a_half_closed_client_are_answered),
        TEST(test_status_while_the_training_is_blocked),
        TEST(test_a_slow_reader_gets_a_gap_and_blocks_nobody),
        TEST(test_a_client_that_never_reads_is_not_read_from),
        TEST(test_at_most_64_connections),
        TEST(test_half_open_connections_are_let_go),
        TEST(test_no_descriptor_left),
        TEST(test_no_descriptor_left_at_all),
        TEST(test_the_journal_is_read_in_parts),
        TEST(test_a_repeater_gets_the_records),
        TEST(test_subscriptions_are_checked),
    };
    return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
