/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that arrives goes through kji_wire_read(), which hands over one JSON object at a time.
 * Every wait is one poll(2) against a monotonic deadline. A peer that breaks the protocol ends the
 * connection with KJ_EPROTO; one that goes away, with KJ_EENDED, after everything it still said has
 * been read.
 */
#include "client-wire.h"

#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "rpc.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    REQUEST_LIMIT = KJI_RPC_REQUEST_MAX, /* bytes of one message to the run */
    LINE_LIMIT = KJI_RPC_ANSWER_MAX,     /* bytes of one message from the run */
    READ_SIZE = 16384,
    LOOK_MS = 100 /* how long an interruptible wait goes without a look */
};

int64_t kji_wire_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : kji_monotonic_ms() + timeout_ms;
}

bool kji_wire_is_late(int64_t deadline)
{
    return deadline != INT64_MAX && kji_monotonic_ms() > deadline;
}

/* Waits for `events` of the socket: 1, 0 at the deadline, or an error. */
static int wait_ready(kj_client *client, short events, int64_t deadline, kj_error *err)
{
    /* A signal handler may also have run just before poll(2), which then knows nothing of it. */
    const int longest_ms = client->interrupt ? LOOK_MS : INT_MAX;
    for (;;) {
        int64_t left = deadline == INT64_MAX ? INT64_MAX : deadline - kji_monotonic_ms();
        int wait_ms = left < 0 ? 0 : left > longest_ms ? longest_ms : (int)left;
        struct pollfd poll_fd = {.fd = client->fd, .events = events};
        int r = poll(&poll_fd, 1, wait_ms);
        if (r > 0)
            return 1;
        if (r < 0 && errno != EINTR)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot wait for the run");
        if (r == 0 && left <= longest_ms)
            return 0;
        if (client->interrupt && client->interrupt(client->interrupt_userdata))
            return kji_fail(err, KJ_EINTERRUPTED, "interrupted while waiting for the run");
    }
}

int kji_wire_wait(kj_client *client, int64_t deadline, kj_error *err)
{
    return wait_ready(client, POLLIN, deadline, err);
}

size_t kji_wire_count_events(const kj_client *client)
{
    return client->n_events - client->first_event;
}

struct json_object *kji_wire_take_event(kj_client *client)
{
    kji_wire_event event = client->events[client->first_event++];
    client->event_bytes -= event.size;
    if (client->first_event == client->n_events)
        client->first_event = client->n_events = 0;
    return event.json;
}

static bool has_room_for_event(const kj_client *client)
{
    return kji_wire_count_events(client) == 0 ||
           (kji_wire_count_events(client) < KJI_WIRE_EVENT_LIMIT &&
            client->event_bytes + client->line_size <= KJI_WIRE_EVENT_BYTES);
}

/* Takes `event` over. The oldest go when there are too many. */
static int keep_event(kj_client *client, struct json_object *event, kj_error *err)
{
    while (!has_room_for_event(client)) {
        json_object_put(kji_wire_take_event(client));
        client->lost_events++;
    }
    if (client->first_event > KJI_WIRE_EVENT_LIMIT) {
        memmove(client->events, client->events + client->first_event,
                kji_wire_count_events(client) * sizeof *client->events);
        client->n_events = kji_wire_count_events(client);
        client->first_event = 0;
    }
    if (!kji_reserve(&client->events, &client->events_capacity, client->n_events + 1,
                     sizeof *client->events)) {
        json_object_put(event);
        return kji_fail_memory(err);
    }
    client->events[client->n_events++] = (kji_wire_event){event, client->line_size};
    client->event_bytes += client->line_size;
    return 0;
}

static int break_off(kj_client *client, int code)
{
    client->broken = true;
    return code;
}

int kji_wire_check(const kj_client *client, kj_error *err)
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

static int socket_receive(kj_client *client, int64_t deadline, kj_error *err)
{
    int r = wait_ready(client, POLLIN, deadline, err);
    if (r <= 0)
        return r;
    r = read_more(client, err);
    client->ended = r == 0;
    return r < 0 ? r : 1;
}

/* Parses the line of `size` bytes at the start of `in`, and drops it. */
static int parse_line(kj_client *client, size_t size, struct json_object **ret_message,
                      kj_error *err)
{
    struct json_object *message = NULL;
    int r = kji_json_parse(client->in.text, size, &message, err);
    kji_strbuf_consume(&client->in, size + 1);
    client->scanned = 0;
    client->line_size = size;
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

int kji_wire_read(kj_client *client, int64_t deadline, struct json_object **ret_message,
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
        int r = client->transport->receive(client, deadline, err);
        if (r <= 0)
            return r;
    }
}

int kji_wire_sort(kj_client *client, struct json_object *message, int64_t id,
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

static int socket_send(kj_client *client, const char *bytes, size_t size, int64_t deadline,
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
        if (r <= 0 && sent)
            client->broken = true; /* half a line cannot be taken back */
        if (r == 0)
            return kji_fail(err, KJ_ETIMEOUT, "the run does not read what is sent to it");
        if (r < 0)
            return r;
    }
    return 0;
}

static void socket_close(kj_client *client)
{
    (void)client; /* client->fd is all there is */
}

const kji_transport kji_transport_socket = {
    .send = socket_send, .receive = socket_receive, .close = socket_close};

int kji_wire_request(kj_client *client, const char *method, const char *params_json,
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
    return client->transport->send(client, line.text, line.size, deadline, err);
}
