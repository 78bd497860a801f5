/* SPDX-License-Identifier: Apache-2.0 */
#include "door-socket.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "mem.h"
#include "rpc.h"
#include "run-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
    BACKLOG = 512,              /* callers that wait while the helper is busy */
    OUT_FOR_EVENTS = 65536,     /* with more than this unread, events wait in the feed */
    OUT_FOR_REQUESTS = 1 << 20, /* with more than this unread, requests are not read */
    ROUNDS = 4,                 /* of events, for one client before the other doors' turn */
    LAST_WAIT_MS = 200
};

void kji_socket_init(kji_socket_door *door, const char *name, bool only_looks,
                     uint64_t first_source)
{
    *door = (kji_socket_door){.name = name,
                              .only_looks = only_looks,
                              .first_source = first_source,
                              .fd = -1,
                              .spare_fd = -1};
    for (size_t k = 0; k < KJI_CLIENTS_MAX; k++)
        door->client[k].fd = -1;
}

/* The kernel takes paths of at most 107 bytes; a longer one goes by the number of its folder. */
static int socket_path(const char *name, int dir_fd, const char *dir, struct sockaddr_un *address,
                       kj_error *err)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    enum { ROOM = sizeof address->sun_path };
    int n = snprintf(address->sun_path, ROOM, "%s/%s", dir, name);
    if (n >= ROOM)
        n = snprintf(address->sun_path, ROOM, "/proc/self/fd/%d/%s", dir_fd, name);
    return n > 0 ? 0 : kji_fail(err, KJ_EIO, "cannot name the socket in %s", dir);
}

int kji_socket_open(kji_socket_door *door, int dir_fd, const char *dir, kj_error *err)
{
    struct sockaddr_un address;
    int r = socket_path(door->name, dir_fd, dir, &address, err);
    if (r < 0)
        return r;
    kji_forks_hold();
    door->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    kji_forks_release();
    bool is_bound =
        door->fd >= 0 && bind(door->fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (!is_bound && kji_is_refusal(errno)) {
        r = kji_fail_errno(err, KJ_EUNSUPPORTED, errno, "the file system refuses sockets");
        kji_closep(&door->fd);
        unlinkat(dir_fd, door->name, 0); /* some make a regular file all the same */
        return r;
    }
    if (!is_bound || fchmodat(dir_fd, door->name, 0600, 0) < 0 || listen(door->fd, BACKLOG) < 0) {
        r = kji_fail_errno(err, KJ_EIO, errno, "cannot make the socket %s/%s", dir, door->name);
        kji_closep(&door->fd);
    }
    door->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return r;
}

/* Brings the feed's numbers of readers up to date. Lock held. */
static void count_reader(kji_client *client, kj_run *run, unsigned wanted)
{
    bool reads = wanted || client->n_interest;
    bool reads_metrics = wanted & 1u << KJI_FEED_METRIC;
    run->feed.n_readers += reads;
    run->feed.n_readers -= client->is_reader;
    run->feed.n_metric_readers += reads_metrics;
    run->feed.n_metric_readers -= client->is_metric_reader;
    client->is_reader = reads;
    client->is_metric_reader = reads_metrics;
}

static void client_done(kji_client *client, kj_run *run)
{
    if (client->fd < 0)
        return;
    kji_forks_close(&client->fd);
    client->n_interest = 0;
    count_reader(client, run, 0);
    kji_strbuf_done(&client->in);
    kji_strbuf_done(&client->out);
    free(client->interest);
    *client = (kji_client){.fd = -1};
}

void kji_client_follow(kji_client *client, int64_t seq)
{
    for (size_t k = 0; k < client->n_interest; k++)
        if (client->interest[k] == seq)
            return;
    if (client->n_interest == KJI_INTEREST_MAX) { /* the oldest is given up */
        memmove(client->interest, client->interest + 1,
                (KJI_INTEREST_MAX - 1) * sizeof *client->interest);
        client->n_interest--;
    }
    if (kji_reserve(&client->interest, &client->interest_capacity, client->n_interest + 1,
                    sizeof *client->interest))
        client->interest[client->n_interest++] = seq;
}

/* Whether the client follows the command; the last word about it ends that. */
static bool takes_own(kji_client *client, const kji_feed_event *event)
{
    for (size_t k = 0; k < client->n_interest; k++) {
        if (client->interest[k] != event->seq)
            continue;
        if (event->is_last)
            client->interest[k] = client->interest[--client->n_interest];
        return true;
    }
    return false;
}

static kji_client *free_client(kji_socket_door *door)
{
    for (size_t k = 0; k < KJI_CLIENTS_MAX; k++)
        if (door->client[k].fd < 0)
            return &door->client[k];
    return NULL;
}

/* Tells a peer that is not let in why, as far as it reads that at once. */
static void turn_away(int fd, const char *why)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    kji_rpc_error(&text, NULL, KJ_EPERM, why, NULL);
    ssize_t n = send(fd, text.text, text.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
    close(fd);
}

static uint64_t source_of(const kji_socket_door *door, const kji_client *client)
{
    return door->first_source + (uint64_t)(client - door->client);
}

static void admit(kji_socket_door *door, int fd, int epoll_fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        turn_away(fd, "the kernel does not say who you are");
        return;
    }
    if (peer.uid != geteuid() && peer.uid != 0) {
        turn_away(fd, "this run belongs to another user");
        return;
    }
    kji_client *client = free_client(door);
    if (!client) {
        turn_away(fd, "64 connections are open already");
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = source_of(door, client)};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        return;
    }
    *client = (kji_client){.fd = fd,
                           .door = door->only_looks ? "monitor" : "socket",
                           .uid = peer.uid,
                           .pid = peer.pid,
                           .only_looks = door->only_looks,
                           .epoll_events = EPOLLIN,
                           .in = KJI_STRBUF_INIT,
                           .out = KJI_STRBUF_INIT};
    size_t n_used = (size_t)(client - door->client) + 1;
    door->n_used = n_used > door->n_used ? n_used : door->n_used;
}

