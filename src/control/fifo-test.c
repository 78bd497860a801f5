/* SPDX-License-Identifier: Apache-2.0 */
/* The FIFO doors: what real writers do to them. */
#include "clock.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const char *state_of(struct json_object *journal, int64_t seq)
{
    return fix_text(fix_last_record(journal, seq), "state");
}

static const char *error_of(struct json_object *journal, int64_t seq)
{
    return fix_text(fix_last_record(journal, seq), "error");
}

static void *nothing(void *data)
{
    return data;
}

static void test_200_writers_lose_nothing(void **state)
{
    (void)state;
    enum { WRITERS = 4, EACH = 50 };
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    fix_open(fix.fifo, 0);
    char script[300];
    snprintf(script, sizeof script, "for k in $(seq %d); do echo tick n=1 > %s; done", EACH,
             fix.fifo);
    char sh[] = "sh", minus_c[] = "-c", path[] = "PATH=/bin:/usr/bin";
    char *argv[] = {sh, minus_c, script, NULL}, *env[] = {path, NULL};
    pid_t pids[WRITERS];
    for (int k = 0; k < WRITERS; k++)
        assert_int_equal(posix_spawn(&pids[k], "/bin/sh", NULL, NULL, argv, env), 0);
    for (int64_t step = 0; fix.n_ticks < WRITERS * EACH; step++) {
        kj_run_begin_step(fix.run, step);
        sched_yield();
    }
    for (int k = 0; k < WRITERS; k++) {
        int status;
        assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(fix.tick_sum, WRITERS * EACH);
}

static void test_lines_as_they_come(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int fd = open(fix_ctl(), O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, "\n  \n# nothing\nti", 16), 16);
    assert_int_equal(write(fd, "ck n=1\r\nTICK n=2\ntick n=", 24), 24);
    assert_int_equal(write(fd, "4\n", 2), 2);
    fix_wait_seq(3);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 7);
    assert_int_equal(write(fd, "tick n=8", 8), 8);
    close(fd); /* a last line without newline counts now */
    fix_wait_seq(4);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 15);
}

static void test_bad_lines_are_rejected_and_the_next_one_is_read(void **state)
{
    (void)state;
    static char long_line[3 * KJI_LINE_MAX];
    fix_open(NULL, 0);
    memset(long_line, 'x', sizeof long_line - 1);
    int fd = open(fix_ctl(), O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, long_line, strlen(long_line)), strlen(long_line));
    assert_int_equal(write(fd, "\n\xff\xfe\nset lr=\"\nset lr=nan\ntick n=1\n", 34), 34);
    close(fd);
    fix_wait_seq(5);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
    struct json_object *journal = fix_journal();
    for (int64_t seq = 1; seq <= 4; seq++)
        assert_string_equal(state_of(journal, seq), "rejected");
    assert_non_null(strstr(error_of(journal, 1), "4096"));
    assert_non_null(strstr(error_of(journal, 2), "UTF-8"));
    assert_non_null(strstr(error_of(journal, 3), "quote"));
    assert_string_equal(state_of(journal, 5), "done");
    assert_string_equal(fix_text(fix_last_record(journal, 5), "door"), "ctl");
    json_object_put(journal);
}

/* Else the last writer's end would wake the helper thread for ever. */
static void test_both_are_held_open_for_writing(void **state)
{
    (void)state;
    fix_open(fix.fifo, 0);
    fix_write(fix.fifo, "tick n=1\n");
    fix_write(fix_ctl(), "tick n=2\n");
    fix_wait_seq(2);
    struct pollfd ends[] = {{.fd = fix.run->helper.ctl.fd, .events = POLLIN},
                            {.fd = fix.run->helper.user.fd, .events = POLLIN}};
    assert_int_equal(poll(ends, 2, 0), 0);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 3);
}

