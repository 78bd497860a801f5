/* SPDX-License-Identifier: Apache-2.0 */
/* A run's mailbox: what is obeyed, what is answered, and what is refused. */
#include "files.h"
#include "json.h"
#include "mailbox.h"
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char root[80], box[96]; /* MAILBOX, MAILBOX/RUN-ID */

static int set_up(void **state)
{
    int r = fix_set_up(state);
    snprintf(root, sizeof root, "%s/mail", fix.root);
    snprintf(box, sizeof box, "%s/test", root);
    setenv("KAJITORI_MAILBOX_DIR", root, 1);
    return r;
}

static int tear_down(void **state)
{
    unsetenv("KAJITORI_MAILBOX_DIR");
    return fix_tear_down(state);
}

/* A file in the mailbox's folder, put there by rename. */
static void put(const char *name, const char *text, size_t size)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/in", box);
    KJI_CLEANUP(kji_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_file_atomic(fd, name, text, size, NULL), 0);
}

static void put_request(const char *name, const char *method, const char *params)
{
    KJI_CLEANUP(kji_freep)
    char *file = kji_format("%s.json", name);
    KJI_CLEANUP(kji_freep)
    char *text =
        kji_format("{\"jsonrpc\": \"2.0\", \"id\": \"x\", \"method\": \"%s\", \"params\": %s}\n",
                   method, params);
    put(file, text, strlen(text));
}

static void put_lines(const char *name, const char *text)
{
    KJI_CLEANUP(kji_freep) char *file = kji_format("%s.txt", name);
    put(file, text, strlen(text));
}

/* What out/NAME.json holds now; NULL when there is none. */
static struct json_object *look(const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/out/%s.json", box, name);
    KJI_CLEANUP(kji_freep) char *text = NULL;
    struct json_object *json = NULL;
    size_t size;
    if (kji_read_file(AT_FDCWD, path, 1 << 24, &text, &size, NULL) < 0)
        return NULL;
    assert_int_equal(kji_json_parse(text, size, &json, NULL), 0);
    return json;
}

static struct json_object *get(struct json_object *object, const char *key)
{
    struct json_object *member = NULL;
    json_object_object_get_ex(object, key, &member);
    return member;
}

/* Waits for the answer, and until (item 0 of) it is in `state`, if not NULL. */
static struct json_object *wait_answer(const char *name, const char *state)
{
    for (time_t end = time(NULL) + 20; time(NULL) < end; sched_yield()) {
        struct json_object *answer = look(name);
        struct json_object *first = json_object_is_type(answer, json_type_array)
                                        ? json_object_array_get_idx(answer, 0)
                                        : answer;
        if (answer && (!state || strcmp(fix_text(get(first, "result"), "state"), state) == 0))
            return answer;
        json_object_put(answer);
        kj_run_poll(fix.run);
    }
    fail_msg("no answer %s in state %s", name, state ? state : "(any)");
    return NULL;
}

static void expect_error(const char *name, const char *part)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = wait_answer(name, NULL);
    struct json_object *one = json_object_is_type(answer, json_type_array)
                                  ? json_object_array_get_idx(answer, 0)
                                  : answer;
    const char *message = fix_text(get(one, "error"), "message");
    if (!strstr(message, part))
        fail_msg("\"%s\" in %s", part, json_object_to_json_string(answer));
}

static bool exists(const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", box, name);
    struct stat st;
    return lstat(path, &st) == 0;
}

