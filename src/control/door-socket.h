/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unix socket as a door, and its connections: `sock`, and `monitor` for those who only look.
 * Nothing here ever waits for a client: what one does not read in time is dropped and counted, a
 * client that floods is not read from.
 */
#ifndef KJI_DOOR_SOCKET_H
#define KJI_DOOR_SOCKET_H

#include "feed.h"

#include <kajitori/run.h>

#include <stdbool.h>

enum { KJI_CLIENTS_MAX = 64, KJI_INTEREST_MAX = 1024 };

typedef struct kji_client {
    int fd;           /* -1: free, or the asker of a mailbox's request */
    const char *door; /* as in the journal */
    int64_t uid;
    int64_t pid;
    bool only_looks; /* came by `monitor` */
    bool is_reader;  /* wants events, and is counted in the feed */
    bool is_metric_reader;
    bool is_from_before; /* its cursor is of an earlier run, and this is to be said */
    bool is_ready;       /* something came from it, or it takes more */
    bool has_ended;      /* it sends no more; what it sent is still answered */
    bool is_closing;     /* once everything is written */
    bool is_broken;
    unsigned wanted; /* kinds of events subscribed to, by bit */
    unsigned epoll_events;
    kji_feed_cursor cursor;
    int64_t *interest; /* seqs of its own commands that are under way */
    size_t n_interest;
    size_t interest_capacity;
    kji_strbuf in;
    kji_strbuf out;
} kji_client;

typedef struct kji_socket_door {
    const char *name;       /* in the run's folder */
    bool only_looks;        /* its clients may ask, and no more */
    uint64_t first_source;  /* epoll's data for the first client */
    int fd;                 /* listening; -1: closed */
    int spare_fd;           /* given up for a moment when descriptors run out */
    int64_t rests_until_ms; /* 0: callers are looked for */
    uint64_t order;         /* of the feed, when it was last looked at */
    bool has_more;          /* a client's turn was over before its events were */
    size_t n_used;          /* no client at this index or above */
    kji_client client[KJI_CLIENTS_MAX];
} kji_socket_door;

void kji_socket_init(kji_socket_door *door, const char *name, bool only_looks,
                     uint64_t first_source);

/* Listens at the name in the folder. `dir` is its path. */
int kji_socket_open(kji_socket_door *door, int dir_fd, const char *dir, kj_error *err);

/* Brings all clients what is due to them, as far as they take it at once. The helper has ended. */
void kji_socket_tell(kji_socket_door *door, kj_run *run);
/* Brings all clients what is still due to them, as far as they take it within 0.2 s, and closes. */
void kji_socket_done(kji_socket_door *door, kj_run *run);
/* Closes, and no more: for a door that was not served yet, and for a forked child. */
void kji_socket_close_fds(kji_socket_door *door);

/* Helper thread: */
/* False: a caller waits and cannot be taken, and epoll would report him for ever. */
bool kji_socket_accept(kji_socket_door *door, int epoll_fd);
void kji_socket_serve(kji_socket_door *door, size_t index, unsigned epoll_events);
/* Sends events and what is left of answers; forgets connections that have ended. */
void kji_socket_push(kji_socket_door *door, kj_run *run, int epoll_fd);

/* methods.c: carries out one request line of a client; the answer goes to client->out. Lock held.
 */
void kji_client_request(kj_run *run, kji_client *client, const char *text, size_t size);
/* From now on the client gets the records of command `seq`. */
void kji_client_follow(kji_client *client, int64_t seq);

#endif
