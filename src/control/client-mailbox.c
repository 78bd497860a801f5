/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is put into `in`; then its answer is looked for in `out`, when inotify tells of
 * something, else several times a second. What is found there goes into client->in as the lines
 * that a socket would have brought: first the answer, then, each time the file is another, the
 * record as an event. So all that client.c knows about answers and events holds here too.
 *
 * `out` is opened anew by its name for each look: that is when a network file system asks its
 * server. Whether the run lives is asked by the clock of the file system (mailbox.c), read once and
 * carried on by our own.
 */
#include "client-mailbox.h"

#include "clock.h"
#include "command.h"
#include "errors.h"
#include "files.h"
#include "json.h"
#include "mailbox.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/timerfd.h>

enum {
    SENT_MAX = 256,                  /* answers that are waited for; then the oldest is given up */
    ANSWER_LIMIT = 16 * 1024 * 1024, /* bytes */
    LOOK_MS = 200,                   /* where nobody tells */
    ALIVE_MS = 1000                  /* between two looks whether the run lives */
};

typedef struct sent {
    char name[KJI_MAIL_NAME_MAX + 1];
    struct json_object *answer; /* as it was last; NULL: none yet */
} sent;

struct kji_mail_way {
    int dir_fd;
    int in_fd;
    int64_t stamp;      /* of the newest name: later ones sort behind it */
    char tail[9];       /* of all names of this client */
    double clock_ahead; /* of the file system's clock before our monotonic one, in seconds */
    int64_t alive_ms;   /* when to ask again whether it lives */
    sent *sent;
    size_t n_sent;
};

static void file_of(const sent *one, char file[KJI_MAIL_FILE_SIZE])
{
    snprintf(file, KJI_MAIL_FILE_SIZE, "%s.json", one->name);
}