static void test_names(void **state)
{
    (void)state;
    char name[KJI_MAIL_NAME_MAX + 1] = "untouched", longest[80];
    assert_int_equal(kji_mail_kind_of("a.json", name), KJI_MAIL_REQUEST);
    assert_string_equal(name, "a");
    assert_int_equal(kji_mail_kind_of("-A_9.b.txt", name), KJI_MAIL_LINES);
    assert_string_equal(name, "-A_9.b");
    static const char *const others[] = {".a.json", "a.JSON", "json", ".json", ".txt",
                                         "a b.txt", "a.txt~", "a",    "",      "\xc3\xa4.json"};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        assert_int_equal(kji_mail_kind_of(others[k], name), KJI_MAIL_OTHER);
    memset(longest, 'a', sizeof longest);
    strcpy(longest + 64, ".json");
    assert_int_equal(kji_mail_kind_of(longest, name), KJI_MAIL_REQUEST);
    strcpy(longest + 65, ".txt");
    assert_int_equal(kji_mail_kind_of(longest, name), KJI_MAIL_OTHER);
}

static void test_a_request_is_answered(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_request("one", "status", "{}");
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = wait_answer("one", NULL);
    assert_string_equal(fix_text(answer, "id"), "x");
    assert_string_equal(fix_text(get(answer, "result"), "state"), "running");
    assert_false(exists("in/one.json"));
    put_request("two", "hello", "{\"protocol\": 1}");
    KJI_CLEANUP(kji_json_putp) struct json_object *hello = wait_answer("two", NULL);
    struct json_object *run = get(get(hello, "result"), "run");
    assert_string_equal(fix_text(run, "mailbox"), box);
    put_request("three", "subscribe", "{}");
    expect_error("three", "a mailbox brings no events");
    put("four.json", "{", 1);
    expect_error("four", "");
}

static void test_a_command_and_its_states(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_request("later", "command", "{\"line\": \"set lr=0.5 at=step:5\", \"by\": \"me\"}");
    json_object_put(wait_answer("later", "scheduled"));
    kj_run_begin_step(fix.run, 5);
    assert_true(fix.lr == 0.5);
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = wait_answer("later", "done");
    struct json_object *record = get(answer, "result");
    assert_string_equal(fix_text(answer, "id"), "x");
    assert_string_equal(fix_text(record, "door"), "mailbox");
    assert_int_equal(fix_int(record, "step"), 5);
    assert_int_equal(fix_int(record, "uid"), geteuid());
    put_request("later", "command", "{\"line\": \"tick n=-1\"}");
    KJI_CLEANUP(kji_json_putp) struct json_object *failed = wait_answer("later", "failed");
    assert_string_equal(fix_text(get(failed, "result"), "error"), "cannot tick backwards");
    fix_close();
    KJI_CLEANUP(kji_json_putp) struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 1), "door"), "mailbox");
}

static void test_lines_of_text(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_lines("many", "set lr=0.25\n\n# nothing\nstpo\nset units=7\r\n\xff\nping");
    json_object_put(wait_answer("many", "done"));
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = NULL;
    for (;;) { /* the first one may be told of before the third */
        answer = look("many");
        struct json_object *third = get(json_object_array_get_idx(answer, 2), "result");
        if (strcmp(fix_text(third, "state"), "done") == 0)
            break;
        json_object_put(answer);
        kj_run_poll(fix.run);
    }
    assert_int_equal(json_object_array_length(answer), 5);
    struct json_object *second = get(json_object_array_get_idx(answer, 1), "error");
    assert_non_null(strstr(fix_text(second, "message"), "stop"));
    assert_int_equal(fix_int(get(second, "data"), "seq"), 2);
    assert_non_null(get(json_object_array_get_idx(answer, 3), "error"));
    assert_string_equal(fix_text(get(json_object_array_get_idx(answer, 4), "result"), "verb"),
                        "ping");
    assert_true(fix.lr == 0.25);
    assert_int_equal(fix.units, 7);
    fix_close();
    KJI_CLEANUP(kji_json_putp) struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 4), "state"), "rejected");
}

static void test_order_is_that_of_names(void **state)
{
    (void)state;
    fix_open(NULL, KJ_RUN_LISTEN_LATER);
    for (int k = 199; k >= 0; k--) {
        char name[20], line[40];
        snprintf(name, sizeof name, "n%03d", k);
        snprintf(line, sizeof line, "tick n=%d", k);
        put_lines(name, line);
    }
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    json_object_put(wait_answer("n199", "done"));
    fix_close();
    KJI_CLEANUP(kji_json_putp) struct json_object *journal = fix_journal();
    for (int k = 0; k < 200; k++)
        assert_int_equal(fix_int(get(fix_last_record(journal, k + 1), "args"), "n"), k);
}

