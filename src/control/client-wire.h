/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a run as messages: what client.c makes calls, events and commands of. */
#ifndef KJI_CLIENT_WIRE_H
#define KJI_CLIENT_WIRE_H

#include "strbuf.h"

#include <kajitori/client.h>

#include <json-c/json.h>

/* Events kept while nobody asks for them, and bytes of them as they came. */
enum { KJI_WIRE_EVENT_LIMIT = 4096, KJI_WIRE_EVENT_BYTES = 16 << 20 };

typedef struct kji_wire_event {
    struct json_object *json;
    size_t size; /* bytes of its line */
} kji_wire_event;

/* What carries the messages, one a line: a socket (here) or a mailbox (client-mailbox.c). */
typedef struct kji_transport {
    /* A peer that is gone is no error. */
    int (*send)(kj_client *client, const char *line, size_t size, int64_t deadline, kj_error *err);
    /* Waits for more in client->in, or for the end, which it notes in client->ended: 1, 0 at the
     * deadline. */
    int (*receive)(kj_client *client, int64_t deadline, kj_error *err);
    /* The newest request was not answered in time: true when it is taken back, and will never be
     * carried out. NULL: it cannot be. */
    bool (*take_back)(kj_client *client);
    void (*close)(kj_client *client);
} kji_transport;

extern const kji_transport kji_transport_socket, kji_transport_mailbox;

typedef struct kji_mail_way kji_mail_way;

struct kj_client {
    const kji_transport *transport; /* NULL: not connected */
    kji_mail_way *way;              /* of a mailbox */
    int fd;                         /* readable when there may be something */
    char *version;                  /* of the run's library; NULL: not said */
    bool ended;                     /* the peer is gone, and what it said has been read */
    bool broken;                    /* the stream cannot be understood any more */
    bool was_taken_back;            /* the newest request */
    int64_t last_id;
    kji_strbuf in;
    size_t scanned;   /* bytes of `in` known to hold no newline */
    size_t line_size; /* of the newest message */
    kji_wire_event *events;
    size_t event_bytes; /* of those kept */
    size_t n_events, events_capacity, first_event;
    uint64_t lost_events;
    int (*interrupt)(void *userdata); /* NULL: waits are not interrupted */
    void *interrupt_userdata;
};

/* Says hello in protocol `highest`, and again in the run's own when that is lower and known here.
 */
int kji_client_hello(kj_client *client, int highest, int64_t deadline, kj_error *err);

/* The moment that is timeout_ms away; INT64_MAX, for ever, when it is negative. */
int64_t kji_wire_deadline(int timeout_ms);

/* Whether the deadline has passed: a peer that never stops talking must not make a wait endless. */
bool kji_wire_is_late(int64_t deadline);

/* Events that are kept: client->events from number client->first_event on. */
size_t kji_wire_count_events(const kj_client *client);
struct json_object *kji_wire_take_event(kj_client *client); /* the oldest; there must be one */

/* Waits until client->fd is readable: 1, 0 at the deadline. KJ_EINTERRUPTED. */
int kji_wire_wait(kj_client *client, int64_t deadline, kj_error *err);

/* KJ_EPROTO when the connection was given up. */
int kji_wire_check(const kj_client *client, kj_error *err);

/* Sends a request, with the number client->last_id afterwards. A peer that is gone is no error
 * here: reading tells what it said last. */
int kji_wire_request(kj_client *client, const char *method, const char *params_json,
                     int64_t deadline, kj_error *err);

/* The next message of whatever kind: 1, 0 at the deadline, KJ_EENDED. */
int kji_wire_read(kj_client *client, int64_t deadline, struct json_object **ret_message,
                  kj_error *err);

/*
 * Takes a message over. 1 with *ret_answer when it answers request `id` (> 0; 0: no request is
 * open); 0 when it was something else, which has been dealt with: events are kept, answers to
 * requests that were given up dropped.
 */
int kji_wire_sort(kj_client *client, struct json_object *message, int64_t id,
                  struct json_object **ret_answer, kj_error *err);

#endif
