/* SPDX-License-Identifier: Apache-2.0 */
/* The client against a fake run that says what a script tells it, well-behaved or not. */
#include "errors.h"
#include "mem.h"
#include "strbuf.h"

#include <kajitori/client.h>

#include "kji-test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define HELLO                                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocol\":1,\"version\":\"0.1.0\",\"run\":{}}}" \
    "\n"

/* Answers sent one per request line received; NULL ends the script. Then the connection is closed,
 * or held until the client closes it. */
typedef struct fake_run {
    char dir[200];
    int listen_fd;
    pthread_t thread;
    const char *const *answers;
    bool hold;
    size_t flood;     /* instead of the last answer: so many bytes without a newline */
    char seen[70000]; /* the newest request */
} fake_run;

/* false at the end of the stream */
static bool read_request(fake_run *fake, int fd)
{
    size_t size = 0;
    for (;;) {
        char c;
        if (read(fd, &c, 1) != 1)
            return false;
        if (c == '\n' || size + 1 == sizeof fake->seen)
            break;
        fake->seen[size++] = c;
    }
    fake->seen[size] = 0;
    return true;
}

static void send_flood(int fd, size_t size)
{
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    for (size_t sent = 0; sent < size; sent += sizeof bytes)
        if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) < 0)
            return;
}

static void *serve(void *userdata)
{
    fake_run *fake = userdata;
    int fd = accept(fake->listen_fd, NULL, NULL);
    if (fd < 0)
        return NULL;
    bool alive = true;
    for (size_t k = 0; alive && fake->answers[k]; k++) {
        alive = read_request(fake, fd);
        if (alive && !fake->answers[k + 1] && fake->flood)
            send_flood(fd, fake->flood);
        else if (alive)
            send(fd, fake->answers[k], strlen(fake->answers[k]), MSG_NOSIGNAL);
    }
    while (alive && fake->hold)
        alive = read_request(fake, fd);
    close(fd);
    return NULL;
}

static void start(fake_run *fake, const char *const *answers, bool hold)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(fake->dir, "/tmp/kji-client-XXXXXX");
    assert_non_null(mkdtemp(fake->dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%.80s/sock", fake->dir);
    fake->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fake->listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fake->listen_fd, 4), 0);
    fake->answers = answers;
    fake->hold = hold;
    assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
}

static void finish(fake_run *fake)
{
    pthread_join(fake->thread, NULL);
    close(fake->listen_fd);
    kji_test_remove_tree(fake->dir);
}

static kj_client *connect_to(const fake_run *fake)
{
    kj_error err = KJ_ERROR_INIT;
    kj_client *client = NULL;
    if (kj_client_open(fake->dir, &client, &err) < 0)
        fail_msg("%s", err.message);
    return client;
}

/* Opens, calls "status", and expects `code` with `text` in the message. */
static void expect_call_error(const char *const *answers, bool hold, int timeout_ms, int code,
                              const char *text)
{
    static fake_run fake;
    memset(&fake, 0, sizeof fake);
    kj_error err = KJ_ERROR_INIT;
    char *json = NULL;
    start(&fake, answers, hold);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_call(client, "status", NULL, timeout_ms, &json, &err), code);
    assert_non_null(strstr(err.message, text));
    assert_null(json);
    kj_client_close(client);
    finish(&fake);
}

