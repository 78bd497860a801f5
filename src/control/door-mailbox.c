/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look lists `in`, takes the files in the order of their names, a part of them at a time so that
 * other doors get their turn, removes each, and then acts upon it. inotify says when to look; on a
 * network file system nobody does, and the folder is opened anew for each look, since that is when
 * such a file system asks its server.
 *
 * An answer is one JSON text in `out`. Those of commands that go on are kept in memory too: each
 * further record comes from the feed, as it does to a client of the socket, and the file is
 * replaced.
 */
#include "door-mailbox.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "json.h"
#include "letter.h"
#include "mask.h"
#include "mem.h"
#include "rpc.h"
#include "run-impl.h"
#include "utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

enum {
    LOOK_FIRST_MS = 50, /* without a watch: this long after a request, then twice that, ... */
    LOOK_MS = 2000,
    NAMES_AT_ONCE = 1024, /* listed in one look */
    FILES_AT_ONCE = 64,   /* and taken */
    EVENTS_AT_ONCE = 64,  /* taken while the run's lock is held */
    LINES_AT_ONCE = 200,  /* likewise, of the journal */
    LINES_BYTES = 60000,
    FIRST_LOOKS = 2000, /* for what is stale */
    LAST_LOOKS = 64,    /* when the run ends */
    REFUSALS_SAID = 100,
    STALE_SHOWN = 1024,
    LOCK_TRIES = 10 /* somebody who lists may have the lock for a moment */
};

typedef char mail_file[KJI_MAIL_FILE_SIZE];

/* Of a look. LATER: something is there that could not be read now, for example without a descriptor
 * left; nothing tells when it can be. */
enum outcome { ALL_TAKEN, MORE, LATER };

void kji_mailbox_init(kji_mailbox *box)
{
    *box = (kji_mailbox){.dir_fd = -1,
                         .lock_fd = -1,
                         .in_fd = -1,
                         .out_fd = -1,
                         .mail_fd = -1,
                         .watch = -1,
                         .look_ms = INT64_MAX,
                         .beat_ms = INT64_MAX};
}

void kji_mailbox_close_fds(kji_mailbox *box)
{
    kji_closep(&box->mail_fd);
    kji_closep(&box->in_fd);
    kji_closep(&box->out_fd);
    kji_closep(&box->lock_fd);
    kji_closep(&box->dir_fd);
}

static void free_box(kji_mailbox *box)
{
    for (size_t k = 0; box->answer && k < KJI_MAIL_ANSWERS_MAX; k++)
        json_object_put(box->answer[k].json);
    free(box->answer);
    free(box->follow);
    free(box->dir);
    kji_forks_close(&box->mail_fd);
    kji_forks_close(&box->out_fd);
    kji_forks_close(&box->lock_fd);
    kji_forks_close(&box->dir_fd);
    kji_mailbox_init(box);
}

/* Makes the folder if need be, and opens it for as long as the run lives. */
static int keep_folder(int *fd, const char *dir, const char *name, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", dir, name);
    KJI_CLEANUP(kji_closep) int made_fd = -1;
    if (!path)
        return kji_fail_memory(err);
    int r = kji_open_dir(path, true, &made_fd, err);
    if (r >= 0 && kji_forks_open(fd, made_fd, ".", O_RDONLY | O_DIRECTORY, 0) < 0)
        r = kji_fail_errno(err, KJ_EIO, errno, "cannot open %s", path);
    return r;
}

