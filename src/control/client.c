/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the channel: one connection, one thread, requests in order (docs/protocol.md).
 * A command is one request; what becomes of it afterwards is read from the events that follow.
 */
#include "client-mailbox.h"
#include "errors.h"
#include "json.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { LOWEST_PROTOCOL = 1, PROTOCOL = 1, HELLO_TIMEOUT_MS = 5000 };

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

/* What the run does not know may be known to another version of it. */
static int fail_as_told(const kj_client *client, int64_t code, const char *message, kj_error *err)
{
    bool is_unknown =
        strncmp(message, "no verb ", 8) == 0 || strncmp(message, "no method ", 10) == 0;
    int own_code = code_of_answer(code);
    if (is_unknown && client->version && strcmp(client->version, kj_version()) != 0)
        return kji_fail(err, own_code, "%s (the run is kajitori %s, this side kajitori %s)",
                        message, client->version, kj_version());
    return kji_fail(err, own_code, "%s", message);
}

/* The member "result" of an answer as text, or the error it holds. */
static int open_answer(const kj_client *client, struct json_object *answer,
                       struct json_object **ret_result, kj_error *err)
{
    struct json_object *error, *result;
    if (json_object_object_get_ex(answer, "error", &error)) {
        int64_t code = 0;
        const char *message = kji_json_string(error, "message");
        kji_json_int(error, "code", &code);
        return fail_as_told(client, code, message ? message : "the run refused without a reason",
                            err);
    }
    if (!json_object_object_get_ex(answer, "result", &result))
        return kji_fail(err, KJ_EPROTO, "the run sent an answer without a result");
    *ret_result = json_object_get(result);
    return 0;
}

static int fail_unanswered(kj_client *client, const char *method, kj_error *err)
{
    client->was_taken_back = client->transport->take_back && client->transport->take_back(client);
    if (client->was_taken_back)
        return kji_fail(err, KJ_ETIMEOUT,
                        "the run did not look into its mailbox in time; '%s' was taken back",
                        method);
    return kji_fail(err, KJ_ETIMEOUT, "the run did not answer '%s' in time", method);
}

/* One request, and the whole message that answers it. */
static int ask(kj_client *client, const char *method, const char *params_json, int64_t deadline,
               struct json_object **ret_answer, kj_error *err)
{
    int r = kji_wire_check(client, err);
    client->was_taken_back = false;
    if (r >= 0 && client->way && strcmp(method, "subscribe") == 0)
        r = kji_fail(
            err, KJ_EUNSUPPORTED,
            "this run is reached by a mailbox, which brings no events: ask for its status, "
            "or for its journal");
    if (r >= 0)
        r = kji_wire_request(client, method, params_json, deadline, err);
    if (r < 0)
        return r;
    for (;;) {
        struct json_object *message;
        r = kji_wire_read(client, deadline, &message, err);
        if (r == 0)
            return fail_unanswered(client, method, err);
        if (r < 0)
            return r;
        r = kji_wire_sort(client, message, client->last_id, ret_answer, err);
        if (r != 0)
            return r;
        if (kji_wire_is_late(deadline))
            return kji_fail(err, KJ_ETIMEOUT, "the run did not answer '%s' in time", method);
    }
}

static int call(kj_client *client, const char *method, const char *params_json, int64_t deadline,
                struct json_object **ret_result, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = NULL;
    int r = ask(client, method, params_json, deadline, &answer, err);
    return r < 0 ? r : open_answer(client, answer, ret_result, err);
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
    int r = call(client, method, params_json, kji_wire_deadline(timeout_ms), &result, err);
    return r < 0 ? r : hand_over(result, ret_json, err);
}

static int fail_connect(const char *dir, int dir_fd, const char *name, kj_error *err)
{
    int errnum = errno;
    if (errnum == ENOENT && strcmp(name, "sock") != 0 && faccessat(dir_fd, "sock", F_OK, 0) == 0)
        return kji_fail(
            err, KJ_EUNSUPPORTED,
            "the run in %s has no socket for those who only look: its kajitori is older", dir);
    if (errnum == ENOENT || errnum == ECONNREFUSED)
        return kji_fail(err, KJ_ENORUN, "nobody listens in %s: the run has ended", dir);
    if (errnum == EAGAIN)
        return kji_fail(err, KJ_ETIMEOUT, "the run in %s does not take connections", dir);
    return kji_fail_errno(err, errnum == EACCES ? KJ_EPERM : KJ_EIO, errnum,
                          "cannot connect to %s/%s", dir, name);
}