static void test_call(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {
        HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"step\":7}}\n", NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    start(&fake, answers, true);
    kj_client *client = connect_to(&fake);
    assert_non_null(strstr(fake.seen, "\"protocol\":1"));
    assert_int_equal(kj_client_call(client, "status", "{\"a\":1}", 10000, &json, &err), 0);
    assert_string_equal(json, "{\"step\":7}");
    assert_string_equal(
        fake.seen, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"status\",\"params\":{\"a\":1}}");
    kj_free(json);
    assert_int_equal(kj_client_call(client, "status", "[1]", 10000, &json, &err), KJ_EARG);
    assert_int_equal(kj_client_call(client, "status", "{", 10000, &json, &err), KJ_EDATA);
    kj_client_close(client);
    finish(&fake);
}

static void test_versions_are_named_where_they_differ(void **state)
{
    (void)state;
    static const char *const answers[] = {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocol\":"
                                          "1,\"version\":\"9.9.9\",\"run\":{}}}\n",
                                          "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-9,"
                                          "\"message\":\"no verb \\\"fly\\\"; there are "
                                          "stop\"}}\n",
                                          NULL};
    static const char *const same[] = {HELLO,
                                       "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-9,"
                                       "\"message\":\"no verb \\\"fly\\\"\"}}\n",
                                       NULL};
    expect_call_error(answers, true, 10000, KJ_EREJECTED,
                      "there are stop (the run is kajitori 9.9.9, this side kajitori ");
    expect_call_error(same, true, 10000, KJ_EREJECTED, "no verb \"fly\"");
}

/* The run speaks another protocol: its answer says which, and who should be updated. */
static void test_a_run_of_another_protocol(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-12,\"message\":\"I speak 9\",\"data\":{"
        "\"protocol\":9,\"version\":\"9.9.9\"}}}\n",
        NULL};
    kj_error err = KJ_ERROR_INIT;
    kj_client *client = NULL;
    start(&fake, answers, true);
    assert_int_equal(kj_client_open(fake.dir, &client, &err), KJ_EPROTO);
    assert_non_null(strstr(err.message, "protocol 9 (kajitori 9.9.9)"));
    assert_null(client);
    finish(&fake);
}

static void test_events_are_kept_while_waiting(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {
        HELLO "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"state\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"metric\"}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
        NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    start(&fake, answers, false);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_call(client, "status", NULL, 10000, &json, &err), 0);
    kj_free(json);
    static const char *const events[] = {"{\"event\":\"state\"}", "{\"event\":\"metric\"}"};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(kj_client_next_event(client, 10000, &json, &err), 1);
        assert_string_equal(json, events[k]);
        kj_free(json);
    }
    assert_int_equal(kj_client_next_event(client, -1, &json, &err), KJ_EENDED);
    assert_int_equal(kj_client_call(client, "status", NULL, 10000, &json, &err), KJ_EENDED);
    kj_client_close(client);
    finish(&fake);
}

static void test_no_event_in_time(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {HELLO, NULL};
    char *json;
    start(&fake, answers, true);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_next_event(client, 0, &json, NULL), 0);
    assert_int_equal(kj_client_next_event(client, 1, &json, NULL), 0);
    kj_client_close(client);
    finish(&fake);
}

static void test_misbehaving_runs(void **state)
{
    (void)state;
    expect_call_error((const char *const[]){HELLO, "hello?\n", NULL}, true, 10000, KJ_EPROTO,
                      "not JSON");
    expect_call_error((const char *const[]){HELLO, "[1,2]\n", NULL}, true, 10000, KJ_EPROTO,
                      "no object");
    expect_call_error((const char *const[]){HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2}\n", NULL}, true,
                      10000, KJ_EPROTO, "without a result");
    expect_call_error((const char *const[]){HELLO, "{\"id\":99,\"result\":{}}\n", NULL}, true,
                      10000, KJ_EPROTO, "not made");
    expect_call_error(
        (const char *const[]){HELLO, "{\"id\":null,\"error\":{\"message\":\"no!\"}}\n", NULL}, true,
        10000, KJ_EPROTO, "no!");
    expect_call_error((const char *const[]){HELLO, "", NULL}, true, 1, KJ_ETIMEOUT, "in time");
    expect_call_error((const char *const[]){HELLO, "{\"jsonrpc\":", NULL}, false, 10000, KJ_EENDED,
                      "ended");
    expect_call_error((const char *const[]){HELLO, "", NULL}, false, -1, KJ_EENDED, "ended");
    expect_call_error(
        (const char *const[]){
            HELLO, "{\"id\":2,\"error\":{\"code\":-9,\"message\":\"lr: too large\"}}\n", NULL},
        true, 10000, KJ_EREJECTED, "lr: too large");
    expect_call_error(
        (const char *const[]){
            HELLO, "{\"id\":2,\"error\":{\"code\":-32601,\"message\":\"no method\"}}\n", NULL},
        true, 10000, KJ_EUNSUPPORTED, "no method");
    expect_call_error((const char *const[]){HELLO, "{\"id\":2,\"error\":7}\n", NULL}, true, 10000,
                      KJ_EPROTO, "without a reason");
}