/* A file system that has no locks leaves `alive` to tell. */
static int take_lock(kji_mailbox *box, kj_error *err)
{
    if (kji_forks_open(&box->lock_fd, box->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a lock in %s", box->dir);
    for (int k = 0; flock(box->lock_fd, LOCK_EX | LOCK_NB) < 0; k++) {
        if (errno != EWOULDBLOCK)
            return 0;
        if (k == LOCK_TRIES)
            return kji_fail(err, KJ_EBUSY, "another live run has the mailbox %s", box->dir);
        poll(NULL, 0, 1);
    }
    return 0;
}

/* On another host a lock may not be seen. */
static int check_free(kji_mailbox *box, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = kji_mail_read_json(box->dir_fd);
    if (!json || kji_mail_is_of_this_host(json) ||
        kji_mail_check_alive(box->dir_fd, json, kji_mail_clock(box->dir_fd), NULL) < 0)
        return 0;
    const char *host = kji_json_string(json, "host");
    return kji_fail(err, KJ_EBUSY,
                    "a run on host %s has the mailbox %s; if it has died, wait a minute",
                    host ? host : "?", box->dir);
}

int kji_mailbox_open(kji_mailbox *box, const char *dir, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int in_fd = -1;
    box->dir = strdup(dir);
    box->answer = calloc(KJI_MAIL_ANSWERS_MAX, sizeof *box->answer);
    int r = box->dir && box->answer ? 0 : kji_fail_memory(err);
    if (r >= 0)
        r = keep_folder(&box->dir_fd, dir, ".", err);
    if (r >= 0)
        r = take_lock(box, err);
    if (r >= 0)
        r = check_free(box, err);
    if (r >= 0)
        r = keep_folder(&in_fd, dir, "in", err);
    if (r >= 0)
        r = keep_folder(&box->out_fd, dir, "out", err);
    if (r < 0) {
        free_box(box);
        return kji_fail_prefix(err, r, "no mailbox");
    }
    return 0;
}

static void warn(kj_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(kj_run *run, const char *format, ...)
{
    char text[500];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kji_run_lock_second(run);
    kji_run_warn(run, "run %s: %s", run->id, text);
    kji_run_unlock(run);
}

static void say_gone(kji_mailbox *box, kj_run *run)
{
    if (box->is_gone)
        return;
    box->is_gone = true;
    box->look_ms = box->beat_ms = INT64_MAX;
    warn(run,
         "the mailbox %s was deleted or moved; the training goes on, but nothing can be sent there "
         "any more",
         box->dir);
}

static void stop_following(kji_mailbox *box, size_t answer)
{
    size_t kept = 0;
    for (size_t k = 0; k < box->n_follow; k++)
        if (box->follow[k].answer != answer)
            box->follow[kept++] = box->follow[k];
    box->n_follow = kept;
    json_object_put(box->answer[answer].json);
    box->followed_bytes -= box->answer[answer].size;
    box->answer[answer].json = NULL;
    box->answer[answer].size = 0;
    box->answer[answer].n_followed = 0;
}

static char *answer_file(const kji_mail_answer *answer, mail_file file)
{
    snprintf(file, sizeof(mail_file), "%s.json", answer->name);
    return file;
}

static void write_answer(kji_mailbox *box, kj_run *run, kji_mail_answer *answer, const char *text,
                         size_t size)
{
    mail_file file;
    kj_error why = KJ_ERROR_INIT;
    answer->is_changed = false;
    if (kji_write_file_atomic(box->out_fd, answer_file(answer, file), text, size, &why) >= 0)
        return;
    if (why.native == ENOENT)
        say_gone(box, run);
    else if (!box->has_failed)
        warn(run, "an answer in the mailbox %s cannot be written: %s", box->dir, why.message);
    box->has_failed = true;
}

/* The place of a new answer: the oldest goes, an older one of the same name is replaced. */
static kji_mail_answer *new_answer(kji_mailbox *box, const char *name)
{
    mail_file file;
    for (size_t k = 0; k < KJI_MAIL_ANSWERS_MAX; k++) {
        if (strcmp(box->answer[k].name, name) == 0) {
            stop_following(box, k);
            *box->answer[k].name = 0;
        }
    }
    size_t place = box->n_answers++ % KJI_MAIL_ANSWERS_MAX;
    kji_mail_answer *answer = &box->answer[place];
    stop_following(box, place);
    if (*answer->name)
        unlinkat(box->out_fd, answer_file(answer, file), 0);
    strcpy(answer->name, name);
    return answer;
}

/* Index of the first one with a number >= seq. */
static size_t place_of(const kji_mailbox *box, int64_t seq)
{
    return kji_lower_bound(box->follow, box->n_follow, sizeof *box->follow,
                           offsetof(kji_mail_follow, seq), seq);
}

/* They are sorted by number; several answers may follow one command. */
static void follow(kji_mailbox *box, kji_mail_answer *answer, size_t item, int64_t seq)
{
    if (box->n_follow == KJI_MAIL_FOLLOWED_MAX ||
        !kji_reserve(&box->follow, &box->follow_capacity, box->n_follow + 1, sizeof *box->follow))
        return;
    size_t place = place_of(box, seq + 1);
    kji_mail_follow *one = &box->follow[place];
    memmove(one + 1, one, (box->n_follow++ - place) * sizeof *one);
    *one = (kji_mail_follow){.seq = seq, .answer = (size_t)(answer - box->answer), .item = item};
    answer->n_followed++;
}

/* The lock is held for these two. */
static void start_reading(kji_mailbox *box, kj_run *run)
{
    if (box->is_reader)
        return;
    box->is_reader = true;
    run->feed.n_readers++;
    kji_feed_end(&run->feed, &box->cursor);
    box->n_noted = run->journal.last;
}

static void stop_reading(kji_mailbox *box, kj_run *run)
{
    if (!box->is_reader || box->n_follow)
        return;
    box->is_reader = false;
    run->feed.n_readers--;
}

/* Writes the answer for the first time, and keeps it when more is to come. */
static void finish_answer(kji_mailbox *box, kj_run *run, kji_mail_answer *answer,
                          const kji_strbuf *text)
{
    bool has_room = !text->failed && box->followed_bytes + text->size <= KJI_MAIL_FOLLOWED_BYTES;
    if (answer->n_followed &&
        (!has_room || kji_json_parse(text->text, text->size, &answer->json, NULL) < 0)) {
        stop_following(box, (size_t)(answer - box->answer));
    } else if (answer->n_followed) {
        answer->size = text->size;
        box->followed_bytes += text->size;
    }
    write_answer(box, run, answer, text->text, text->size);
}

static void answer_request(kji_mailbox *box, kj_run *run, const kji_letter *mail)
{
    kji_client asker = {
        .fd = -1, .door = "mailbox", .uid = mail->uid, .pid = -1, .out = KJI_STRBUF_INIT};
    kji_mail_answer *answer = new_answer(box, mail->name);
    kji_run_lock_second(run);
    start_reading(box, run);
    kji_client_request(run, &asker, mail->text, mail->size);
    for (size_t k = 0; k < asker.n_interest; k++)
        follow(box, answer, 0, asker.interest[k]);
    stop_reading(box, run);
    kji_run_unlock(run);
    if (asker.out.size)
        finish_answer(box, run, answer, &asker.out);
    free(asker.interest);
    kji_strbuf_done(&asker.out);
}

/* One line of NAME.txt: its answer goes to `out`. */
static void answer_line(kji_mailbox *box, kj_run *run, const kji_letter *mail,
                        kji_mail_answer *answer, const char *line, size_t size, kji_strbuf *out,
                        size_t *n_items)
{
    const kji_sender sender = {.door = "mailbox", .uid = mail->uid, .pid = -1};
    KJI_CLEANUP(kji_json_putp)
    struct json_object *id = json_object_new_int64((int64_t)*n_items + 1);
    struct json_object *record = NULL;
    kj_error err = KJ_ERROR_INIT;
    int64_t seq;
    kji_run_lock_second(run);
    int r = kji_run_submit_line(run, &sender, line, size, NULL, &record, &err);
    if (r > 0 && kji_record_goes_on(record, &seq))
        follow(box, answer, *n_items, seq);
    if (r != 0 && (*n_items)++)
        kji_strbuf_putc(out, ',');
    if (r < 0)
        kji_rpc_error(out, id, r, err.message, record);
    else if (r > 0)
        kji_rpc_result(out, id, record);
    kji_run_unlock(run); /* a record shares parts with its command */
}

static void answer_lines(kji_mailbox *box, kj_run *run, const kji_letter *mail)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf out = KJI_STRBUF_INIT;
    kji_mail_answer *answer = new_answer(box, mail->name);
    const char *at = mail->text, *end = at + mail->size;
    size_t n_items = 0;
    kji_run_lock_second(run);
    start_reading(box, run);
    kji_run_unlock(run);
    kji_strbuf_putc(&out, '[');
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        answer_line(box, run, mail, answer, at, size, &out, &n_items);
        at += size + 1;
    }
    kji_strbuf_puts(&out, "]\n");
    kji_run_lock_second(run);
    stop_reading(box, run);
    kji_run_unlock(run);
    finish_answer(box, run, answer, &out);
}

/* The answer to what was not read, or not obeyed. */
static void answer_refused(kji_mailbox *box, kj_run *run, const kji_letter *mail, const char *why)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf out = KJI_STRBUF_INIT;
    bool is_list = mail->kind == KJI_MAIL_LINES;
    kji_strbuf_puts(&out, is_list ? "[" : "");
    kji_rpc_error(&out, NULL, KJ_EREJECTED, why, NULL);
    kji_strbuf_puts(&out, is_list ? "]\n" : "");
    write_answer(box, run, new_answer(box, mail->name), out.text, out.size);
}

