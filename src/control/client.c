/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the channel: one connection, one thread, requests in order (docs/protocol.md).
 *
 * Everything that arrives goes through read_message(), which hands over one JSON object at a time:
 * events are kept in a queue, answers are given to whoever waits for them, answers to requests that
 * were given up are dropped. Every wait is one poll(2) against a monotonic deadline. A peer that
 * breaks the protocol ends the connection with KJ_EPROTO; one that goes away, with KJ_EENDED, after
 * everything it still said has been read.
 */
#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
    PROTOCOL = 1,
    REQUEST_LIMIT = 65536,         /* bytes of one message to the run */
    LINE_LIMIT = 16 * 1024 * 1024, /* bytes of one message from the run */
    EVENT_LIMIT = 4096,            /* events kept while nobody asks for them */
    READ_SIZE = 16384,
    HELLO_TIMEOUT_MS = 5000
};

struct kj_client {
    int fd;
    bool ended;  /* the peer is gone, and what it said has been read */
    bool broken; /* the stream cannot be understood any more */
    int64_t last_id;
    kji_strbuf in;
    size_t scanned; /* bytes of `in` known to hold no newline */
    struct json_object **events;
    size_t n_events, events_capacity, first_event;
    uint64_t lost_events;
};

/* ---- time ---- */

/* The moment that is timeout_ms away; INT64_MAX for ever. */
static int64_t deadline_in(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : kji_monotonic_ms() + timeout_ms;
}

/* Waits for `events` of the socket: 1, 0 at the deadline, or an error. */
static int wait_ready(kj_client *client, short events, int64_t deadline, kj_error *err)
{
    for (;;) {
        int wait_ms = -1;
        if (deadline != INT64_MAX) {
            int64_t left = deadline - kji_monotonic_ms();
            wait_ms = left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
        }
        struct pollfd poll_fd = {.fd = client->fd, .events = events};
        int r = poll(&poll_fd, 1, wait_ms);
        if (r > 0)
            return 1;
        if (r == 0 && (wait_ms != INT_MAX))
            return 0;
        if (r < 0 && errno != EINTR)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot wait for the run");
    }
}

/* ---- events kept ---- */

static size_t count_events(const kj_client *client)
{
    return client->n_events - client->first_event;
}

static struct json_object *take_event(kj_client *client)
{
    struct json_object *event = client->events[client->first_event++];
    if (client->first_event == client->n_events)
        client->first_event = client->n_events = 0;
    return event;
}

/* Takes `event` over. The oldest goes when there are too many. */
static int keep_event(kj_client *client, struct json_object *event, kj_error *err)
{
    if (count_events(client) >= EVENT_LIMIT) {
        json_object_put(take_event(client));
        client->lost_events++;
    }
    if (client->first_event > EVENT_LIMIT) {
        memmove(client->events, client->events + client->first_event,
                count_events(client) * sizeof *client->events);
        client->n_events = count_events(client);
        client->first_event = 0;
    }
    if (!kji_reserve(&client->events, &client->events_capacity, client->n_events + 1,
                     sizeof *client->events)) {
        json_object_put(event);
        return kji_fail_memory(err);
    }
    client->events[client->n_events++] = event;
    return 0;
}

/* ---- messages ---- */

static int break_off(kj_client *client, int code)
{
    client->broken = true;
    return code;
}

static int check_usable(const kj_client *client, kj_error *err)
{
    if (client->broken)
        return kji_fail(err, KJ_EPROTO, "the connection was given up after a protocol error");
    return 0;
}

/* Reads what is there: 1, or 0 at the end of the stream. */
static int read_more(kj_client *client, kj_error *err)
{
    char bytes[READ_SIZE];
    ssize_t n = recv(client->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)))
        return 0;
    if (n < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot read from the run");
    kji_strbuf_add(&client->in, bytes, (size_t)n);
    return client->in.failed ? kji_fail_memory(err) : 1;
}