static void test_endless_line(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {HELLO, "", NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    fake.flood = 20u << 20;
    start(&fake, answers, false);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_call(client, "status", NULL, -1, &json, &err), KJ_EPROTO);
    assert_non_null(strstr(err.message, "1048576 bytes"));
    assert_int_equal(kj_client_call(client, "status", NULL, -1, &json, &err), KJ_EPROTO);
    assert_int_equal(kj_client_next_event(client, -1, &json, &err), KJ_EPROTO);
    kj_client_close(client);
    finish(&fake);
}

static void test_too_long_request_is_not_sent(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
                                          NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json, *params = malloc(70100);
    memset(params, 'x', 70100);
    memcpy(params, "{\"a\":\"", 6);
    strcpy(params + 70000, "\"}");
    start(&fake, answers, true);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_call(client, "command", params, 10000, &json, &err), KJ_EARG);
    assert_int_equal(kj_client_call(client, "status", NULL, 10000, &json, &err), 0);
    kj_free(json);
    free(params);
    kj_client_close(client);
    finish(&fake);
}

static void test_answer_to_a_call_that_was_given_up(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {
        HELLO, "", "{\"id\":2,\"result\":\"late\"}\n{\"id\":3,\"result\":\"in time\"}\n", NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    start(&fake, answers, true);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_call(client, "status", NULL, 1, &json, &err), KJ_ETIMEOUT);
    assert_int_equal(kj_client_call(client, "status", NULL, 10000, &json, &err), 0);
    assert_string_equal(json, "\"in time\"");
    kj_free(json);
    kj_client_close(client);
    finish(&fake);
}

static int look_twice(void *userdata)
{
    return ++*(int *)userdata == 2;
}