static void refuse(kji_mailbox *box, kj_run *run, const kji_letter *mail)
{
    box->n_refused++;
    if (box->n_refused <= REFUSALS_SAID)
        warn(run, "the file %s in the mailbox %s was removed unread: %s%s", mail->name, box->dir,
             mail->refusal,
             box->n_refused == REFUSALS_SAID ? "; further ones are not told of" : "");
    answer_refused(box, run, mail, mail->refusal);
}

static void say_stale(kj_run *run, const kji_letter *mail)
{
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(mail->text, mail->size);
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "door", json_object_new_string("mailbox"));
    json_object_object_add(fields, "text", kji_json_new_text(masked, STALE_SHOWN));
    kji_run_event(run, "stale", fields);
}

static void act_upon(kji_mailbox *box, kj_run *run, kji_letter *mail)
{
    while (mail->kind == KJI_MAIL_REQUEST && mail->size &&
           strchr(" \t\r\n", mail->text[mail->size - 1]))
        mail->size--;
    if (mail->refusal) {
        refuse(box, run, mail);
    } else if (!box->is_begun) {
        say_stale(run, mail);
        answer_refused(box, run, mail, "it is from before this run began; send it again");
    } else if (mail->kind == KJI_MAIL_LINES) {
        answer_lines(box, run, mail);
    } else {
        answer_request(box, run, mail);
    }
}