static void test_what_is_no_request_is_refused(void **state)
{
    (void)state;
    char path[160], other[160];
    fix_open(NULL, 0);
    snprintf(other, sizeof other, "%s/other", fix.root);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(kji_write_all(fd, "stop\n", 5, NULL), 0);
    close(fd);
    snprintf(path, sizeof path, "%s/in/.t", box);
    assert_int_equal(symlink(other, path), 0);
    char to[160];
    snprintf(to, sizeof to, "%s/in/link.txt", box);
    assert_int_equal(rename(path, to), 0);
    expect_error("link", "symbolic link");

    assert_int_equal(link(other, path), 0);
    snprintf(to, sizeof to, "%s/in/hard.txt", box);
    assert_int_equal(rename(path, to), 0);
    expect_error("hard", "second name");

    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(to, sizeof to, "%s/in/fifo.json", box);
    assert_int_equal(rename(path, to), 0);
    expect_error("fifo", "no regular file");

    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(to, sizeof to, "%s/in/folder.json", box);
    assert_int_equal(rename(path, to), 0);
    expect_error("folder", "no regular file");

    KJI_CLEANUP(kji_freep) char *big = malloc(KJI_MAIL_BYTES_MAX + 1);
    memset(big, '\n', KJI_MAIL_BYTES_MAX + 1);
    put("big.txt", big, KJI_MAIL_BYTES_MAX + 1);
    expect_error("big", "65536 bytes");
    put("tall.txt", big, 1001);
    expect_error("tall", "1000 lines");

    if (geteuid() == 0) {
        put(".t", "stop\n", 5);
        assert_int_equal(chown(path, 12345, 12345), 0);
        snprintf(to, sizeof to, "%s/in/foreign.txt", box);
        assert_int_equal(rename(path, to), 0);
        expect_error("foreign", "another user");
    }
    for (const char *const *file = (const char *const[]){"in/link.txt", "in/hard.txt",
                                                         "in/fifo.json", "in/folder.json", NULL};
         *file; file++)
        assert_false(exists(*file));
    struct stat st;
    assert_int_equal(stat(other, &st), 0); /* where the link led to is untouched */
    kj_run_poll(fix.run);
    assert_false(kj_run_should_stop(fix.run));
    assert_non_null(strstr(fix.log, "link.txt") ? "" : strstr(fix.log, "link"));
}

static void test_other_names_are_left_alone(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put(".hidden.json", "stop", 4);
    put("notes.md", "stop", 4);
    put_lines("last", "ping");
    json_object_put(wait_answer("last", "done"));
    assert_true(exists("in/.hidden.json"));
    assert_true(exists("in/notes.md"));
}