static void test_a_line_at_the_limit(void **state)
{
    (void)state;
    static char line[KJI_LINE_MAX + 3];
    fix_open(NULL, 0);
    memset(line, ' ', sizeof line - 1);
    memcpy(line, "tick n=1", 8);
    line[KJI_LINE_MAX] = '\n';
    line[KJI_LINE_MAX + 1] = 0;
    fix_write(fix_ctl(), line);
    fix_wait_seq(1);
    memcpy(line + KJI_LINE_MAX, " \n", 3);
    fix_write(fix_ctl(), line);
    fix_wait_seq(2);
    struct json_object *journal = fix_journal();
    assert_string_equal(state_of(journal, 1), "accepted");
    assert_string_equal(state_of(journal, 2), "rejected");
    json_object_put(journal);
}

/* How many lines of the journal are in `state`. */
static int count_state(struct json_object *journal, const char *state)
{
    int n = 0;
    for (size_t k = 0; k < json_object_array_length(journal); k++)
        n += strcmp(fix_text(json_object_array_get_idx(journal, k), "state"), state) == 0;
    return n;
}

/* What the summaries of a flood say in all. */
static int64_t count_hidden(struct json_object *journal)
{
    int64_t n = 0;
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        if (strcmp(fix_text(line, "event"), "flood") != 0)
            continue;
        n += fix_int(line, "lines");
        assert_string_equal(fix_text(line, "door"), "ctl");
        assert_string_equal(fix_text(line, "text"), "bogus");
    }
    return n;
}

static void test_a_flood_is_counted_and_a_command_in_it_obeyed(void **state)
{
    (void)state;
    enum { HALF = 1000 };
    fix_open(NULL, 0);
    for (int k = 0; k < HALF; k++)
        fix_write(fix_ctl(), "bogus 1\n");
    fix_write(fix_ctl(), "tick n=1\n");
    for (int k = 0; k < HALF; k++)
        fix_write(fix_ctl(), "bogus 2\n");
    while (fix.n_ticks == 0) {
        kj_run_poll(fix.run);
        sched_yield();
    }
    fix_close();
    struct json_object *journal = fix_journal();
    int told = count_state(journal, "rejected");
    assert_true(told >= KJI_FLOOD_LINES && told < 2 * KJI_FLOOD_LINES);
    assert_int_equal(told + count_hidden(journal), 2 * HALF);
    assert_int_equal(count_state(journal, "done"), 1);
    json_object_put(journal);
}

static void test_a_last_line_without_inotify(void **state)
{
    (void)state;
    fix_open(NULL, KJ_RUN_LISTEN_LATER);
    fix.run->helper.ctl.watch = -1; /* as where no instance can be had */
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    int fd = open(fix_ctl(), O_WRONLY | O_CLOEXEC);
    assert_int_equal(kji_write_all(fd, "set lr=0.5\nset units=7", 22, NULL), 0);
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_int_equal(fix.units, 7);
    assert_int_equal(fix.n_warnings, 0);
    close(fd);
}

static void test_a_flood_is_told_of_while_the_run_goes_on(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    for (int k = 0; k < 2 * KJI_FLOOD_LINES; k++)
        fix_write(fix_ctl(), "bogus\n");
    int64_t hidden = 0;
    while (hidden < KJI_FLOOD_LINES / 2) {
        struct json_object *journal = fix_journal();
        hidden = count_hidden(journal);
        json_object_put(journal);
        sched_yield();
    }
}

/* Of lines that do something: ten thousand at once, then two a millisecond. */
static void test_how_long_a_fifo_rests(void **state)
{
    (void)state;
    kji_flood flood = {0};
    kji_flood_take(&flood, 5000, KJI_FLOOD_BURST);
    assert_int_equal(kji_flood_rest_ms(&flood, 5000), 0);
    kji_flood_take(&flood, 5000, 93);
    assert_int_equal(kji_flood_rest_ms(&flood, 5000), 47);
    assert_int_equal(kji_flood_rest_ms(&flood, 5040), 7);
    assert_int_equal(kji_flood_rest_ms(&flood, 5047), 0);
    kji_flood_take(&flood, 6047, KJI_FLOOD_PER_S);
    assert_int_equal(kji_flood_rest_ms(&flood, 6047), 0);
    kji_flood_take(&flood, 60000, KJI_FLOOD_BURST + 1);
    assert_int_equal(kji_flood_rest_ms(&flood, 60000), 1);
}

typedef struct line_writer {
    pthread_t thread;
    int n_lines;
    const char *last;
} line_writer;