/* Parses the line of `size` bytes at the start of `in`, and drops it. */
static int parse_line(kj_client *client, size_t size, struct json_object **ret_message,
                      kj_error *err)
{
    struct json_object *message = NULL;
    int r = kji_json_parse(client->in.text, size, &message, err);
    kji_strbuf_consume(&client->in, size + 1);
    client->scanned = 0;
    if (r == KJ_EMEM)
        return r;
    if (r < 0)
        return break_off(client, kji_fail(err, KJ_EPROTO, "the run sent a line that is not JSON"));
    if (!json_object_is_type(message, json_type_object)) {
        json_object_put(message);
        return break_off(client, kji_fail(err, KJ_EPROTO, "the run sent JSON that is no object"));
    }
    *ret_message = message;
    return 1;
}

/* The next message of whatever kind: 1, 0 at the deadline, KJ_EENDED. */
static int read_message(kj_client *client, int64_t deadline, struct json_object **ret_message,
                        kj_error *err)
{
    for (;;) {
        char *start = client->in.text + client->scanned;
        char *newline = memchr(start, '\n', client->in.size - client->scanned);
        if (newline)
            return parse_line(client, (size_t)(newline - client->in.text), ret_message, err);
        client->scanned = client->in.size;
        if (client->in.size > LINE_LIMIT)
            return break_off(
                client,
                kji_fail(err, KJ_EPROTO, "the run sent a line of more than %d bytes", LINE_LIMIT));
        if (client->ended)
            return kji_fail(err, KJ_EENDED, "the run ended, or closed the connection");
        int r = wait_ready(client, POLLIN, deadline, err);
        if (r <= 0)
            return r;
        r = read_more(client, err);
        if (r < 0)
            return r;
        if (r == 0)
            client->ended = true;
    }
}

/*
 * Takes a message over. 1 with *ret_answer when it answers request `id`; 0 when it was something
 * else, which has been dealt with.
 */
static int sort_message(kj_client *client, struct json_object *message, int64_t id,
                        struct json_object **ret_answer, kj_error *err)
{
    int64_t answered;
    int r = 0;
    const char *method = kji_json_string(message, "method");
    if (method) {
        struct json_object *params;
        if (strcmp(method, "event") == 0 && json_object_object_get_ex(message, "params", &params) &&
            json_object_is_type(params, json_type_object))
            r = keep_event(client, json_object_get(params), err);
    } else if (kji_json_int(message, "id", &answered)) {
        if (id > 0 && answered == id) {
            *ret_answer = message;
            return 1;
        }
        if (answered > client->last_id)
            r = break_off(client,
                          kji_fail(err, KJ_EPROTO, "the run answered a request that was not made"));
    } else { /* an answer without an id: the run could not read what we sent */
        struct json_object *error = NULL;
        json_object_object_get_ex(message, "error", &error);
        const char *text = error ? kji_json_string(error, "message") : NULL;
        r = break_off(client,
                      kji_fail(err, KJ_EPROTO, "the run: %s", text ? text : "malformed answer"));
    }
    json_object_put(message);
    return r;
}