/* Whoever listens is to be our own user, or root; root may talk to anybody's runs. */
static int check_peer(int fd, const char *dir, kj_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "the kernel does not say whose run is in %s",
                              dir);
    if (geteuid() != 0 && peer.uid != geteuid() && peer.uid != 0)
        return kji_fail(err, KJ_EPERM, "the run in %s belongs to another user (%ld)", dir,
                        (long)peer.uid);
    return 0;
}

static int connect_socket(const char *dir, const char *name, int timeout_ms, int *ret_fd,
                          kj_error *err)
{
    KJI_CLEANUP(kji_closep) int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return kji_fail_errno(err, errno == ENOENT ? KJ_ENORUN : KJ_EIO, errno,
                              "cannot open the run's folder %s", dir);
    KJI_CLEANUP(kji_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a socket");
    /* A full backlog would let connect(2) wait for ever. */
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir_fd, name);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return fail_connect(dir, dir_fd, name, err);
    int r = check_peer(fd, dir, err);
    if (r < 0)
        return r;
    if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot set up the connection");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int fail_hello(int r, kj_error *err)
{
    if (r == KJ_EENDED)
        return kji_fail(err, KJ_ENORUN, "the run ended while it was being connected to");
    if (r == KJ_ETIMEOUT)
        return kji_fail(err, KJ_ETIMEOUT, "the run does not answer (is its process stopped?)");
    return r;
}

static int fail_protocol(int64_t protocol, const char *version, kj_error *err)
{
    return kji_fail(err, KJ_EPROTO,
                    "the run speaks protocol %lld (kajitori %s), this side protocol %d (kajitori "
                    "%s): use the same version on both",
                    (long long)protocol, version ? version : "?", PROTOCOL, kj_version());
}

/* The protocol of an answer to hello, good or bad; -1 when it says none. Remembers the version. */
static int64_t read_hello(kj_client *client, struct json_object *answer)
{
    struct json_object *body = NULL, *error;
    int64_t protocol = -1;
    if (json_object_object_get_ex(answer, "error", &error))
        json_object_object_get_ex(error, "data", &body);
    else
        json_object_object_get_ex(answer, "result", &body);
    kji_json_int(body, "protocol", &protocol);
    const char *version = kji_json_string(body, "version");
    char *copy = version ? strdup(version) : NULL;
    if (copy) {
        free(client->version);
        client->version = copy;
    }
    return protocol;
}

int kji_client_hello(kj_client *client, int highest, int64_t deadline, kj_error *err)
{
    for (int spoken = highest;;) {
        char params[100];
        snprintf(params, sizeof params, "{\"protocol\":%d,\"client\":\"kajitori %s\"}", spoken,
                 kj_version());
        KJI_CLEANUP(kji_json_putp) struct json_object *answer = NULL, *result = NULL;
        int r = ask(client, "hello", params, deadline, &answer, err);
        if (r < 0)
            return fail_hello(r, err);
        int64_t theirs = read_hello(client, answer);
        r = open_answer(client, answer, &result, err);
        if (r >= 0)
            return theirs == spoken ? 0 : fail_protocol(theirs, client->version, err);
        if (r != KJ_EPROTO || theirs < 0)
            return r;
        if (theirs < LOWEST_PROTOCOL || theirs >= spoken)
            return fail_protocol(theirs, client->version, err);
        spoken = (int)theirs;
    }
}

int kj_client_open(const char *dir, kj_client **ret_client, kj_error *err)
{
    return kj_client_open_with(dir, NULL, ret_client, err);
}

int kj_client_open_within(const char *dir, int timeout_ms, kj_client **ret_client, kj_error *err)
{
    kj_client_options options = KJ_CLIENT_OPTIONS_INIT;
    options.timeout_ms = timeout_ms < 1 ? 1 : timeout_ms; /* to the kernel a limit of 0 is none */
    return kj_client_open_with(dir, &options, ret_client, err);
}

static int check_options(const kj_client_options *options, kj_error *err)
{
    int r = kji_check_size(options->size, sizeof *options, "kj_client_options", err);
    if (r < 0)
        return r;
    if (options->flags & ~(uint32_t)KJ_CLIENT_READ_ONLY)
        return kji_fail(err, KJ_EARG, "flags 0x%x: unknown bits", options->flags);
    if (options->timeout_ms < 0)
        return kji_fail(err, KJ_EARG, "timeout_ms = %d: 1 to %d, or 0 for %d", options->timeout_ms,
                        HELLO_TIMEOUT_MS, HELLO_TIMEOUT_MS);
    return 0;
}

int kj_client_open_with(const char *dir, const kj_client_options *options, kj_client **ret_client,
                        kj_error *err)
{
    int r = options ? check_options(options, err) : 0;
    if (r < 0)
        return r;
    bool only_looks = options && options->flags & KJ_CLIENT_READ_ONLY;
    int timeout_ms = options && options->timeout_ms ? options->timeout_ms : HELLO_TIMEOUT_MS;
    if (timeout_ms > HELLO_TIMEOUT_MS)
        timeout_ms = HELLO_TIMEOUT_MS;
    int64_t deadline = kji_wire_deadline(timeout_ms);
    kj_client *client = calloc(1, sizeof *client);
    if (!client)
        return kji_fail_memory(err);
    client->fd = -1;
    client->in = (kji_strbuf)KJI_STRBUF_INIT;
    if (kji_mailbox_is_way_to(dir) && only_looks) {
        r = kji_fail(err, KJ_EUNSUPPORTED,
                     "the run in %s is reached by a mailbox, which has no read-only door", dir);
    } else if (kji_mailbox_is_way_to(dir)) {
        r = kji_mailbox_connect(client, dir, PROTOCOL, err);
    } else {
        client->transport = &kji_transport_socket;
        r = connect_socket(dir, only_looks ? "monitor" : "sock", timeout_ms, &client->fd, err);
        if (r >= 0)
            r = kji_client_hello(client, PROTOCOL, deadline, err);
    }
    if (r < 0) {
        kj_client_close(client);
        return r;
    }
    *ret_client = client;
    return 0;
}

const char *kj_client_get_version(const kj_client *client)
{
    return client->version ? client->version : "";
}

void kj_client_close(kj_client *client)
{
    if (!client)
        return;
    if (client->transport)
        client->transport->close(client);
    if (client->fd >= 0)
        close(client->fd);
    while (kji_wire_count_events(client) > 0)
        json_object_put(kji_wire_take_event(client));
    free(client->events);
    kji_strbuf_done(&client->in);
    free(client->version);
    free(client);
}

int kj_client_get_fd(const kj_client *client)
{
    return client->fd;
}

void kj_client_set_interrupt(kj_client *client, int (*look)(void *userdata), void *userdata)
{
    client->interrupt = look;
    client->interrupt_userdata = userdata;
}

/* Reads until an event is kept: 1, 0 at the deadline. */
static int wait_event(kj_client *client, int64_t deadline, kj_error *err)
{
    while (kji_wire_count_events(client) == 0) {
        struct json_object *message, *answer;
        int r = kji_wire_read(client, deadline, &message, err);
        if (r > 0) /* no request is open, so no id fits */
            r = kji_wire_sort(client, message, 0, &answer, err);
        else
            return r;
        if (r < 0)
            return r;
        if (kji_wire_count_events(client) == 0 && kji_wire_is_late(deadline))
            return 0;
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
    int r = kji_wire_count_events(client) > 0 ? 1 : kji_wire_check(client, err);
    if (r == 0)
        r = wait_event(client, kji_wire_deadline(timeout_ms), err);
    if (r <= 0)
        return r;
    KJI_CLEANUP(kji_json_putp) struct json_object *event = kji_wire_take_event(client);
    r = hand_over(event, ret_json, err);
    return r < 0 ? r : 1;
}

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
    for (bool has_looked = false;; has_looked = true) {
        for (; seen < kji_wire_count_events(client); seen++) {
            struct json_object *event = client->events[client->first_event + seen].json;
            if (!is_record_of(event, seq))
                continue;
            json_object_put(*record);
            *record = json_object_get(event);
            int r = judge_record(event, wait, err);
            if (r != 0)
                return r;
        }
        struct json_object *message, *answer;
        if (has_looked && kji_wire_is_late(deadline))
            return 0;
        int r = kji_wire_read(client, deadline, &message, err);
        if (r <= 0)
            return r;
        uint64_t lost = client->lost_events;
        r = kji_wire_sort(client, message, 0, &answer, err);
        if (r < 0)
            return r;
        seen -= client->lost_events - lost; /* the oldest were dropped for the new one */
    }
}

static int fail_waiting(int r, struct json_object *record, int64_t seq, kj_error *err)
{
    const char *state = kji_json_string(record, "state");
    if (r == 0 && reached(state ? state : "") >= KJ_WAIT_APPLIED)
        return kji_fail(err, KJ_ETIMEOUT, "command %lld was begun and is not done yet; it goes on",
                        (long long)seq);
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
    int64_t deadline = kji_wire_deadline(timeout_ms);
    KJI_CLEANUP(kji_json_putp) struct json_object *record = NULL;
    int r = call(client, "command", params_json, deadline, &record, err);
    if (r == KJ_ETIMEOUT && !client->was_taken_back)
        return kji_fail(err, r,
                        "the run did not answer in time; the command may still be carried out");
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