static void *write_lines(void *data)
{
    const line_writer *writer = data;
    int fd = open(fix_ctl(), O_WRONLY | O_CLOEXEC);
    for (int k = 0; k < writer->n_lines; k++)
        assert_int_equal(write(fd, "tick n=1\n", 9), 9);
    assert_int_equal(kji_write_all(fd, writer->last, strlen(writer->last), NULL), 0);
    close(fd);
    return NULL;
}

static size_t queued(void)
{
    pthread_mutex_lock(&fix.run->lock);
    size_t n = fix.run->n_queued;
    pthread_mutex_unlock(&fix.run->lock);
    return n;
}

/* The training is busy for long: what it does not take up waits in the FIFO, and its writer there.
 */
static void test_commands_wait_in_the_fifo_and_none_is_lost(void **state)
{
    (void)state;
    enum { LINES = 9500, AT_MOST = 1000 + 1024 / 9 };
    line_writer lines = {.n_lines = LINES, .last = "tick n=1"};
    fix_open(NULL, 0);
    struct pollfd ctl = {.fd = open(fix_ctl(), O_WRONLY | O_CLOEXEC), .events = POLLOUT};
    pthread_create(&lines.thread, NULL, write_lines, &lines);
    while (poll(&ctl, 1, 0) > 0)
        sched_yield();
    for (int64_t end = kji_monotonic_ms() + 100; kji_monotonic_ms() < end;)
        assert_in_range(queued(), 0, AT_MOST);
    while (fix.n_ticks <= LINES) {
        assert_in_range(queued(), 0, AT_MOST);
        kj_run_poll(fix.run);
    }
    pthread_join(lines.thread, NULL);
    close(ctl.fd);
    fix_close();
    struct json_object *journal = fix_journal();
    assert_int_equal(count_state(journal, "done"), LINES + 1);
    assert_int_equal(count_state(journal, "rejected"), 0);
    json_object_put(journal);
}

/* Its writers are not told of a rejection, as those of the socket are. */
static void test_a_fifo_waits_while_the_socket_fills_the_queue(void **state)
{
    (void)state;
    enum { LINES = 300 };
    fix_open(NULL, 0);
    int client = fix_connect();
    while (queued() < KJI_QUEUE_MAX)
        json_object_put(fix_command(client, "tick n=1"));
    line_writer lines = {.n_lines = LINES - 1, .last = "tick n=1\n"};
    pthread_create(&lines.thread, NULL, write_lines, &lines);
    pthread_join(lines.thread, NULL);
    json_object_put(fix_call(client, "ping", "{}"));
    while (fix.n_ticks < KJI_QUEUE_MAX + LINES)
        kj_run_poll(fix.run);
    close(client);
    fix_close();
    struct json_object *journal = fix_journal();
    assert_int_equal(count_state(journal, "rejected"), 0);
    json_object_put(journal);
}

static void test_a_stop_behind_many_reaches_a_paused_run(void **state)
{
    (void)state;
    line_writer lines = {.n_lines = 5000, .last = "stop\n"};
    fix_open(NULL, 0);
    fix_write(fix_ctl(), "pause\n");
    fix_wait_seq(1);
    pthread_create(&lines.thread, NULL, write_lines, &lines);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_int_equal(fix.n_ticks, lines.n_lines);
    pthread_join(lines.thread, NULL);
}

/* Lines that reach the FIFO when the run is ending are answered in the journal, and are not left
 * for the next run. */
static void test_what_comes_too_late_is_rejected(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    fix_open(fix.fifo, 0);
    int fd = open(fix.fifo, O_WRONLY | O_CLOEXEC);
    kji_helper_join(&fix.run->helper);
    fix.run->helper.is_running = true; /* its thread has just left its loop, so to speak */
    pthread_create(&fix.run->helper.thread, NULL, nothing, NULL);
    assert_int_equal(write(fd, "stop\ntick", 9), 9);
    fix_close();
    struct json_object *journal = fix_journal();
    assert_string_equal(state_of(journal, 1), "rejected");
    assert_non_null(strstr(error_of(journal, 1), "ending"));
    json_object_put(journal);
    fix_open(fix.fifo, 0); /* the writer is still there */
    assert_int_equal(kj_run_poll(fix.run), 0);
    close(fd);
}