static int open_out(const kji_mail_way *way)
{
    return openat(way->dir_fd, "out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Nothing more is expected: the answer need not stay. */
static void drop(kji_mail_way *way, size_t index, int out_fd)
{
    char file[KJI_MAIL_FILE_SIZE];
    sent *one = &way->sent[index];
    file_of(one, file);
    if (out_fd >= 0 && one->answer)
        unlinkat(out_fd, file, 0);
    json_object_put(one->answer);
    memmove(one, one + 1, (--way->n_sent - index) * sizeof *one);
}

static int64_t new_stamp(kji_mail_way *way)
{
    int64_t now = (int64_t)(kji_wall_time() * 1e6);
    way->stamp = now > way->stamp ? now : way->stamp + 1;
    return way->stamp;
}

static int mail_send(kj_client *client, const char *line, size_t size, int64_t deadline,
                     kj_error *err)
{
    (void)deadline;
    kji_mail_way *way = client->way;
    char file[KJI_MAIL_FILE_SIZE];
    if (way->n_sent == SENT_MAX)
        drop(way, 0, -1);
    sent *one = &way->sent[way->n_sent];
    *one = (sent){.answer = NULL};
    snprintf(one->name, sizeof one->name, "%016lld-%s", (long long)new_stamp(way), way->tail);
    file_of(one, file);
    kj_error why = KJ_ERROR_INIT;
    int r = kji_write_file_atomic(way->in_fd, file, line, size, &why);
    if (r < 0 && why.native == ENOENT) { /* the run has removed it */
        client->ended = true;
        return 0;
    }
    if (r < 0)
        return kji_fail_prefix(err, kji_forward(err, &why), "the run's mailbox");
    way->n_sent++;
    return 0;
}

static bool mail_take_back(kj_client *client)
{
    kji_mail_way *way = client->way;
    char file[KJI_MAIL_FILE_SIZE];
    if (way->n_sent == 0 || way->sent[way->n_sent - 1].answer)
        return false;
    file_of(&way->sent[way->n_sent - 1], file);
    if (unlinkat(way->in_fd, file, 0) < 0)
        return false;
    way->n_sent--;
    return true;
}

static void mail_close(kj_client *client)
{
    kji_mail_way *way = client->way;
    KJI_CLEANUP(kji_closep) int out_fd = open_out(way);
    while (way->n_sent)
        drop(way, way->n_sent - 1, out_fd);
    kji_closep(&way->in_fd);
    kji_closep(&way->dir_fd);
    free(way->sent);
    free(way);
    client->way = NULL;
}

static struct json_object *result_of(struct json_object *answer)
{
    struct json_object *result = NULL;
    json_object_object_get_ex(answer, "result", &result);
    return json_object_is_type(result, json_type_object) ? result : NULL;
}

bool kji_mail_add_lines(kji_strbuf *to, struct json_object *before, struct json_object *now)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    if (!json_object_is_type(now, json_type_object))
        return false;
    if (!before) {
        text = kji_json_text(now);
        kji_strbuf_puts(to, text ? text : "");
        kji_strbuf_putc(to, '\n');
        return true;
    }
    struct json_object *record = result_of(now);
    if (!record || json_object_equal(record, result_of(before)))
        return record != NULL;
    text = kji_json_text(record);
    if (text && json_object_object_length(record) > 0)
        kji_strbuf_printf(to,
                          "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":"
                          "\"command\",%s}\n",
                          text + 1);
    return true;
}

/* 1 when the answer is to be waited for further, 0 when not, or an error. */
static int look_at(kj_client *client, sent *one, int out_fd, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    struct json_object *now = NULL;
    char file[KJI_MAIL_FILE_SIZE];
    size_t size;
    int64_t seq;
    file_of(one, file);
    kj_error why = KJ_ERROR_INIT;
    int r = kji_read_file(out_fd, file, ANSWER_LIMIT, &text, &size, &why);
    if (r == KJ_ENOENT)
        return one->answer == NULL; /* gone: a new run has emptied it, or 1000 others came since */
    if (r == KJ_EIO && why.native == ESTALE) /* replaced between the look-up and the opening */
        return 1;
    if (r < 0)
        return kji_forward(err, &why);
    if (kji_json_parse(text, size, &now, NULL) < 0 ||
        !kji_mail_add_lines(&client->in, one->answer, now)) {
        json_object_put(now);
        client->broken = true;
        return kji_fail(err, KJ_EPROTO, "the run's mailbox has an answer that is none: %s", file);
    }
    json_object_put(one->answer);
    one->answer = now;
    return kji_record_goes_on(result_of(now), &seq);
}

/* Everything that there is to read now. */
static int look(kj_client *client, kj_error *err)
{
    kji_mail_way *way = client->way;
    KJI_CLEANUP(kji_closep) int out_fd = open_out(way);
    if (out_fd < 0) {
        client->ended = true;
        return 0;
    }
    for (size_t k = 0; k < way->n_sent;) {
        int r = look_at(client, &way->sent[k], out_fd, err);
        if (r < 0)
            return r;
        if (r > 0)
            k++;
        else
            drop(way, k, out_fd);
    }
    return client->in.failed ? kji_fail_memory(err) : 0;
}

static void read_clock(kji_mail_way *way)
{
    way->clock_ahead = kji_mail_clock(way->dir_fd) - (double)kji_monotonic_ms() / 1000;
}

static int check_alive(kji_mail_way *way, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = kji_mail_read_json(way->dir_fd);
    double now = (double)kji_monotonic_ms() / 1000 + way->clock_ahead;
    return kji_mail_check_alive(way->dir_fd, json, now, err);
}

/* Whether it is over. A computer that slept has a clock of its own: it is read anew before that is
 * said. */
static bool is_over(kji_mail_way *way)
{
    int64_t now_ms = kji_monotonic_ms();
    if (now_ms < way->alive_ms)
        return false;
    way->alive_ms = now_ms + ALIVE_MS;
    if (check_alive(way, NULL) >= 0)
        return false;
    read_clock(way);
    return check_alive(way, NULL) < 0;
}

static void drain(int fd)
{
    char bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
}

static int mail_receive(kj_client *client, int64_t deadline, kj_error *err)
{
    size_t before = client->in.size;
    for (;;) {
        drain(client->fd); /* before the look: what comes during it is told of again */
        bool over = is_over(client->way);
        int r = look(client, err);
        if (r < 0)
            return r;
        client->ended = client->ended || over;
        if (client->in.size > before || client->ended)
            return 1;
        int64_t now_ms = kji_monotonic_ms();
        if (now_ms >= deadline)
            return 0;
        int64_t until = deadline - now_ms < ALIVE_MS ? deadline : now_ms + ALIVE_MS;
        r = kji_wire_wait(client, until, err);
        if (r < 0)
            return r;
    }
}

const kji_transport kji_transport_mailbox = {
    .send = mail_send, .receive = mail_receive, .take_back = mail_take_back, .close = mail_close};

static int open_box(const char *dir, int *ret_fd, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int dir_fd = -1, run_fd = -1;
    int r = kji_mail_open_folder(AT_FDCWD, dir, &run_fd, err);
    if (r < 0)
        return r == KJ_ENOENT ? kji_fail(err, KJ_ENORUN, "there is no folder %s", dir) : r;
    if (faccessat(run_fd, "in", F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        dir_fd = run_fd;
        run_fd = -1;
    } else {
        r = kji_mail_open_folder(run_fd, "mailbox", &dir_fd, err);
    }
    *ret_fd = dir_fd;
    dir_fd = -1;
    return r;
}

/* inotify where it tells, else a timer: either is readable when there may be something. */
static int open_watch(const kji_mail_way *way)
{
    char path[60];
    snprintf(path, sizeof path, "/proc/self/fd/%d/out", way->dir_fd);
    int fd = kji_is_network_path(path) ? -1 : inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd >= 0 && inotify_add_watch(fd, path, IN_MOVED_TO | IN_DELETE_SELF | IN_ONLYDIR) >= 0)
        return fd;
    kji_closep(&fd);
    struct itimerspec often = {.it_interval = {.tv_nsec = LOOK_MS * 1000000},
                               .it_value = {.tv_nsec = LOOK_MS * 1000000}};
    fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd >= 0)
        timerfd_settime(fd, 0, &often, NULL);
    return fd;
}