static void test_stale_requests_are_not_obeyed(void **state)
{
    (void)state;
    char path[160];
    const char *const folders[] = {"", "/in", "/out"};
    assert_int_equal(mkdir(root, 0700), 0);
    for (size_t k = 0; k < 3; k++) {
        snprintf(path, sizeof path, "%s%s", box, folders[k]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put_lines("old", "stop");
    fix_open(NULL, 0);
    expect_error("old", "before this run began");
    kj_run_poll(fix.run);
    assert_false(kj_run_should_stop(fix.run));
    fix_close();
    KJI_CLEANUP(kji_json_putp) struct json_object *journal = fix_journal();
    struct json_object *stale = fix_find_event(journal, "stale");
    assert_non_null(stale);
    assert_string_equal(fix_text(stale, "door"), "mailbox");
    assert_string_equal(fix_text(stale, "text"), "stop");
}

static void test_at_the_end(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_request("never", "command", "{\"line\": \"set lr=0.5 at=step:500\"}");
    json_object_put(wait_answer("never", "scheduled"));
    fix_close();
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = look("never");
    assert_string_equal(fix_text(get(answer, "result"), "state"), "expired");
    KJI_CLEANUP(kji_closep) int fd = open(box, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    KJI_CLEANUP(kji_json_putp) struct json_object *json = kji_mail_read_json(fd);
    assert_non_null(get(json, "ended"));
    assert_int_equal(kji_mail_check_alive(fd, json, kji_mail_clock(fd), NULL), KJ_ENORUN);
    fix_open(NULL, 0); /* the same id again: nothing of the old answers is left */
    assert_null(look("never"));
    fix_close();
    assert_false(exists(""));
}

static void test_a_mailbox_that_is_in_use(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    snprintf(fix.runtime, sizeof fix.runtime, "%s/run2", fix.root);
    kj_run *second = fix_open_other(NULL, 0, "test");
    assert_non_null(strstr(fix.log, "another live run has the mailbox"));
    kj_run_close(second);
    put_lines("still", "ping");
    json_object_put(wait_answer("still", "done"));
}

static void test_a_run_on_another_host(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_lines("keep", "ping"); /* so that the mailbox stays */
    json_object_put(wait_answer("keep", "done"));
    fix_close();
    KJI_CLEANUP(kji_closep) int fd = open(box, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *text = "{\"host\": \"far\", \"boot_id\": \"another\"}";
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    assert_int_equal(kji_json_parse(text, strlen(text), &json, NULL), 0);
    assert_int_equal(kji_mail_check_alive(fd, json, kji_mail_clock(fd), NULL), 0);
    assert_int_equal(kji_write_file_atomic(fd, "run.json", text, strlen(text), NULL), 0);
    fix_open(NULL, 0);
    assert_non_null(strstr(fix.log, "a run on host far has the mailbox"));
    fix_close();
    kj_error err = KJ_ERROR_INIT;
    struct timespec old[2] = {{.tv_sec = time(NULL) - 100}, {.tv_sec = time(NULL) - 100}};
    assert_int_equal(utimensat(fd, "alive", old, 0), 0);
    assert_int_equal(kji_mail_check_alive(fd, json, kji_mail_clock(fd), &err), KJ_ENORUN);
    assert_non_null(strstr(err.message, "no sign of life"));
    fix_open(NULL, 0);
    put_lines("ours", "ping");
    json_object_put(wait_answer("ours", "done"));
}

static void test_a_mailbox_that_is_deleted(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_lines("one", "ping");
    json_object_put(wait_answer("one", "done"));
    kji_test_remove_tree(box);
    for (time_t end = time(NULL) + 20; time(NULL) < end && fix.n_warnings == 0; sched_yield())
        kj_run_poll(fix.run);
    assert_non_null(strstr(fix.log, "was deleted"));
    fix_write(fix_ctl(), "stop\n");
    fix_wait_seq(2);
    assert_true(kj_run_poll(fix.run) & KJ_RUN_STOP);
    fix_close();
    assert_int_equal(fix.n_warnings, 1);
    assert_false(exists(""));
}

static void test_a_reader_who_removes_an_answer_hears_no_more(void **state)
{
    (void)state;
    char path[160];
    fix_open(NULL, 0);
    put_request("gone", "command", "{\"line\": \"set lr=0.5 at=step:5\"}");
    json_object_put(wait_answer("gone", "scheduled"));
    put_request("kept", "command", "{\"line\": \"set lr=0.6 at=step:5\"}");
    json_object_put(wait_answer("kept", "scheduled"));
    snprintf(path, sizeof path, "%s/out/gone.json", box);
    assert_int_equal(unlink(path), 0);
    kj_run_begin_step(fix.run, 5);
    json_object_put(wait_answer("kept", "done"));
    assert_false(exists("out/gone.json"));
}

static void test_answers_are_bounded(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_lines("first", "set lr=0.125 at=step:5");
    json_object_put(wait_answer("first", "scheduled"));
    for (int k = 0; k < 1000; k++) {
        char name[20];
        snprintf(name, sizeof name, "n%03d", k);
        put_lines(name, "# nothing");
    }
    KJI_CLEANUP(kji_json_putp) struct json_object *last = wait_answer("n999", NULL);
    assert_int_equal(json_object_array_length(last), 0);
    assert_false(exists("out/first.json"));
    assert_true(exists("out/n000.json"));
    kj_run_begin_step(fix.run, 5);
    assert_true(fix.lr == 0.125);
    put_lines("next", "ping");
    json_object_put(wait_answer("next", "done"));
    assert_false(exists("out/first.json"));
    assert_false(exists("out/n000.json"));
}

static kj_client *open_client(void)
{
    kj_client *client = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_client_open(box, &client, &err) < 0)
        fail_msg("%s", err.message);
    return client;
}

static void test_a_client(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_client *client = open_client();
    char *json = NULL;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_client_call(client, "params", NULL, 20000, &json, &err), 0);
    assert_non_null(strstr(json, "units"));
    kj_free(json);
    assert_string_equal(kj_client_get_version(client), kj_version());
    assert_int_equal(kj_client_command(client, "{\"line\": \"set lr=0.5 at=step:5\"}",
                                       KJ_WAIT_ACCEPTED, 20000, &json, &err),
                     0);
    assert_non_null(strstr(json, "\"seq\":1"));
    kj_free(json);
    assert_int_equal(
        kj_client_command(client, "{\"line\": \"stpo\"}", KJ_WAIT_DONE, 20000, &json, &err),
        KJ_EREJECTED);
    assert_non_null(strstr(err.message, "stop"));
    assert_int_equal(
        kj_client_command(client, "{\"line\": \"set units=5\"}", KJ_WAIT_APPLIED, 100, &json, &err),
        KJ_ETIMEOUT); /* nobody polls */
    assert_non_null(strstr(err.message, "may still be applied"));
    kj_run_begin_step(fix.run, 5);
    for (bool seen = false; !seen;) { /* the first command is done: told without being asked */
        assert_int_equal(kj_client_next_event(client, 20000, &json, &err), 1);
        seen = strstr(json, "\"done\"") && strstr(json, "\"seq\":1,");
        kj_free(json);
    }
    assert_int_equal(kj_client_call(client, "subscribe", NULL, 20000, &json, &err),
                     KJ_EUNSUPPORTED);
    assert_int_equal(kj_client_call(client, "nothing", NULL, 20000, &json, &err), KJ_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "no method"));
    kj_client_close(client);
}

static void *stop_and_wait(void *data)
{
    kj_client *client = data;
    char *json = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kj_client_command(client, "{\"verb\": \"stop\"}", KJ_WAIT_DONE, 20000, &json, &err);
    bool good = r == 0 && strstr(json, "\"done\"");
    kj_free(json);
    return good ? client : NULL;
}

static void test_a_client_waits_for_what_ends_the_run(void **state)
{
    (void)state;
    pthread_t thread;
    void *good;
    fix_open(NULL, 0);
    kj_client *client = open_client();
    assert_int_equal(pthread_create(&thread, NULL, stop_and_wait, client), 0);
    while (!(kj_run_poll(fix.run) & KJ_RUN_STOP))
        sched_yield();
    fix_close(); /* at once */
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_non_null(good);
    char *json;
    assert_int_equal(kj_client_call(client, "ping", NULL, 20000, &json, NULL), KJ_EENDED);
    kj_client_close(client);
}

static void test_a_request_that_is_taken_back(void **state)
{
    (void)state;
    fix_open(NULL, KJ_RUN_LISTEN_LATER);
    kj_client *client = open_client();
    char *json = NULL;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(
        kj_client_command(client, "{\"verb\": \"stop\"}", KJ_WAIT_APPLIED, 20, &json, &err),
        KJ_ETIMEOUT);
    assert_non_null(strstr(err.message, "was taken back"));
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    put_lines("last", "ping");
    json_object_put(wait_answer("last", "done"));
    assert_false(kj_run_should_stop(fix.run));
    kj_client_close(client);
}

static void test_a_client_that_only_looks_is_refused(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_client *client = NULL;
    kj_error err = KJ_ERROR_INIT;
    kj_client_options options = KJ_CLIENT_OPTIONS_INIT;
    options.flags = KJ_CLIENT_READ_ONLY;
    assert_int_equal(kj_client_open_with(box, &options, &client, &err), KJ_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "no read-only door"));
    fix_close();
}