/* A program without a log hook has nothing else to tell it. */
static void expect_journalled(const char *part)
{
    struct json_object *journal = fix_journal();
    struct json_object *warning = fix_find_event(journal, "warning");
    assert_non_null(warning);
    assert_non_null(strstr(fix_text(warning, "text"), part));
    json_object_put(journal);
}

static void expect_refused(const char *path, int code, const char *part)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.fifo_path = path;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.flags = KJ_RUN_STRICT;
    assert_int_equal(kj_run_open(&options, &run, &err), code);
    assert_non_null(strstr(err.message, part));
    assert_null(run);
    fix.n_warnings = 0;
    fix_open(path, 0); /* not strict: one warning, and the other doors work */
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, part));
    expect_journalled(part);
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
}

static void test_a_regular_file_is_refused(void **state)
{
    (void)state;
    int fd = open(fix.fifo, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "stop\n", 5), 5);
    close(fd);
    expect_refused(fix.fifo, KJ_EARG, "regular file");
    struct stat st;
    assert_int_equal(stat(fix.fifo, &st), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_size == 5);
}

static void test_a_missing_folder_is_refused(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/missing/fifo", fix.root);
    expect_refused(path, KJ_ENOENT, "missing/fifo");
}

static void test_a_missing_fifo_is_made_and_removed(void **state)
{
    (void)state;
    struct stat st;
    fix_open(fix.fifo, KJ_RUN_STRICT);
    assert_int_equal(stat(fix.fifo, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    fix_close();
    assert_int_equal(stat(fix.fifo, &st), -1);
}

static void test_an_existing_fifo_is_used_and_left(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkfifo(fix.fifo, 0666), 0);
    assert_int_equal(chmod(fix.fifo, 0666), 0);
    fix_open(fix.fifo, KJ_RUN_STRICT);
    fix_write(fix.fifo, "tick n=1\n");
    fix_wait_seq(1);
    fix_close();
    assert_int_equal(stat(fix.fifo, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 1), "door"), "fifo");
    json_object_put(journal);
    /* Nobody reads now: a writer is told so instead of waiting. */
    assert_int_equal(open(fix.fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
    assert_int_equal(errno, ENXIO);
}

static void test_a_second_run_on_one_fifo_is_refused(void **state)
{
    (void)state;
    fix_open(fix.fifo, 0);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *second = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.fifo_path = fix.fifo;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.flags = KJ_RUN_STRICT;
    assert_int_equal(kj_run_open(&options, &second, &err), KJ_EBUSY);
    assert_non_null(strstr(err.message, "another run"));
    fix_write(fix.fifo, "tick n=1\n");
    fix_wait_seq(1);
}

static void *open_and_write(void *data)
{
    fix_write(fix.fifo, data);
    return NULL;
}

/* Whether a thread of ours sleeps: the writer does nothing that could, but open(2). */
static bool is_asleep(pid_t tid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    return strstr(text, ") S ") != NULL;
}

static pid_t writer_tid;

static void *announce_and_write(void *data)
{
    __atomic_store_n(&writer_tid, gettid(), __ATOMIC_RELEASE);
    return open_and_write(data);
}

static void test_a_writer_from_before_is_not_obeyed(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    char old_command[] = "stop reason=old\n";
    pthread_t writer;
    writer_tid = 0;
    assert_int_equal(pthread_create(&writer, NULL, announce_and_write, old_command), 0);
    pid_t tid;
    while ((tid = __atomic_load_n(&writer_tid, __ATOMIC_ACQUIRE)) == 0 || !is_asleep(tid))
        sched_yield();
    fix_open(fix.fifo, 0);
    pthread_join(writer, NULL);
    fix_write(fix.fifo, "tick n=1\n");
    fix_wait_seq(1);
    assert_int_equal(kj_run_poll(fix.run), 0); /* no stop */
    assert_int_equal(fix.tick_sum, 1);
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_find_event(journal, "stale"), "text"), "stop reason=old ");
    json_object_put(journal);
}