static int send_all(kj_client *client, const char *bytes, size_t size, int64_t deadline,
                    kj_error *err)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t n = send(client->fd, bytes + sent, size - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EPIPE || errno == ECONNRESET)
            return 0; /* reading tells what the peer said last, and that it is gone */
        if (errno != EAGAIN)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot write to the run");
        int r = wait_ready(client, POLLOUT, deadline, err);
        if (r == 0) {
            if (sent)
                client->broken = true; /* half a line cannot be taken back */
            return kji_fail(err, KJ_ETIMEOUT, "the run does not read what is sent to it");
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static int send_request(kj_client *client, const char *method, const char *params_json,
                        int64_t deadline, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *request = json_object_new_object();
    struct json_object *params = NULL;
    if (!request)
        return kji_fail_memory(err);
    if (params_json) {
        int r = kji_json_parse(params_json, strlen(params_json), &params, err);
        if (r < 0)
            return kji_fail_prefix(err, r, "params of %s", method);
        if (!json_object_is_type(params, json_type_object)) {
            json_object_put(params);
            return kji_fail(err, KJ_EARG, "params of %s: must be a JSON object", method);
        }
    }
    json_object_object_add(request, "jsonrpc", json_object_new_string("2.0"));
    json_object_object_add(request, "id", json_object_new_int64(client->last_id + 1));
    json_object_object_add(request, "method", json_object_new_string(method));
    if (params)
        json_object_object_add(request, "params", params);
    size_t size;
    const char *text = json_object_to_json_string_length(
        request, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &size);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf line = KJI_STRBUF_INIT;
    kji_strbuf_add(&line, text, text ? size : 0);
    kji_strbuf_putc(&line, '\n');
    if (!text || line.failed)
        return kji_fail_memory(err);
    if (line.size > REQUEST_LIMIT)
        return kji_fail(err, KJ_EARG, "a request of %zu bytes is too long; at most %d", line.size,
                        REQUEST_LIMIT);
    client->last_id++;
    return send_all(client, line.text, line.size, deadline, err);
}

/* ---- answers ---- */

/* JSON-RPC's own numbers, and ours as they are. */
static int code_of_answer(int64_t code)
{
    switch (code) {
    case -32601:
        return KJ_EUNSUPPORTED;
    case -32602:
        return KJ_EARG;
#define CASE(name, number, text) case number:
        KJ_ERROR_MAP(CASE)
#undef CASE
        return (int)code;
    default:
        return KJ_EPROTO;
    }
}

/* The member "result" of an answer as text, or the error it holds. */
static int open_answer(struct json_object *answer, struct json_object **ret_result, kj_error *err)
{
    struct json_object *error, *result;
    if (json_object_object_get_ex(answer, "error", &error)) {
        int64_t code = 0;
        const char *message = kji_json_string(error, "message");
        kji_json_int(error, "code", &code);
        return kji_fail(err, code_of_answer(code), "%s",
                        message ? message : "the run refused without a reason");
    }
    if (!json_object_object_get_ex(answer, "result", &result))
        return kji_fail(err, KJ_EPROTO, "the run sent an answer without a result");
    *ret_result = json_object_get(result);
    return 0;
}

static int call(kj_client *client, const char *method, const char *params_json, int64_t deadline,
                struct json_object **ret_result, kj_error *err)
{
    int r = check_usable(client, err);
    if (r >= 0)
        r = send_request(client, method, params_json, deadline, err);
    if (r < 0)
        return r;
    for (;;) {
        struct json_object *message, *answer;
        r = read_message(client, deadline, &message, err);
        if (r == 0)
            return kji_fail(err, KJ_ETIMEOUT, "the run did not answer '%s' in time", method);
        if (r < 0)
            return r;
        r = sort_message(client, message, client->last_id, &answer, err);
        if (r < 0)
            return r;
        if (r > 0) {
            r = open_answer(answer, ret_result, err);
            json_object_put(answer);
            return r;
        }
    }
}

static int hand_over(struct json_object *json, char **ret_json, kj_error *err)
{
    char *text = kji_json_text(json);
    if (!text)
        return kji_fail_memory(err);
    *ret_json = text;
    return 0;
}

int kj_client_call(kj_client *client, const char *method, const char *params_json, int timeout_ms,
                   char **ret_json, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *result = NULL;
    int r = call(client, method, params_json, deadline_in(timeout_ms), &result, err);
    return r < 0 ? r : hand_over(result, ret_json, err);
}

/* ---- opening ---- */

static int connect_socket(const char *dir, int *ret_fd, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return kji_fail_errno(err, errno == ENOENT ? KJ_ENORUN : KJ_EIO, errno,
                              "cannot open the run's folder %s", dir);
    KJI_CLEANUP(kji_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a socket");
    /* A full backlog would let connect(2) wait for ever. */
    struct timeval limit = {.tv_sec = HELLO_TIMEOUT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/sock", dir_fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return kji_fail(err, KJ_ENORUN, "nobody listens in %s: the run has ended", dir);
        if (errno == EAGAIN)
            return kji_fail(err, KJ_ETIMEOUT, "the run in %s does not take connections", dir);
        return kji_fail_errno(err, errno == EACCES ? KJ_EPERM : KJ_EIO, errno,
                              "cannot connect to %s/sock", dir);
    }
    if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot set up the connection");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int say_hello(kj_client *client, kj_error *err)
{
    char params[100];
    snprintf(params, sizeof params, "{\"protocol\":%d,\"client\":\"kajitori %s\"}", PROTOCOL,
             kj_version());
    KJI_CLEANUP(kji_json_putp) struct json_object *hello = NULL;
    int r = call(client, "hello", params, deadline_in(HELLO_TIMEOUT_MS), &hello, err);
    if (r == KJ_EENDED)
        return kji_fail(err, KJ_ENORUN, "the run ended while it was being connected to");
    if (r < 0)
        return r;
    int64_t protocol = 0;
    kji_json_int(hello, "protocol", &protocol);
    if (protocol == PROTOCOL)
        return 0;
    const char *version = kji_json_string(hello, "version");
    return kji_fail(err, KJ_EPROTO,
                    "the run speaks protocol %lld (kajitori %s), this side protocol %d (kajitori "
                    "%s): use the same version on both",
                    (long long)protocol, version ? version : "?", PROTOCOL, kj_version());
}

int kj_client_open(const char *dir, kj_client **ret_client, kj_error *err)
{
    kj_client *client = calloc(1, sizeof *client);
    if (!client)
        return kji_fail_memory(err);
    client->fd = -1;
    client->in = (kji_strbuf)KJI_STRBUF_INIT;
    int r = connect_socket(dir, &client->fd, err);
    if (r >= 0)
        r = say_hello(client, err);
    if (r < 0) {
        kj_client_close(client);
        return r;
    }
    *ret_client = client;
    return 0;
}

void kj_client_close(kj_client *client)
{
    if (!client)
        return;
    if (client->fd >= 0)
        close(client->fd);
    while (count_events(client) > 0)
        json_object_put(take_event(client));
    free(client->events);
    kji_strbuf_done(&client->in);
    free(client);
}

int kj_client_get_fd(const kj_client *client)
{
    return client->fd;
}

/* ---- events ---- */

/* Reads until an event is kept: 1, 0 at the deadline. */
static int wait_event(kj_client *client, int64_t deadline, kj_error *err)
{
    while (count_events(client) == 0) {
        struct json_object *message, *answer;
        int r = read_message(client, deadline, &message, err);
        if (r > 0) /* no request is open, so no id fits */
            r = sort_message(client, message, 0, &answer, err);
        else
            return r;
        if (r < 0)
            return r;
    }
    return 1;
}

int kj_client_next_event(kj_client *client, int timeout_ms, char **ret_json, kj_error *err)
{
    if (client->lost_events > 0) {
        char *text = kji_format("{\"event\":\"gap\",\"lost\":%llu}",
                                (unsigned long long)client->lost_events);
        if (!text)
            return kji_fail_memory(err);
        client->lost_events = 0;
        *ret_json = text;
        return 1;
    }
    int r = count_events(client) > 0 ? 1 : check_usable(client, err);
    if (r == 0)
        r = wait_event(client, deadline_in(timeout_ms), err);
    if (r <= 0)
        return r;
    KJI_CLEANUP(kji_json_putp) struct json_object *event = take_event(client);
    r = hand_over(event, ret_json, err);
    return r < 0 ? r : 1;
}

/* ---- commands ---- */

/* How far a command has come, as enum kj_wait; -1 before it is accepted. */
static int reached(const char *state)
{
    if (strcmp(state, "done") == 0)
        return KJ_WAIT_DONE;
    if (strcmp(state, "applied") == 0)
        return KJ_WAIT_APPLIED;
    if (strcmp(state, "accepted") == 0 || strcmp(state, "scheduled") == 0)
        return KJ_WAIT_ACCEPTED;
    return -1;
}

/* Whether this record ends the wait: 1 yes, 0 not yet, or how the command failed. */
static int judge_record(struct json_object *record, int wait, kj_error *err)
{
    const char *state = kji_json_string(record, "state");
    if (!state)
        return kji_fail(err, KJ_EPROTO, "the run sent a record without a state");
    const char *why = kji_json_string(record, "error");
    if (strcmp(state, "rejected") == 0)
        return kji_fail(err, KJ_EREJECTED, "%s", why ? why : "rejected without a reason");
    if (strcmp(state, "failed") == 0)
        return kji_fail(err, KJ_EFAILED, "%s", why ? why : "failed without a reason");
    if (strcmp(state, "expired") == 0)
        return kji_fail(err, KJ_EENDED, "%s", why ? why : "the run ended before it was applied");
    return reached(state) >= wait;
}

/* Whether the event is a record of command `seq`. */
static bool is_record_of(struct json_object *event, int64_t seq)
{
    int64_t event_seq;
    const char *kind = kji_json_string(event, "event");
    return kind && strcmp(kind, "command") == 0 && kji_json_int(event, "seq", &event_seq) &&
           event_seq == seq;
}

/* Follows command `seq` through the events, from number *seen of the queue on, until it has come
 * far enough: 1, 0 at the deadline. */
static int follow_command(kj_client *client, int64_t seq, int wait, int64_t deadline,
                          struct json_object **record, kj_error *err)
{
    size_t seen = 0;
    for (;;) {
        for (; seen < count_events(client); seen++) {
            struct json_object *event = client->events[client->first_event + seen];
            if (!is_record_of(event, seq))
                continue;
            json_object_put(*record);
            *record = json_object_get(event);
            int r = judge_record(event, wait, err);
            if (r != 0)
                return r;
        }
        struct json_object *message, *answer;
        int r = read_message(client, deadline, &message, err);
        if (r <= 0)
            return r;
        size_t before = count_events(client);
        r = sort_message(client, message, 0, &answer, err);
        if (r < 0)
            return r;
        if (before == EVENT_LIMIT) /* the oldest was dropped for the new one */
            seen = count_events(client) - 1;
    }
}

static int fail_waiting(int r, struct json_object *record, int64_t seq, kj_error *err)
{
    const char *state = kji_json_string(record, "state");
    if (r == 0)
        return kji_fail(err, KJ_ETIMEOUT,
                        "command %lld is %s and not applied yet; it stays accepted and may still "
                        "be applied",
                        (long long)seq, state ? state : "accepted");
    if (r == KJ_EENDED && reached(state ? state : "") >= 0)
        return kji_fail(err, KJ_EENDED, "the run ended before command %lld went further than '%s'",
                        (long long)seq, state);
    return r;
}

/* A record as such: one that came as an event has the member "event" more. */
static int hand_over_record(struct json_object *record, char **ret_json, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *plain = json_object_new_object();
    if (!plain)
        return kji_fail_memory(err);
    json_object_object_foreach(record, key, value)
    {
        if (strcmp(key, "event") != 0)
            json_object_object_add(plain, key, json_object_get(value));
    }
    return hand_over(plain, ret_json, err);
}

int kj_client_command(kj_client *client, const char *params_json, int wait, int timeout_ms,
                      char **ret_json, kj_error *err)
{
    if (wait < KJ_WAIT_ACCEPTED || wait > KJ_WAIT_DONE)
        return kji_fail(err, KJ_EARG, "wait = %d: not one of enum kj_wait", wait);
    int64_t deadline = deadline_in(timeout_ms);
    KJI_CLEANUP(kji_json_putp) struct json_object *record = NULL;
    int r = call(client, "command", params_json, deadline, &record, err);
    if (r < 0)
        return r;
    r = judge_record(record, wait, err);
    int64_t seq;
    if (r == 0) {
        if (!kji_json_int(record, "seq", &seq))
            return kji_fail(err, KJ_EPROTO, "the run sent a record without a number");
        r = follow_command(client, seq, wait, deadline, &record, err);
        if (r == 0 || r == KJ_EENDED)
            r = fail_waiting(r, record, seq, err);
    }
    return r < 0 ? r : hand_over_record(record, ret_json, err);
}