/* The process has no descriptor left: the caller is taken off the queue and let go. */
static bool turn_away_without_descriptor(kji_socket_door *door)
{
    kji_closep(&door->spare_fd);
    int fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        turn_away(fd, "the training has no file descriptor left");
    door->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

bool kji_socket_accept(kji_socket_door *door, int epoll_fd)
{
    bool good = true;
    kji_forks_hold();
    int fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        admit(door, fd, epoll_fd);
    else if (errno == EMFILE || errno == ENFILE)
        good = turn_away_without_descriptor(door);
    else
        good = errno != ENOMEM && errno != ENOBUFS;
    kji_forks_release();
    return good;
}

static void refuse_long(kji_client *client)
{
    kji_rpc_error(&client->out, NULL, KJI_RPC_INVALID_REQUEST, "a request of more than 65536 bytes",
                  NULL);
    kji_strbuf_clear(&client->in);
    client->is_closing = true;
}

/* Carries out one request, and gives the lock back: the training may want it between two. */
static void take_request(kji_client *client, kj_run *run, const char *line, size_t size)
{
    if (size && line[size - 1] == '\r')
        size--;
    if (size == 0)
        return;
    kji_run_lock_second(run);
    if (!client->is_reader)
        kji_feed_end(&run->feed, &client->cursor);
    kji_client_request(run, client, line, size);
    count_reader(client, run, client->wanted);
    kji_run_unlock(run);
}

/* Carries out the whole lines that have arrived, as long as their answers find room. */
static void take_requests(kji_client *client, kj_run *run)
{
    size_t used = 0;
    while (!client->is_closing && client->out.size < OUT_FOR_REQUESTS) {
        char *line = client->in.text + used;
        size_t rest = client->in.size - used;
        char *newline = memchr(line, '\n', rest);
        size_t size = newline ? (size_t)(newline - line) : rest;
        if (size > KJI_RPC_REQUEST_MAX) {
            refuse_long(client);
            return;
        }
        if (!newline)
            break;
        used += size + 1;
        take_request(client, run, line, size);
    }
    kji_strbuf_consume(&client->in, used);
    if (client->has_ended && !memchr(client->in.text, '\n', client->in.size))
        client->is_closing = true;
}

void kji_socket_serve(kji_socket_door *door, size_t index, unsigned epoll_events)
{
    kji_client *client = &door->client[index];
    if (client->fd < 0)
        return;
    client->is_ready = true;
    if (epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        char bytes[16384];
        ssize_t n = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            client->is_broken = true;
        if (n == 0) /* it may have closed its sending side only, and wait for answers */
            client->has_ended = true;
        if (n > 0)
            kji_strbuf_add(&client->in, bytes, (size_t)n);
    }
    if (client->in.failed)
        client->is_broken = true;
}

/* One event, or how many are lost; false when there is none. Lock held. */
static bool take_event(kji_client *client, kj_run *run)
{
    kji_feed *feed = &run->feed;
    bool all_commands = client->wanted & KJI_FEED_COMMANDS;
    unsigned wanted = client->wanted | (client->n_interest ? KJI_FEED_COMMANDS : 0);
    int64_t lost = (int64_t)kji_feed_skip_lost(feed, &client->cursor, wanted);
    if (lost || client->is_from_before) {
        kji_feed_print_gap(feed, client->is_from_before ? -1 : lost, &client->cursor, &client->out);
        client->is_from_before = false;
        return true;
    }
    int kind;
    const kji_feed_event *event = kji_feed_next(feed, &client->cursor, &kind);
    if (!event)
        return false;
    bool is_command = KJI_FEED_COMMANDS & 1u << kind;
    bool is_own = is_command && takes_own(client, event);
    if (!is_command || is_own || all_commands)
        kji_feed_print(feed, event, kind, &client->cursor, &client->out);
    return true;
}

/* Lock held. */
static void take_events(kji_client *client, kj_run *run)
{
    while (client->is_reader && client->out.size < OUT_FOR_EVENTS && take_event(client, run))
        ;
    count_reader(client, run, client->wanted);
}

static void flush(kji_client *client)
{
    while (client->out.size && !client->is_broken) {
        ssize_t n =
            send(client->fd, client->out.text, client->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            kji_strbuf_consume(&client->out, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n < 0 && errno != EINTR)
            client->is_broken = true;
    }
}

/* Requests, answers and events, until there are no more or the client takes no more; true when that
 * has not come yet, since the training says as much as the client reads. */
static bool work(kji_client *client, kj_run *run)
{
    for (int round = 0; round < ROUNDS; round++) {
        take_requests(client, run);
        if (client->is_reader) {
            kji_run_lock_second(run);
            take_events(client, run);
            kji_run_unlock(run);
        }
        client->is_broken |= client->out.failed;
        bool said_something = client->out.size > 0;
        flush(client);
        if (!said_something || client->is_broken || client->out.size)
            return false;
    }
    return true;
}

static void update_epoll(const kji_socket_door *door, kji_client *client, int epoll_fd)
{
    unsigned events = client->out.size ? EPOLLOUT : 0;
    if (!client->has_ended && !client->is_closing && client->out.size < OUT_FOR_REQUESTS)
        events |= EPOLLIN;
    if (events == client->epoll_events)
        return;
    client->epoll_events = events;
    struct epoll_event event = {.events = events, .data.u64 = source_of(door, client)};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, client->fd, &event) < 0)
        client->is_broken = true;
}