static void make_tail(char tail[9])
{
    uint32_t number = (uint32_t)getpid();
    if (getrandom(&number, sizeof number, 0) < 0)
        number ^= (uint32_t)kji_monotonic_ms();
    snprintf(tail, 9, "%08x", number);
}

static int check_run(kj_client *client, int protocol, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp)
    struct json_object *json = kji_mail_read_json(client->way->dir_fd);
    const char *version = kji_json_string(json, "version");
    int64_t theirs = protocol;
    int r = check_alive(client->way, err);
    if (r < 0)
        return r;
    client->version = version ? strdup(version) : NULL;
    kji_json_int(json, "protocol", &theirs);
    if (theirs == protocol)
        return 0;
    return kji_fail(err, KJ_EPROTO,
                    "the run speaks protocol %lld (kajitori %s), this side protocol %d (kajitori "
                    "%s): use the same version on both",
                    (long long)theirs, version ? version : "?", protocol, kj_version());
}

int kji_mailbox_connect(kj_client *client, const char *dir, int protocol, kj_error *err)
{
    kji_mail_way *way = calloc(1, sizeof *way);
    if (!way)
        return kji_fail_memory(err);
    way->dir_fd = way->in_fd = -1;
    client->way = way;
    client->transport = &kji_transport_mailbox;
    way->sent = calloc(SENT_MAX, sizeof *way->sent);
    int r = way->sent ? open_box(dir, &way->dir_fd, err) : kji_fail_memory(err);
    if (r >= 0)
        r = kji_mail_open_folder(way->dir_fd, "in", &way->in_fd, err);
    if (r < 0)
        return r;
    make_tail(way->tail);
    read_clock(way);
    r = check_run(client, protocol, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "%s", dir);
    client->fd = open_watch(way);
    return client->fd >= 0 ? 0 : kji_fail_errno(err, KJ_EIO, errno, "cannot watch %s", dir);
}

bool kji_mailbox_is_way_to(const char *dir)
{
    KJI_CLEANUP(kji_closep) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && faccessat(fd, "sock", F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
           (faccessat(fd, "in", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            faccessat(fd, "mailbox/in", F_OK, AT_SYMLINK_NOFOLLOW) == 0);
}