static void test_a_client_of_a_dead_run(void **state)
{
    (void)state;
    kj_client *client;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_client_open(box, &client, &err), KJ_ENORUN);
    fix_open(NULL, 0);
    put_lines("keep", "ping");
    json_object_put(wait_answer("keep", "done"));
    fix_close();
    assert_int_equal(kj_client_open(box, &client, &err), KJ_ENORUN);
    assert_non_null(strstr(err.message, "the run has ended"));
}

/* Whether this process has anything of a mailbox open. */
static bool has_kept_something(void)
{
    DIR *listing = opendir("/proc/self/fd");
    bool found = listing == NULL;
    for (struct dirent *item; !found && (item = readdir(listing));) {
        char target[300] = "";
        if (readlinkat(dirfd(listing), item->d_name, target, sizeof target - 1) > 0)
            found = strncmp(target, box, strlen(box)) == 0;
    }
    if (listing)
        closedir(listing);
    return found;
}

static void test_a_forked_child_keeps_nothing(void **state)
{
    (void)state;
    int status;
    fix_open(NULL, 0);
    assert_true(has_kept_something());
    pid_t child = fork();
    if (child == 0)
        _exit(has_kept_something());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    put_lines("still", "ping");
    json_object_put(wait_answer("still", "done"));
}

