/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: wait, serve what is ready, send events to those who watch. epoll's data says whose
 * descriptor it is: a door, or the number of a connection. Signals are blocked in this thread, so
 * that the program's own threads go on getting them. No callback of the program is ever called from
 * here.
 */
#include "helper.h"

#include "clock.h"
#include "errors.h"
#include "mem.h"
#include "run-impl.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

enum {
    FLOOD_REST_MS = 10,   /* between two reads of a FIFO whose lines do nothing */
    PATH_LOOK_MS = 2000,  /* between two looks for a FIFO that nobody watches */
    ACCEPT_REST_MS = 100, /* where the process has no descriptor for a caller */
    LOOK_MS = 50,         /* between two looks at the doors without a thread */
    LAST_READS = 64,      /* of each FIFO at the end: what a pipe holds */
    LAST_TURNS = 64       /* without a thread, at the end */
};
enum source {
    SOURCE_EVENT,
    SOURCE_INOTIFY,
    SOURCE_CTL,
    SOURCE_USER,
    SOURCE_SOCKET,
    SOURCE_MONITOR,
    SOURCE_CLIENT,                                   /* of `sock`, and so many more */
    SOURCE_WATCHER = SOURCE_CLIENT + KJI_CLIENTS_MAX /* of `monitor` */
};

void kji_helper_init(kji_helper *helper, kj_run *run)
{
    *helper = (kji_helper){.run = run, .epoll_fd = -1, .event_fd = -1, .inotify_fd = -1};
    kji_fifo_init(&helper->ctl, "ctl");
    kji_fifo_init(&helper->user, "fifo");
    kji_socket_init(&helper->socket, "sock", false, SOURCE_CLIENT);
    kji_socket_init(&helper->monitor, "monitor", true, SOURCE_WATCHER);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_init(&helper->mailbox[k]);
}

void kji_helper_wake(kji_helper *helper)
{
    if (!helper->is_threadless) /* else it looks anyway */
        kji_helper_alarm(helper);
}

void kji_helper_alarm(kji_helper *helper)
{
    if (helper->event_fd >= 0 && !__atomic_exchange_n(&helper->woken, 1, __ATOMIC_ACQ_REL))
        eventfd_write(helper->event_fd, 1);
}