static void push(kji_socket_door *door, kji_client *client, kj_run *run, int epoll_fd)
{
    client->is_ready = false;
    if (!client->is_broken) {
        client->is_ready = work(client, run);
        update_epoll(door, client, epoll_fd);
    }
    door->has_more |= client->is_ready;
    if (client->is_broken || (client->is_closing && client->out.size == 0)) {
        kji_run_lock_second(run);
        client_done(client, run);
        kji_run_unlock(run);
    }
}

void kji_socket_push(kji_socket_door *door, kj_run *run, int epoll_fd)
{
    kji_run_lock_second(run);
    uint64_t order = run->feed.order;
    kji_run_unlock(run);
    bool has_news = order != door->order;
    door->order = order;
    door->has_more = false;
    for (size_t k = 0; k < door->n_used; k++) {
        kji_client *client = &door->client[k];
        if (client->is_ready || (has_news && client->is_reader))
            push(door, client, run, epoll_fd);
    }
    while (door->n_used && door->client[door->n_used - 1].fd < 0)
        door->n_used--;
}

void kji_socket_tell(kji_socket_door *door, kj_run *run)
{
    for (size_t k = 0; k < KJI_CLIENTS_MAX; k++)
        while (door->client[k].fd >= 0 && !door->client[k].is_broken && work(&door->client[k], run))
            ;
}

static void say_goodbye(kji_client *client, kj_run *run, int64_t deadline_ms)
{
    for (;;) {
        while (work(client, run))
            ;
        int64_t left = deadline_ms - kji_monotonic_ms();
        struct pollfd ready = {.fd = client->fd, .events = POLLOUT};
        if (client->is_broken || client->out.size == 0 || left <= 0 ||
            poll(&ready, 1, (int)left) <= 0)
            return;
    }
}

void kji_socket_done(kji_socket_door *door, kj_run *run)
{
    int64_t deadline_ms = kji_monotonic_ms() + LAST_WAIT_MS;
    for (size_t k = 0; k < KJI_CLIENTS_MAX; k++) {
        if (door->client[k].fd < 0)
            continue;
        say_goodbye(&door->client[k], run, deadline_ms);
        client_done(&door->client[k], run);
    }
    kji_forks_close(&door->fd);
    kji_forks_close(&door->spare_fd);
}

void kji_socket_close_fds(kji_socket_door *door)
{
    kji_closep(&door->fd);
    kji_closep(&door->spare_fd);
    for (size_t k = 0; k < KJI_CLIENTS_MAX; k++)
        kji_closep(&door->client[k].fd);
}