static void test_a_silent_writer_from_before_freezes_nothing(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    int silent = open(fix.fifo, O_RDWR | O_CLOEXEC);
    fix_open(fix.fifo, 0);
    assert_int_equal(kj_run_poll(fix.run), 0);
    fix_write(fix.fifo, "tick n=1\n");
    fix_wait_seq(1);
    close(silent);
}

static void wait_warnings(int n)
{
    while (fix.n_warnings < n) {
        kj_run_poll(fix.run);
        sched_yield();
    }
}

static void test_a_deleted_fifo_is_one_warning(void **state)
{
    (void)state;
    fix_open(fix.fifo, 0);
    int fd = open(fix.fifo, O_WRONLY | O_CLOEXEC);
    assert_int_equal(unlink(fix.fifo), 0);
    wait_warnings(1);
    assert_non_null(strstr(fix.log, "was deleted"));
    assert_int_equal(write(fd, "tick n=1\n", 9), 9); /* who has it open goes on */
    fix_wait_seq(1);
    close(fd);
    fix_close();
    assert_int_equal(fix.n_warnings, 1);
}

static void test_a_deleted_fifo_without_inotify(void **state)
{
    (void)state;
    fix_open(fix.fifo, KJ_RUN_LISTEN_LATER);
    kji_closep(&fix.run->helper.inotify_fd); /* as where no instance can be had */
    fix.run->helper.ctl.watch = fix.run->helper.user.watch = -1;
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    assert_int_equal(unlink(fix.fifo), 0);
    wait_warnings(1);
    assert_non_null(strstr(fix.log, "was deleted"));
}

static void test_a_renamed_fifo_is_one_warning(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    fix_open(fix.fifo, 0);
    KJI_CLEANUP(kji_freep) char *other = kji_format("%s/other", fix.root);
    assert_int_equal(rename(fix.fifo, other), 0);
    wait_warnings(1);
    assert_non_null(strstr(fix.log, "was deleted or replaced"));
    fix_write(other, "tick n=1\n"); /* it is the same FIFO */
    fix_wait_seq(1);
}

static void test_a_deleted_runtime_folder_is_survived(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int conn = fix_connect();
    json_object_put(fix_call(conn, "ping", NULL)); /* taken in */
    kji_test_remove_tree(fix.runtime);
    wait_warnings(1);
    struct json_object *record = fix_call(conn, "command", "{\"line\": \"tick n=3\"}");
    assert_string_equal(fix_text(record, "state"), "accepted");
    json_object_put(record);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 3);
    close(conn);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_200_writers_lose_nothing),
        TEST(test_lines_as_they_come),
        TEST(test_bad_lines_are_rejected_and_the_next_one_is_read),
        TEST(test_both_are_held_open_for_writing),
        TEST(test_a_line_at_the_limit),
        TEST(test_a_flood_is_counted_and_a_command_in_it_obeyed),
        TEST(test_how_long_a_fifo_rests),
        TEST(test_commands_wait_in_the_fifo_and_none_is_lost),
        TEST(test_a_fifo_waits_while_the_socket_fills_the_queue),
        TEST(test_a_stop_behind_many_reaches_a_paused_run),
        TEST(test_a_last_line_without_inotify),
        TEST(test_a_flood_is_told_of_while_the_run_goes_on),
        TEST(test_what_comes_too_late_is_rejected),
        TEST(test_a_regular_file_is_refused),
        TEST(test_a_missing_folder_is_refused),
        TEST(test_a_missing_fifo_is_made_and_removed),
        TEST(test_an_existing_fifo_is_used_and_left),
        TEST(test_a_second_run_on_one_fifo_is_refused),
        TEST(test_a_writer_from_before_is_not_obeyed),
        TEST(test_a_silent_writer_from_before_freezes_nothing),
        TEST(test_a_deleted_fifo_is_one_warning),
        TEST(test_a_deleted_fifo_without_inotify),
        TEST(test_a_renamed_fifo_is_one_warning),
        TEST(test_a_deleted_runtime_folder_is_survived),
    };
    return cmocka_run_group_tests_name("fifo", tests, NULL, NULL);
}