static void test_a_wait_that_is_interrupted(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {
        HELLO, "", "{\"id\":2,\"result\":\"late\"}\n{\"id\":3,\"result\":\"in time\"}\n", NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    int looks = 0;
    start(&fake, answers, true);
    kj_client *client = connect_to(&fake);
    kj_client_set_interrupt(client, look_twice, &looks);
    assert_int_equal(kj_client_call(client, "status", NULL, -1, &json, &err), KJ_EINTERRUPTED);
    assert_int_equal(looks, 2);
    kj_client_set_interrupt(client, NULL, NULL);
    assert_int_equal(kj_client_call(client, "status", NULL, -1, &json, &err), 0);
    assert_string_equal(json, "\"in time\"");
    kj_free(json);
    looks = 0;
    kj_client_set_interrupt(client, look_twice, &looks);
    assert_int_equal(kj_client_next_event(client, -1, &json, &err), KJ_EINTERRUPTED);
    assert_int_equal(kj_client_next_event(client, 1, &json, &err), 0);
    kj_client_close(client);
    finish(&fake);
}

static void expect_open_error(const char *const *answers, int code, const char *text)
{
    static fake_run fake;
    memset(&fake, 0, sizeof fake);
    kj_error err = KJ_ERROR_INIT;
    kj_client *client = NULL;
    start(&fake, answers, false);
    assert_int_equal(kj_client_open(fake.dir, &client, &err), code);
    assert_non_null(strstr(err.message, text));
    assert_null(client);
    finish(&fake);
}

static void test_open_errors(void **state)
{
    (void)state;
    expect_open_error(
        (const char *const[]){
            "{\"id\":1,\"result\":{\"protocol\":2,\"version\":\"9.0.0\",\"run\":{}}}\n", NULL},
        KJ_EPROTO, "protocol 2 (kajitori 9.0.0)");
    expect_open_error((const char *const[]){NULL}, KJ_ENORUN, "ended");
    kj_error err = KJ_ERROR_INIT;
    kj_client *client = NULL;
    assert_int_equal(kj_client_open("/nonexistent/run", &client, &err), KJ_ENORUN);
    char dir[] = "/tmp/kji-client-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(kj_client_open(dir, &client, &err), KJ_ENORUN);
    assert_non_null(strstr(err.message, "nobody listens"));
    snprintf(path, sizeof path, "%s/sock", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_true(kj_client_open(dir, &client, &err) < 0);
    kji_test_remove_tree(dir);
}

static void test_a_silent_run(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const silent[] = {NULL};
    kj_error err = KJ_ERROR_INIT;
    kj_client *client = NULL;
    start(&fake, silent, true);
    assert_int_equal(kj_client_open_within(fake.dir, 1, &client, &err), KJ_ETIMEOUT);
    assert_non_null(strstr(err.message, "does not answer"));
    assert_null(client);
    finish(&fake);
    static const char *const answers[] = {HELLO, NULL};
    start(&fake, answers, true);
    assert_int_equal(kj_client_open_within(fake.dir, 1000000, &client, &err), 0);
    kj_client_close(client);
    finish(&fake);
}

static void test_long_path(void **state)
{
    (void)state;
    static fake_run fake;
    static const char *const answers[] = {HELLO, NULL};
    start(&fake, answers, true);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf path = KJI_STRBUF_INIT;
    kji_strbuf_puts(&path, fake.dir);
    for (int k = 0; k < 100; k++)
        kji_strbuf_puts(&path, "/.");
    kj_client *client = NULL;
    assert_int_equal(kj_client_open(path.text, &client, NULL), 0);
    kj_client_close(client);
    finish(&fake);
}

#define RECORD(state, more) \
    "{\"seq\":4,\"state\":\"" state "\",\"verb\":\"set\",\"at\":\"now\"" more "}"
#define ANSWER(state, more) "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":" RECORD(state, more) "}\n"
#define EVENT(seq, state, more)                                                                \
    "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"command\",\"seq\":" seq \
    ",\"state\":\"" state "\",\"verb\":\"set\"" more "}}\n"

static int command(const char *const *answers, bool hold, int wait, int timeout_ms, char **ret_json,
                   kj_error *err)
{
    static fake_run fake;
    memset(&fake, 0, sizeof fake);
    start(&fake, answers, hold);
    kj_client *client = connect_to(&fake);
    int r = kj_client_command(client, "{\"verb\":\"set\",\"args\":{\"lr\":1}}", wait, timeout_ms,
                              ret_json, err);
    kj_client_close(client);
    finish(&fake);
    return r;
}

static void expect_state(const char *const *answers, int wait, const char *state)
{
    kj_error err = KJ_ERROR_INIT;
    char *json = NULL;
    if (command(answers, true, wait, 10000, &json, &err) < 0)
        fail_msg("%s", err.message);
    assert_non_null(strstr(json, state));
    kj_free(json);
}

static void test_command_waits(void **state)
{
    (void)state;
    static const char *const all[] = {HELLO,
                                      ANSWER("accepted", "") EVENT("3", "failed", "")
                                          EVENT("4", "applied", ",\"step\":9")
                                              EVENT("4", "done", ",\"step\":9"),
                                      NULL};
    expect_state(all, KJ_WAIT_ACCEPTED, "\"accepted\"");
    expect_state(all, KJ_WAIT_APPLIED, "\"applied\"");
    expect_state(all, KJ_WAIT_DONE, "\"done\"");
    static const char *const early[] = {
        HELLO, EVENT("4", "accepted", "") EVENT("4", "applied", "") ANSWER("accepted", ""), NULL};
    expect_state(early, KJ_WAIT_APPLIED, "\"applied\"");
    static const char *const at_once[] = {HELLO, ANSWER("done", ",\"result\":{}"), NULL};
    expect_state(at_once, KJ_WAIT_DONE, "\"result\"");
}

static void test_command_does_not_succeed(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    char *json = NULL;
    static const char *const rejected[] = {
        HELLO, "{\"id\":2,\"error\":{\"code\":-9,\"message\":\"no parameter 'x'\"}}\n", NULL};
    assert_int_equal(command(rejected, true, KJ_WAIT_DONE, 10000, &json, &err), KJ_EREJECTED);
    static const char *const failed[] = {
        HELLO, ANSWER("accepted", "") EVENT("4", "failed", ",\"error\":\"no room\""), NULL};
    assert_int_equal(command(failed, true, KJ_WAIT_APPLIED, 10000, &json, &err), KJ_EFAILED);
    assert_string_equal(err.message, "no room");
    static const char *const expired[] = {HELLO, ANSWER("accepted", "") EVENT("4", "expired", ""),
                                          NULL};
    assert_int_equal(command(expired, true, KJ_WAIT_APPLIED, 10000, &json, &err), KJ_EENDED);
    static const char *const gone[] = {HELLO, ANSWER("accepted", ""), NULL};
    assert_int_equal(command(gone, false, KJ_WAIT_APPLIED, 10000, &json, &err), KJ_EENDED);
    assert_non_null(strstr(err.message, "command 4"));
    static const char *const slow[] = {HELLO, ANSWER("scheduled", ""), NULL};
    assert_int_equal(command(slow, true, KJ_WAIT_APPLIED, 300, &json, &err), KJ_ETIMEOUT);
    assert_non_null(strstr(err.message, "command 4 is scheduled"));
    assert_non_null(strstr(err.message, "may still be applied"));
    static const char *const begun[] = {HELLO, ANSWER("applied", ""), NULL};
    assert_int_equal(command(begun, true, KJ_WAIT_DONE, 300, &json, &err), KJ_ETIMEOUT);
    assert_string_equal(err.message, "command 4 was begun and is not done yet; it goes on");
    static const char *const silent[] = {HELLO, NULL};
    assert_int_equal(command(silent, true, KJ_WAIT_ACCEPTED, 1, &json, &err), KJ_ETIMEOUT);
    assert_non_null(strstr(err.message, "may still be carried out"));
    static const char *const odd[] = {HELLO, "{\"id\":2,\"result\":{\"seq\":4}}\n", NULL};
    assert_int_equal(command(odd, true, KJ_WAIT_APPLIED, 10000, &json, &err), KJ_EPROTO);
    assert_null(json);
}

static void test_events_are_bounded(void **state)
{
    (void)state;
    static fake_run fake;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf many = KJI_STRBUF_INIT;
    for (int k = 0; k < 10000; k++)
        kji_strbuf_printf(
            &many, "{\"method\":\"event\",\"params\":{\"event\":\"metric\",\"step\":%d}}\n", k);
    kji_strbuf_puts(&many, ANSWER("accepted", "") EVENT("4", "applied", ""));
    const char *answers[] = {HELLO, many.text, NULL};
    kj_error err = KJ_ERROR_INIT;
    char *json;
    start(&fake, answers, false);
    kj_client *client = connect_to(&fake);
    assert_int_equal(kj_client_command(client, "{}", KJ_WAIT_APPLIED, 60000, &json, &err), 0);
    kj_free(json);
    assert_int_equal(kj_client_next_event(client, 0, &json, &err), 1);
    assert_string_equal(json, "{\"event\":\"gap\",\"lost\":5905}");
    kj_free(json);
    size_t n = 0;
    while (kj_client_next_event(client, -1, &json, &err) == 1) {
        if (n == 0)
            assert_string_equal(json, "{\"event\":\"metric\",\"step\":5905}");
        kj_free(json);
        n++;
    }
    assert_int_equal(n, 4096);
    kj_client_close(client);
    finish(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call),
        cmocka_unit_test(test_versions_are_named_where_they_differ),
        cmocka_unit_test(test_a_run_of_another_protocol),
        cmocka_unit_test(test_events_are_kept_while_waiting),
        cmocka_unit_test(test_no_event_in_time),
        cmocka_unit_test(test_misbehaving_runs),
        cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_too_long_request_is_not_sent),
        cmocka_unit_test(test_answer_to_a_call_that_was_given_up),
        cmocka_unit_test(test_a_wait_that_is_interrupted),
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_a_silent_run),
        cmocka_unit_test(test_long_path),
        cmocka_unit_test(test_command_waits),
        cmocka_unit_test(test_command_does_not_succeed),
        cmocka_unit_test(test_events_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