/* False: it cannot be read now, and is still there. */
static bool take_mail(kji_mailbox *box, kj_run *run, int in_fd, const char *file)
{
    kji_letter mail;
    int r = kji_letter_take(&mail, &box->mail_fd, in_fd, file);
    if (r > 0) {
        box->rest_ms = LOOK_FIRST_MS;
        act_upon(box, run, &mail);
    }
    kji_letter_done(&mail);
    return r >= 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names of the requests in `in`, sorted; for free. */
static size_t list_mail(DIR *listing, mail_file **ret_files)
{
    char name[KJI_MAIL_NAME_MAX + 1];
    mail_file *files = NULL;
    size_t n = 0, capacity = 0;
    for (struct dirent *item; n < NAMES_AT_ONCE && (item = readdir(listing));) {
        if (kji_mail_kind_of(item->d_name, name) == KJI_MAIL_OTHER)
            continue;
        if (!kji_reserve(&files, &capacity, n + 1, sizeof *files))
            break;
        strcpy(files[n++], item->d_name);
    }
    if (n)
        qsort(files, n, sizeof *files, by_name);
    *ret_files = files;
    return n;
}

static void close_in(kji_mailbox *box, DIR *listing)
{
    kji_forks_hold();
    if (listing)
        closedir(listing);
    else
        kji_closep(&box->in_fd);
    box->in_fd = -1;
    kji_forks_release();
}

/* Takes a part of what is there. */
static enum outcome look(kji_mailbox *box, kj_run *run)
{
    kji_forks_open(&box->in_fd, box->dir_fd, "in", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (box->in_fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
        say_gone(box, run);
        return ALL_TAKEN;
    }
    DIR *listing = box->in_fd < 0 ? NULL : fdopendir(box->in_fd);
    if (!listing) {
        close_in(box, NULL);
        return LATER;
    }
    mail_file *files;
    size_t n = list_mail(listing, &files);
    enum outcome outcome = n > FILES_AT_ONCE ? MORE : ALL_TAKEN;
    for (size_t k = 0; k < n && k < FILES_AT_ONCE; k++)
        if (!take_mail(box, run, box->in_fd, files[k]))
            outcome = LATER;
    free(files);
    close_in(box, listing);
    return outcome;
}

static enum outcome look_often(kji_mailbox *box, kj_run *run, int most)
{
    enum outcome outcome = ALL_TAKEN;
    for (int k = 0; k < most && !box->is_gone; k++) {
        outcome = look(box, run);
        if (outcome != MORE)
            break;
    }
    return outcome;
}

void kji_mailbox_take_rest(kji_mailbox *box, kj_run *run)
{
    if (box->dir)
        look_often(box, run, LAST_LOOKS);
}

static void empty_out(const kji_mailbox *box)
{
    char name[KJI_MAIL_NAME_MAX + 1];
    int fd = openat(box->out_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        kji_closep(&fd);
        return;
    }
    for (struct dirent *item; (item = readdir(listing));)
        if (*item->d_name == '.' || kji_mail_kind_of(item->d_name, name) == KJI_MAIL_REQUEST)
            unlinkat(fd, item->d_name, 0);
    closedir(listing);
}

static int write_json(const kji_mailbox *box, struct json_object *json, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(json);
    return text ? kji_write_file_atomic(box->dir_fd, "run.json", text, strlen(text), err)
                : kji_fail_memory(err);
}

int kji_mailbox_begin(kji_mailbox *box, kj_run *run, kj_error *err)
{
    empty_out(box);
    if (look_often(box, run, FIRST_LOOKS) != ALL_TAKEN)
        return kji_fail(err, KJ_EIO, "no mailbox: requests from before lie in %s/in; remove them",
                        box->dir);
    int r = write_json(box, run->json, err);
    if (r >= 0)
        r = kji_write_file_atomic(box->dir_fd, "alive", "", 0, err);
    box->is_begun = r >= 0;
    box->rest_ms = LOOK_FIRST_MS;
    box->look_ms = 0; /* somebody may have been quicker than the watch */
    box->beat_ms = kji_monotonic_ms() + KJI_MAIL_BEAT_S * 1000;
    return r;
}

void kji_mailbox_watch(kji_mailbox *box, int inotify_fd)
{
    KJI_CLEANUP(kji_freep) char *path = box->dir ? kji_format("%s/in", box->dir) : NULL;
    if (path && inotify_fd >= 0 && !kji_is_network_path(path))
        box->watch = inotify_add_watch(inotify_fd, path,
                                       IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
}

void kji_mailbox_notice(kji_mailbox *box, kj_run *run, uint32_t mask)
{
    if (mask & (IN_DELETE_SELF | IN_MOVE_SELF))
        say_gone(box, run);
    else
        box->look_ms = 0;
}

static void beat(kji_mailbox *box, kj_run *run, int64_t now_ms)
{
    box->beat_ms = now_ms + KJI_MAIL_BEAT_S * 1000;
    if (utimensat(box->dir_fd, "alive", NULL, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        say_gone(box, run);
}

int64_t kji_mailbox_attend(kji_mailbox *box, kj_run *run, int64_t now_ms)
{
    if (!box->dir || box->is_gone)
        return INT64_MAX;
    if (box->beat_ms <= now_ms)
        beat(box, run, now_ms);
    if (box->look_ms <= now_ms) {
        enum outcome outcome = look(box, run);
        bool again = outcome == LATER || box->watch < 0;
        box->look_ms = outcome == MORE ? now_ms : again ? now_ms + box->rest_ms : INT64_MAX;
        box->rest_ms = 2 * box->rest_ms < LOOK_MS ? 2 * box->rest_ms : LOOK_MS;
    }
    return box->look_ms < box->beat_ms ? box->look_ms : box->beat_ms;
}

/* A record of a command: into the answers that it belongs to. Lock held. */
static void note(kji_mailbox *box, int64_t seq, const char *text)
{
    for (size_t k = place_of(box, seq); k < box->n_follow && box->follow[k].seq == seq; k++) {
        kji_mail_follow *one = &box->follow[k];
        kji_mail_answer *answer = &box->answer[one->answer];
        struct json_object *item = answer->json, *record;
        if (json_object_is_type(item, json_type_array))
            item = json_object_array_get_idx(item, one->item);
        if (!item || kji_json_parse(text, strlen(text), &record, NULL) < 0)
            continue;
        one->is_over = !kji_record_goes_on(record, &seq);
        json_object_object_add(item, "result", record);
        answer->is_changed = true;
    }
}

/* Lets go of the commands that have had their last word. Lock held. */
static void forget_those_over(kji_mailbox *box)
{
    size_t kept = 0;
    for (size_t k = 0; k < box->n_follow; k++) {
        if (box->follow[k].is_over)
            box->answer[box->follow[k].answer].n_followed--;
        else
            box->follow[kept++] = box->follow[k];
    }
    box->n_follow = kept;
}

/* Whoever removes an answer hears no more of it. */
static void write_changed(kji_mailbox *box, kj_run *run)
{
    for (size_t k = 0; k < KJI_MAIL_ANSWERS_MAX; k++) {
        kji_mail_answer *answer = &box->answer[k];
        mail_file file;
        if (!answer->is_changed)
            continue;
        KJI_CLEANUP(kji_freep) char *text = kji_json_text(answer->json);
        if (text &&
            faccessat(box->out_fd, answer_file(answer, file), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            write_answer(box, run, answer, text, strlen(text));
        else
            stop_following(box, k);
        answer->is_changed = false;
        if (answer->n_followed == 0)
            stop_following(box, k);
    }
}

/* The feed no longer has what happened, but the journal has. False at the end of it. Lock held. */
static bool note_lines(kji_mailbox *box, kj_run *run)
{
    struct json_object *lines;
    kji_feed_end(&run->feed, &box->cursor);
    if (kji_journal_read_back(&run->journal, box->n_noted, LINES_AT_ONCE, LINES_BYTES, &lines,
                              NULL) < 0)
        return false;
    size_t n = json_object_array_length(lines);
    for (size_t k = 0; k < n; k++) {
        struct json_object *line = json_object_array_get_idx(lines, k);
        int64_t seq;
        if (kji_json_int(line, "seq", &seq))
            note(box, seq, json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
        kji_json_int(line, "n", &box->n_noted);
    }
    json_object_put(lines);
    return n > 0 && box->n_noted < run->journal.last;
}

/* Likewise, of what the feed has. */
static bool note_events(kji_mailbox *box, kj_run *run)
{
    const kji_feed_event *event;
    int kind;
    for (int k = 0; k < EVENTS_AT_ONCE; k++) {
        event = kji_feed_next(&run->feed, &box->cursor, &kind);
        if (!event) {
            box->n_noted = run->journal.last;
            return false;
        }
        note(box, event->seq, event->text);
    }
    return true;
}

/* A part of what has happened; false at the end of it. */
static bool note_some(kji_mailbox *box, kj_run *run)
{
    kji_run_lock_second(run);
    if (kji_feed_skip_lost(&run->feed, &box->cursor, KJI_FEED_COMMANDS))
        box->has_lost = true;
    if (box->has_lost)
        box->has_lost = note_lines(box, run);
    bool more = box->has_lost || note_events(box, run);
    if (!more) {
        forget_those_over(box);
        stop_reading(box, run);
    }
    kji_run_unlock(run);
    return more;
}

void kji_mailbox_push(kji_mailbox *box, kj_run *run)
{
    if (!box->is_reader)
        return;
    while (note_some(box, run))
        ;
    write_changed(box, run);
}

static void say_ended(const kji_mailbox *box, kj_run *run)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    if (json_object_deep_copy(run->json, &json, NULL) < 0)
        return;
    json_object_object_add(json, "ended", kji_json_new_double(kji_wall_time()));
    write_json(box, json, NULL);
    utimensat(box->dir_fd, "alive", NULL, AT_SYMLINK_NOFOLLOW);
}

/* An open file may keep its folder, on network file systems: so the lock is let go of before that
 * goes, and after all else, since a new run of this id may wait for it. */
static void remove_box(kji_mailbox *box)
{
    kji_mail_empty(box->dir_fd);
    kji_forks_close(&box->lock_fd);
    kji_mail_remove(AT_FDCWD, box->dir);
}

void kji_mailbox_done(kji_mailbox *box, kj_run *run)
{
    if (!box->dir)
        return;
    kji_mailbox_push(box, run);
    kji_run_lock(run);
    box->n_follow = 0;
    stop_reading(box, run);
    kji_run_unlock(run);
    bool has_answers = unlinkat(box->dir_fd, "out", AT_REMOVEDIR) < 0 && errno == ENOTEMPTY;
    if (box->is_begun && has_answers)
        say_ended(box, run);
    else if (!box->is_gone)
        remove_box(box);
    free_box(box);
}