static int add_source(int epoll_fd, int fd, uint64_t source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = source};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* A door is not looked at until some time has passed. */
static void rest(const kji_helper *helper, int fd, enum source source, int64_t *until_ms, int ms)
{
    struct epoll_event event = {.events = 0, .data.u64 = source};
    *until_ms = kji_monotonic_ms() + ms;
    epoll_ctl(helper->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

static void end_rest(const kji_helper *helper, int fd, enum source source, int64_t *until_ms,
                     int64_t now_ms)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = source};
    if (*until_ms == 0 || *until_ms > now_ms)
        return;
    *until_ms = 0;
    epoll_ctl(helper->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

static void serve_listening(kji_helper *helper, kji_socket_door *door, enum source source)
{
    if (!kji_socket_accept(door, helper->epoll_fd))
        rest(helper, door->fd, source, &door->rests_until_ms, ACCEPT_REST_MS);
}

static void serve_fifo(kji_helper *helper, kji_fifo *fifo, enum source source)
{
    kji_run_lock_second(helper->run);
    int64_t ms = kji_fifo_rest_ms(fifo, helper->run);
    if (ms == 0) {
        kji_fifo_read(fifo, helper->run);
        ms = kji_fifo_rest_ms(fifo, helper->run);
        if (ms < FLOOD_REST_MS && kji_flood_is_on(&fifo->flood))
            ms = FLOOD_REST_MS;
    }
    kji_run_unlock(helper->run);
    if (ms > 0)
        rest(helper, fifo->fd, source, &fifo->rests_until_ms, (int)ms);
}

/* A writer that left meanwhile may have left a line without an end, and nothing behind it. */
static void end_fifo_rest(kji_helper *helper, kji_fifo *fifo, enum source source, int64_t now_ms)
{
    if (fifo->rests_until_ms == 0)
        return;
    end_rest(helper, fifo->fd, source, &fifo->rests_until_ms, now_ms);
    if (fifo->rests_until_ms == 0 && fifo->writer_left)
        serve_fifo(helper, fifo, source);
}

/* Tells of hidden lines when it is time. Returns when to look again, INT64_MAX for never. */
static int64_t attend_flood(kji_helper *helper, kji_fifo *fifo, int64_t now_ms)
{
    if (kji_flood_tell_ms(&fifo->flood) <= now_ms) {
        kji_run_lock_second(helper->run);
        kji_run_tell_flood(helper->run, fifo);
        kji_run_unlock(helper->run);
    }
    return kji_flood_tell_ms(&fifo->flood);
}

/* Without inotify nobody tells that a writer has left. */
static int64_t attend_line(kji_helper *helper, kji_fifo *fifo, int64_t now_ms)
{
    if (fifo->due_ms == 0 || fifo->rests_until_ms)
        return INT64_MAX;
    if (fifo->due_ms <= now_ms) {
        kji_run_lock_second(helper->run);
        kji_fifo_writer_closed(fifo, helper->run);
        kji_run_unlock(helper->run);
    }
    return fifo->due_ms ? fifo->due_ms : INT64_MAX;
}

/* Without inotify nobody tells that the FIFO was deleted, either. */
static int64_t attend_path(kji_helper *helper, kji_fifo *fifo, int64_t now_ms)
{
    if (fifo->watch >= 0 || fifo->fd < 0 || fifo->is_gone)
        return INT64_MAX;
    if (fifo->look_ms <= now_ms) {
        kji_run_lock_second(helper->run);
        kji_fifo_check_path(fifo, helper->run);
        kji_run_unlock(helper->run);
        fifo->look_ms = now_ms + PATH_LOOK_MS;
    }
    return fifo->look_ms;
}

static int64_t earlier(int64_t next_ms, int64_t rests_until_ms)
{
    return rests_until_ms && rests_until_ms < next_ms ? rests_until_ms : next_ms;
}

/* What a flood left to be done later; how long epoll may wait then: for ever without one. */
static int attend(kji_helper *helper)
{
    int64_t now_ms = kji_monotonic_ms();
    kji_socket_door *sock = &helper->socket, *monitor = &helper->monitor;
    kji_fifo *ctl = &helper->ctl, *user = &helper->user;
    end_fifo_rest(helper, ctl, SOURCE_CTL, now_ms);
    end_fifo_rest(helper, user, SOURCE_USER, now_ms);
    end_rest(helper, sock->fd, SOURCE_SOCKET, &sock->rests_until_ms, now_ms);
    end_rest(helper, monitor->fd, SOURCE_MONITOR, &monitor->rests_until_ms, now_ms);
    int64_t next_ms = attend_flood(helper, ctl, now_ms);
    int64_t user_ms = attend_flood(helper, user, now_ms);
    next_ms = user_ms < next_ms ? user_ms : next_ms;
    next_ms = earlier(next_ms, attend_line(helper, ctl, now_ms));
    next_ms = earlier(next_ms, attend_line(helper, user, now_ms));
    next_ms = earlier(next_ms, attend_path(helper, ctl, now_ms));
    next_ms = earlier(next_ms, attend_path(helper, user, now_ms));
    next_ms = earlier(next_ms, ctl->rests_until_ms);
    next_ms = earlier(next_ms, user->rests_until_ms);
    next_ms = earlier(next_ms, sock->rests_until_ms);
    next_ms = earlier(next_ms, monitor->rests_until_ms);
    for (int k = 0; k < KJI_MAILBOXES; k++) {
        int64_t box_ms = kji_mailbox_attend(&helper->mailbox[k], helper->run, now_ms);
        next_ms = box_ms < next_ms ? box_ms : next_ms;
    }
    if (sock->has_more || monitor->has_more)
        return 0;
    if (next_ms == INT64_MAX)
        return -1;
    return next_ms > now_ms ? (int)(next_ms - now_ms) : 0;
}

static void serve_watch(kji_helper *helper, kji_fifo *fifo, uint32_t mask)
{
    if (mask & (IN_CLOSE_WRITE | IN_Q_OVERFLOW)) /* an event that was lost may have been a close */
        kji_fifo_writer_closed(fifo, helper->run);
    if (mask & (IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_Q_OVERFLOW))
        kji_fifo_check_path(fifo, helper->run);
}

static void serve_inotify(kji_helper *helper)
{
    char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(helper->inotify_fd, buffer, sizeof buffer);
    for (char *at = buffer; at < buffer + n;) {
        const struct inotify_event *event = (const struct inotify_event *)at;
        for (int k = 0; k < KJI_MAILBOXES; k++)
            if (event->mask & IN_Q_OVERFLOW || event->wd == helper->mailbox[k].watch)
                kji_mailbox_notice(&helper->mailbox[k], helper->run, event->mask);
        kji_run_lock_second(helper->run);
        if (event->mask & IN_Q_OVERFLOW || event->wd == helper->ctl.watch)
            serve_watch(helper, &helper->ctl, event->mask);
        if (event->mask & IN_Q_OVERFLOW || event->wd == helper->user.watch)
            serve_watch(helper, &helper->user, event->mask);
        kji_run_unlock(helper->run);
        at += sizeof *event + event->len;
    }
}

static void serve_event(kji_helper *helper)
{
    eventfd_t count;
    eventfd_read(helper->event_fd, &count);
    __atomic_exchange_n(&helper->woken, 0, __ATOMIC_ACQ_REL); /* what came before it is seen */
}

static void serve(kji_helper *helper, const struct epoll_event *event)
{
    uint64_t source = event->data.u64;
    switch (source) {
    case SOURCE_EVENT:
        serve_event(helper);
        break;
    case SOURCE_INOTIFY:
        serve_inotify(helper);
        break;
    case SOURCE_CTL:
        serve_fifo(helper, &helper->ctl, SOURCE_CTL);
        break;
    case SOURCE_USER:
        serve_fifo(helper, &helper->user, SOURCE_USER);
        break;
    case SOURCE_SOCKET:
        serve_listening(helper, &helper->socket, SOURCE_SOCKET);
        break;
    case SOURCE_MONITOR:
        serve_listening(helper, &helper->monitor, SOURCE_MONITOR);
        break;
    default:
        if (source < SOURCE_WATCHER)
            kji_socket_serve(&helper->socket, (size_t)(source - SOURCE_CLIENT), event->events);
        else
            kji_socket_serve(&helper->monitor, (size_t)(source - SOURCE_WATCHER), event->events);
    }
}

void kji_helper_push(kji_helper *helper)
{
    kji_socket_push(&helper->socket, helper->run, helper->epoll_fd);
    kji_socket_push(&helper->monitor, helper->run, helper->epoll_fd);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_push(&helper->mailbox[k], helper->run);
}

/* One wait at the doors and what came of it: how many, or less than 0 when a signal handler ran. */
static int turn(kji_helper *helper, int timeout_ms)
{
    struct epoll_event events[32];
    int due_ms = attend(helper);
    if (due_ms >= 0 && (timeout_ms < 0 || due_ms < timeout_ms))
        timeout_ms = due_ms;
    int n = epoll_wait(helper->epoll_fd, events, 32, timeout_ms);
    for (int k = 0; k < n; k++)
        serve(helper, &events[k]);
    kji_signals_submit(helper->run);
    kji_helper_push(helper);
    return n;
}

static void *helper_main(void *data)
{
    kji_helper *helper = data;
    pthread_setname_np(pthread_self(), "kajitori");
    while (!__atomic_load_n(&helper->quit, __ATOMIC_ACQUIRE))
        turn(helper, -1);
    return NULL;
}

void kji_helper_look(kji_helper *helper)
{
    int64_t now_ms = kji_coarse_ms();
    if (!helper->is_running || now_ms < helper->next_look_ms)
        return;
    helper->next_look_ms = now_ms + LOOK_MS;
    turn(helper, 0);
}

int kji_helper_wait(kji_helper *helper, int timeout_ms)
{
    return turn(helper, timeout_ms);
}

/* Without inotify (its number of instances is limited) a last line without newline takes a moment
 * longer, and that a FIFO was deleted is noticed up to 2 s later. */
static void watch_fifos(kji_helper *helper)
{
    enum { WATCHED = IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF };
    kji_fifo *fifos[] = {&helper->ctl, &helper->user};
    helper->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    for (size_t k = 0; k < 2; k++) {
        if (fifos[k]->fd >= 0 && helper->inotify_fd >= 0)
            fifos[k]->watch = kji_fifo_watch(fifos[k], helper->inotify_fd, WATCHED);
    }
}

static int add_sources(kji_helper *helper)
{
    int fd = helper->epoll_fd, bad = 0;
    bad |= add_source(fd, helper->event_fd, SOURCE_EVENT);
    if (helper->inotify_fd >= 0)
        bad |= add_source(fd, helper->inotify_fd, SOURCE_INOTIFY);
    if (helper->ctl.fd >= 0)
        bad |= add_source(fd, helper->ctl.fd, SOURCE_CTL);
    if (helper->user.fd >= 0)
        bad |= add_source(fd, helper->user.fd, SOURCE_USER);
    if (helper->socket.fd >= 0)
        bad |= add_source(fd, helper->socket.fd, SOURCE_SOCKET);
    if (helper->monitor.fd >= 0)
        bad |= add_source(fd, helper->monitor.fd, SOURCE_MONITOR);
    return bad;
}

int kji_helper_prepare(kji_helper *helper, kj_error *err)
{
    helper->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    helper->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (helper->event_fd < 0 || helper->epoll_fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot wait for the doors");
    watch_fifos(helper);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_watch(&helper->mailbox[k], helper->inotify_fd);
    if (add_sources(helper) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot wait for the doors");
    return 0;
}

int kji_helper_start(kji_helper *helper, kj_error *err)
{
    if (helper->is_running || helper->epoll_fd < 0)
        return 0;
    if (helper->is_threadless) {
        helper->is_running = true;
        kji_run_pend(helper->run, KJI_PENDING_DOORS);
        return 0;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&helper->thread, NULL, helper_main, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return kji_fail_errno(err, KJ_EIO, r, "cannot start the helper thread");
    helper->is_running = true;
    return 0;
}

static void take_the_rest(kj_run *run, kji_fifo *fifo)
{
    for (int k = 0; fifo->fd >= 0 && k < LAST_READS && !kji_fifo_read(fifo, run); k++)
        ;
    kji_run_tell_flood(run, fifo);
}

/* Who came since the last look is answered. */
static void take_last_turns(kji_helper *helper)
{
    for (int k = 0; k < LAST_TURNS && turn(helper, 0) > 0; k++)
        ;
}

void kji_helper_join(kji_helper *helper)
{
    if (!helper->is_running)
        return;
    if (helper->is_threadless) {
        take_last_turns(helper);
    } else {
        __atomic_store_n(&helper->quit, 1, __ATOMIC_RELEASE);
        eventfd_write(helper->event_fd, 1);
        pthread_join(helper->thread, NULL);
    }
    kji_signals_submit(helper->run);
    helper->is_running = false;
    kji_run_lock(helper->run);
    take_the_rest(helper->run, &helper->ctl);
    take_the_rest(helper->run, &helper->user);
    kji_run_unlock(helper->run);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_take_rest(&helper->mailbox[k], helper->run);
}

void kji_helper_tell(kji_helper *helper)
{
    kji_socket_tell(&helper->socket, helper->run);
    kji_socket_tell(&helper->monitor, helper->run);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_push(&helper->mailbox[k], helper->run);
}

void kji_helper_stop(kji_helper *helper)
{
    kji_helper_join(helper);
    kji_socket_done(&helper->socket, helper->run);
    kji_socket_done(&helper->monitor, helper->run);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_done(&helper->mailbox[k], helper->run);
    kji_fifo_done(&helper->ctl);
    kji_fifo_done(&helper->user);
    kji_closep(&helper->inotify_fd);
    kji_closep(&helper->epoll_fd);
    kji_closep(&helper->event_fd);
}

void kji_helper_close_fds(kji_helper *helper)
{
    kji_closep(&helper->inotify_fd);
    kji_closep(&helper->epoll_fd);
    kji_closep(&helper->event_fd);
    kji_fifo_close_fds(&helper->ctl);
    kji_fifo_close_fds(&helper->user);
    kji_socket_close_fds(&helper->socket);
    kji_socket_close_fds(&helper->monitor);
    for (int k = 0; k < KJI_MAILBOXES; k++)
        kji_mailbox_close_fds(&helper->mailbox[k]);
}