static void expect_list(const char *runtime, const char *dir)
{
    kj_run_list *list;
    setenv("KAJITORI_RUNTIME_DIR", runtime, 1);
    assert_int_equal(kj_run_list_load(NULL, &list, NULL), 0);
    assert_int_equal(kj_run_list_size(list), dir ? 1 : 0);
    if (dir)
        assert_string_equal(kj_run_list_get(list, 0)->dir, dir);
    kj_run_list_free(list);
    unsetenv("KAJITORI_RUNTIME_DIR");
}

static void test_listing(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    KJI_CLEANUP(kji_freep) char *doors = strdup(kj_run_dir(fix.run));
    expect_list(fix.runtime, doors); /* once */
    expect_list(fix.root, box);      /* as on another host */
    put_lines("keep", "ping");
    json_object_put(wait_answer("keep", "done"));
    fix_close();
    expect_list(fix.root, NULL);
    assert_true(exists("out/keep.json"));
    char alive[160];
    snprintf(alive, sizeof alive, "%s/alive", box);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 90000}, {.tv_sec = time(NULL) - 90000}};
    assert_int_equal(utimensat(AT_FDCWD, alive, old, 0), 0);
    expect_list(fix.root, NULL);
    assert_false(exists(""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Without a descriptor left a request waits for one, although nothing tells when there is one. */
static void test_a_request_waits_for_a_descriptor(void **state)
{
    (void)state;
    struct rlimit limit, low;
    fix_open(NULL, KJ_RUN_THREADLESS);
    put(".hidden", "ping\n", 5);
    KJI_CLEANUP(kji_freep) char *from = kji_format("%s/in/.hidden", box);
    KJI_CLEANUP(kji_freep) char *to = kji_format("%s/in/one.txt", box);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    int first_free = dup(0);
    close(first_free);
    low.rlim_cur = (rlim_t)first_free;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int r = rename(from, to);
    kji_mailbox *mailbox = &fix.run->helper.mailbox[KJI_MAILBOX_SHARED];
    mailbox->look_ms = INT64_MAX; /* but for what inotify says now */
    kji_helper_wait(&fix.run->helper, 0);
    kji_helper_wait(&fix.run->helper, 0); /* looks, in vain */
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(r, 0);
    assert_true(exists("in/one.txt"));
    json_object_put(wait_answer("one", "done"));
}

static int count_done(const char *name)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = look(name);
    int n = 0;
    for (size_t k = 0; answer && k < json_object_array_length(answer); k++) {
        struct json_object *record = get(json_object_array_get_idx(answer, k), "result");
        n += strcmp(fix_text(record, "state"), "done") == 0;
    }
    return n;
}

/* More happens at one safe point than the feed keeps. */
static void test_each_of_many_commands_has_its_last_word(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    enum { EACH = 1000, FILES = sizeof names / sizeof *names };
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf lines = KJI_STRBUF_INIT;
    fix_open(NULL, KJ_RUN_THREADLESS);
    for (int k = 0; k < EACH; k++)
        kji_strbuf_puts(&lines, "tick\n");
    for (size_t k = 0; k < FILES; k++)
        put_lines(names[k], lines.text);
    while (fix.n_ticks < EACH * FILES)
        kj_run_poll(fix.run);
    kji_mailbox_push(&fix.run->helper.mailbox[KJI_MAILBOX_SHARED], fix.run);
    for (size_t k = 0; k < FILES; k++)
        assert_int_equal(count_done(names[k]), EACH);
    assert_int_equal(fix.run->feed.n_readers, 0);
}

static void test_however_many_are_stale(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    fix_open(NULL, 0);
    fix_close();
    KJI_CLEANUP(kji_freep) char *in = kji_format("%s/in", box);
    KJI_CLEANUP(kji_freep) char *out = kji_format("%s/out", box);
    assert_int_equal(mkdir(box, 0700), 0);
    assert_int_equal(mkdir(in, 0700), 0);
    assert_int_equal(mkdir(out, 0700), 0);
    KJI_CLEANUP(kji_closep) int fd = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int k = 0; k < MANY; k++) {
        KJI_CLEANUP(kji_freep) char *file = kji_format("%06d.txt", k);
        assert_int_equal(kji_write_file_atomic(fd, file, "set lr=0.75\n", 12, NULL), 0);
    }
    fix_open(NULL, 0);
    put_lines("new", "ping");
    KJI_CLEANUP(kji_json_putp) struct json_object *answer = wait_answer("new", "done");
    struct json_object *record = get(json_object_array_get_idx(answer, 0), "result");
    assert_int_equal(fix_int(record, "seq"), 1); /* no other command was taken in */
    assert_false(exists("in/004999.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names),
        TEST(test_a_request_is_answered),
        TEST(test_a_request_waits_for_a_descriptor),
        TEST(test_each_of_many_commands_has_its_last_word),
        TEST(test_however_many_are_stale),
        TEST(test_a_command_and_its_states),
        TEST(test_lines_of_text),
        TEST(test_order_is_that_of_names),
        TEST(test_what_is_no_request_is_refused),
        TEST(test_other_names_are_left_alone),
        TEST(test_stale_requests_are_not_obeyed),
        TEST(test_at_the_end),
        TEST(test_a_mailbox_that_is_in_use),
        TEST(test_a_run_on_another_host),
        TEST(test_a_mailbox_that_is_deleted),
        TEST(test_a_reader_who_removes_an_answer_hears_no_more),
        TEST(test_answers_are_bounded),
        TEST(test_a_client),
        TEST(test_a_client_waits_for_what_ends_the_run),
        TEST(test_a_request_that_is_taken_back),
        TEST(test_a_client_that_only_looks_is_refused),
        TEST(test_a_client_of_a_dead_run),
        TEST(test_a_forked_child_keeps_nothing),
        TEST(test_listing),
    };
    return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
