/* SPDX-License-Identifier: Apache-2.0 */
/* How runs begin and end: places, ids, several in one process, fork, death. */
#include "json.h"
#include "mem.h"
#include "publish.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static void on_alarm(int number)
{
    (void)number;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* Every call on a run that nobody can reach. */
static void use_deaf(kj_run *run)
{
    kj_error err = KJ_ERROR_INIT;
    assert_string_equal(kj_run_dir(run), "");
    assert_true(*kj_run_id(run));
    assert_int_equal(kj_run_begin_epoch(run, 0), 0);
    assert_int_equal(kj_run_begin_step(run, 1), 0);
    kj_run_set_phase(run, "train");
    assert_int_equal(kj_run_report(run, "loss", 1, 0.5, &err), 0);
    assert_int_equal(kj_run_poll(run), 0);
    assert_int_equal(kj_run_end_epoch(run, 0), 0);
    assert_int_equal(kj_run_should_stop(run), 0);
    assert_string_equal(kj_run_stop_reason(run), "");
    assert_int_equal(kj_run_get_cell(run)->step, 1);
}

static void test_no_folder_is_one_warning(void **state)
{
    (void)state;
    int fd = open(fix.runtime, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* a file in its place */
    close(fd);
    kj_run *run = fix_open_other(NULL, 0, NULL);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, fix.runtime));
    use_deaf(run);
    kj_run_close(run);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    options.runtime_dir = fix.runtime;
    options.flags = KJ_RUN_STRICT;
    run = NULL;
    assert_true(kj_run_open(&options, &run, &err) < 0);
    assert_non_null(strstr(err.message, fix.runtime));
    assert_null(run);
}

static void test_a_folder_open_to_others_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(fix.runtime, 0755), 0);
    assert_int_equal(chmod(fix.runtime, 0755), 0);
    kj_run *run = fix_open_other(NULL, 0, NULL);
    assert_non_null(strstr(fix.log, "must be 700"));
    use_deaf(run);
    kj_run_close(run);
}

static void test_without_a_journal_everything_else_works(void **state)
{
    (void)state;
    int fd = open(fix.state, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(fd);
    fix_open(NULL, 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "no journal"));
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
}

static void test_a_full_disk_is_one_warning(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int full = open("/dev/full", O_RDWR | O_CLOEXEC);
    pthread_mutex_lock(&fix.run->lock);
    assert_int_equal(dup3(full, fix.run->journal.fd, O_CLOEXEC), fix.run->journal.fd);
    pthread_mutex_unlock(&fix.run->lock);
    close(full);
    fix_write(fix_ctl(), "tick n=1\ntick n=2\n");
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 3);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "journal"));
}

static void test_everything_is_removed_at_the_end(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    KJI_CLEANUP(kji_freep) char *dir = strdup(kj_run_dir(fix.run));
    KJI_CLEANUP(kji_freep) char *copy = kji_format("%s/runs/test/run.json", fix.state);
    assert_true(exists(dir));
    assert_true(exists(copy));
    fix_close();
    assert_false(exists(dir));
    assert_true(exists(copy));
    KJI_CLEANUP(kji_freep) char *ctl = kji_format("%s/ctl", dir);
    assert_int_equal(open(ctl, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), -1); /* as "echo >" does */
    assert_int_equal(errno, ENOENT);
}

static void test_two_runs_in_one_process(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_run *other = fix_open_other(NULL, 0, NULL);
    assert_string_not_equal(kj_run_id(fix.run), kj_run_id(other));
    assert_true(strncmp(kj_run_id(other), "test-run-", 9) == 0);
    fix_write(fix_ctl(), "stop\n");
    fix_wait_seq(1);
    assert_int_equal(kj_run_poll(other), 0);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    kj_run_close(other);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
}

static void test_an_id_in_use_is_not_given_twice(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_run *other = fix_open_other(NULL, 0, "test");
    assert_string_not_equal(kj_run_id(other), "test");
    assert_non_null(strstr(fix.log, "live run test"));
    kj_run_close(other);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    options.run_id = "test";
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.flags = KJ_RUN_STRICT;
    assert_int_equal(kj_run_open(&options, &other, NULL), KJ_EBUSY);
    setenv("KAJITORI_RUN_ID", "test", 1);
    fix.n_warnings = 0;
    other = fix_open_other(NULL, 0, NULL);
    unsetenv("KAJITORI_RUN_ID");
    assert_string_not_equal(kj_run_id(other), "test");
    assert_int_equal(fix.n_warnings, 0);
    kj_run_close(other);
}

static void test_an_id_used_again_goes_on_with_the_journal(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    fix_close();
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/runs/test/journal.jsonl", fix.state);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "{\"n\": 3, \"ti", 12), 12); /* torn by a crash */
    close(fd);
    fix_open(NULL, 0);
    fix_close();
    struct json_object *journal = fix_journal(); /* checks the numbers */
    assert_int_equal(json_object_array_length(journal), 4);
    json_object_put(journal);
}

static void test_long_paths(void **state)
{
    (void)state;
    char long_root[400];
    int n = snprintf(long_root, sizeof long_root, "%s", fix.root);
    for (int k = 0; k < 3; k++)
        n += snprintf(long_root + n, sizeof long_root - (size_t)n, "/%060d", k);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    options.runtime_dir = long_root;
    options.state_dir = fix.state;
    options.flags = KJ_RUN_STRICT;
    assert_int_equal(kj_run_open(&options, &run, NULL), 0);
    KJI_CLEANUP(kji_freep) char *sock = kji_format("%s/sock", kj_run_dir(run));
    assert_true(exists(sock));
    kj_run_close(run);
    assert_false(exists(sock));
}

/* More expire than the ring of events holds: the one who waits for one of the first is told. */
static void test_each_waiting_client_is_told_of_the_end(void **state)
{
    (void)state;
    enum { OTHERS = 5000 };
    fix_open(NULL, 0);
    int first = fix_connect();
    json_object_put(fix_call(first, "command", "{\"line\": \"tick\"}"));
    int other = fix_connect();
    for (int k = 0; k < OTHERS; k++) /* no id: no answer is wanted */
        fix_send(other, "{\"jsonrpc\":\"2.0\",\"method\":\"command\","
                        "\"params\":{\"line\":\"tick\"}}");
    fix_wait_seq(1 + OTHERS);
    fix_close();
    struct json_object *record = fix_wait_event(first, "command", "expired");
    assert_int_equal(fix_int(record, "seq"), 1);
    json_object_put(record);
    close(other);
    close(first);
}

/* The kernel takes 107 bytes for a socket's path: one less, that, one more. */
static void test_paths_around_the_kernels_limit(void **state)
{
    (void)state;
    enum { LIMIT = 107 };
    for (size_t size = LIMIT - 2; size <= LIMIT + 2; size++) {
        char root[200];
        size_t root_size = size - strlen("/test/sock");
        memset(root, 'r', sizeof root);
        memcpy(root, fix.root, strlen(fix.root));
        root[strlen(fix.root)] = '/';
        root[root_size] = 0;
        kj_run_options options = KJ_RUN_OPTIONS_INIT;
        kj_run *run = NULL;
        kj_client *client = NULL;
        char *json = NULL;
        options.run_id = "test";
        options.runtime_dir = root;
        options.state_dir = fix.state;
        options.flags = KJ_RUN_STRICT;
        assert_int_equal(kj_run_open(&options, &run, NULL), 0);
        assert_int_equal(strlen(kj_run_dir(run)) + strlen("/sock"), size);
        assert_int_equal(kj_client_open(kj_run_dir(run), &client, NULL), 0);
        assert_int_equal(kj_client_call(client, "ping", NULL, 10000, &json, NULL), 0);
        kj_free(json);
        kj_client_close(client);
        kj_run_close(run);
    }
}

static void test_the_journal_of_a_live_run_is_not_shared(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    KJI_CLEANUP(kji_freep) char *elsewhere = kji_format("%s/elsewhere", fix.root);
    options.run_id = "test"; /* the same id, in another runtime folder */
    options.runtime_dir = elsewhere;
    options.state_dir = fix.state;
    assert_int_equal(kj_run_open(&options, &run, NULL), 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "a live run of this id"));
    kj_run_close(run);
    fix_close();
    json_object_put(fix_journal()); /* checks the numbers */
}

static void test_closing_a_paused_run_tells_those_who_wait(void **state)
{
    (void)state;
    fix_open(NULL, KJ_RUN_INTERRUPTIBLE);
    int conn = fix_connect(), watcher = fix_connect();
    json_object_put(fix_call(watcher, "subscribe", "{\"events\": [\"state\"]}"));
    json_object_put(fix_call(conn, "command", "{\"line\": \"pause\"}"));
    json_object_put(fix_call(conn, "command", "{\"line\": \"tick at=step:100\"}"));
    struct sigaction action = {.sa_handler = on_alarm}; /* what ends the wait of a pause */
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_INTERRUPTED);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    json_object_put(fix_call(conn, "command", "{\"line\": \"resume\"}"));
    fix_close();
    json_object_put(fix_wait_event(watcher, "state", "ended"));
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 2), "state"), "expired");
    assert_string_equal(fix_text(fix_last_record(journal, 3), "state"), "expired");
    json_object_put(journal);
    close(conn);
    close(watcher);
}

static void test_who_comes_before_the_run_listens_is_served_then(void **state)
{
    (void)state;
    fix.run = fix_open_other(NULL, KJ_RUN_LISTEN_LATER, "test");
    fix_write(fix_ctl(), "set lr=0.25\n");
    int conn = fix_connect();
    fix_send(conn, "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"params\"}");
    kj_run_begin_step(fix.run, 0);
    assert_int_equal(fix.run->last_seq, 0);
    fix_add_all(fix.run);
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    struct json_object *answer = fix_receive(conn), *result, *params;
    assert_true(json_object_object_get_ex(answer, "result", &result));
    assert_true(json_object_object_get_ex(result, "params", &params));
    assert_true(json_object_array_length(params) > 0);
    json_object_put(answer);
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_true(fix.lr == 0.25);
    close(conn);
    fix_close();
}

static void test_a_run_that_never_listened_still_answers_at_its_end(void **state)
{
    (void)state;
    fix.run = fix_open_other(NULL, KJ_RUN_LISTEN_LATER, "test");
    fix_write(fix_ctl(), "stop\n");
    fix_close();
    struct json_object *journal = fix_journal();
    const char *end = fix_text(fix_last_record(journal, 1), "state");
    assert_true(strcmp(end, "rejected") == 0 || strcmp(end, "expired") == 0);
    assert_non_null(fix_find_event(journal, "run_ended"));
    json_object_put(journal);
}

static bool lock_is_free(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is_free;
}

static void wait_child(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_forked_child_is_deaf(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    KJI_CLEANUP(kji_freep) char *dir = strdup(kj_run_dir(fix.run));
    fix_write(fix_ctl(), "stop\n");
    fix_wait_seq(1);
    pid_t child = fork();
    if (child == 0) {
        bool good = kj_run_poll(fix.run) == 0 && kj_run_begin_step(fix.run, 9) == 0 &&
                    kj_run_end_epoch(fix.run, 0) == 0 && !kj_run_should_stop(fix.run) &&
                    kj_run_report(fix.run, "loss", 0, 1, NULL) == 0 && !*kj_run_dir(fix.run);
        kj_run_set_phase(fix.run, "child");
        kj_run_close(fix.run);
        _exit(good && exists(dir) ? 0 : 1);
    }
    wait_child(child);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_true(exists(dir));
}

static void test_the_parents_death_frees_lock_and_doors(void **state)
{
    (void)state;
    int ready[2], release[2], forked[2];
    char id[100] = "";
    assert_int_equal(pipe(ready) | pipe(release) | pipe(forked), 0);
    pid_t parent = fork();
    if (parent == 0) { /* a training with a worker process that outlives it */
        kj_run *run = fix_open_other(NULL, 0, "mortal");
        if (fork() == 0) {
            char c = 'f';
            close(release[1]);
            ssize_t n = write(forked[1], &c, 1);
            n = n == 1 ? read(release[0], &c, 1) : -1; /* until the test is over */
            _exit(n < 0);
        }
        char c;
        ssize_t n = read(forked[0], &c, 1);
        n = n == 1 ? write(ready[1], kj_run_id(run), strlen(kj_run_id(run))) : -1;
        raise(n > 0 ? SIGKILL : SIGABRT);
    }
    close(release[0]);
    assert_true(read(ready[0], id, sizeof id - 1) > 0);
    int status;
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    KJI_CLEANUP(kji_freep) char *lock = kji_format("%s/%s/lock", fix.runtime, id);
    KJI_CLEANUP(kji_freep) char *ctl = kji_format("%s/%s/ctl", fix.runtime, id);
    assert_true(lock_is_free(lock));
    assert_int_equal(open(ctl, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
    assert_int_equal(errno, ENXIO);
    kj_run *again = fix_open_other(NULL, KJ_RUN_STRICT, "mortal"); /* the dead one is swept */
    assert_string_equal(kj_run_id(again), "mortal");
    assert_false(lock_is_free(lock));
    kj_run_close(again);
    close(release[1]);
    close(ready[0]);
    close(ready[1]);
    close(forked[0]);
    close(forked[1]);
}

static void test_a_signal_ends_an_interruptible_pause(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    fix_open(NULL, KJ_RUN_INTERRUPTIBLE);
    fix_write(fix_ctl(), "pause\n");
    fix_wait_seq(1);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_INTERRUPTED);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_INTERRUPTED); /* still paused */
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    fix_write(fix_ctl(), "resume\n");
    fix_wait_seq(2);
    while (kj_run_poll(fix.run) == KJ_RUN_INTERRUPTED) /* a last alarm may be under way */
        ;
    assert_int_equal(kj_run_poll(fix.run), 0);
}

static void expect_argv(const char *cmdline, size_t size, const char *json)
{
    bool cut;
    struct json_object *list = kji_describe_argv(cmdline, size, &cut);
    assert_false(cut);
    assert_string_equal(json_object_to_json_string_ext(list, JSON_C_TO_STRING_PLAIN |
                                                                 JSON_C_TO_STRING_NOSLASHESCAPE),
                        json);
    json_object_put(list);
}

static void test_secrets_are_masked(void **state)
{
    (void)state;
#define ARGV(text, json) expect_argv(text, sizeof text - 1, json)
    ARGV("train\0--lr\0000.1\0", "[\"train\",\"--lr\",\"0.1\"]");
    ARGV("t\0--api-key\0abc\0--lr=1\0", "[\"t\",\"--api-key\",\"***\",\"--lr=1\"]");
    ARGV("t\0--API_TOKEN=abc\0wandb_secret=x\0",
         "[\"t\",\"--API_TOKEN=***\",\"wandb_secret=***\"]");
    ARGV("t\0--password\0--verbose\0", "[\"t\",\"--password\",\"--verbose\"]");
    ARGV("t\0--db-password=x\0MASTER_KEY=y\0", "[\"t\",\"--db-password=***\",\"MASTER_KEY=***\"]");
    ARGV("t\0--db=postgresql://me:pw@host/db?x=1\0http://h/p:a@b\0",
         "[\"t\",\"--db=postgresql://me:***@host/db?x=1\",\"http://h/p:a@b\"]");
    ARGV("t\0a://u:p@h,b://u2:p2@h2\0", "[\"t\",\"a://u:***@h,b://u2:***@h2\"]");
    ARGV("", "[]");
    ARGV("t\0-c\0import x\nx()\t\0\0", "[\"t\",\"-c\",\"import x\\nx()\\t\",\"\"]");
}

static bool is_cut(const char *cmdline, size_t size)
{
    bool cut;
    json_object_put(kji_describe_argv(cmdline, size, &cut));
    return cut;
}

static void test_a_cut_command_line_says_so(void **state)
{
    (void)state;
    char line[2048] = "t";
    memset(line + 2, 'a', 1024);
    assert_false(is_cut(line, 1027));
    memset(line + 2, 'a', 1025);
    assert_true(is_cut(line, 1028));
    memset(line, 0, sizeof line); /* empty arguments */
    assert_false(is_cut(line, 256));
    assert_true(is_cut(line, 257));
    assert_true(is_cut("t\0\xff.txt", 8));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_no_folder_is_one_warning),
        TEST(test_a_folder_open_to_others_is_refused),
        TEST(test_without_a_journal_everything_else_works),
        TEST(test_a_full_disk_is_one_warning),
        TEST(test_everything_is_removed_at_the_end),
        TEST(test_two_runs_in_one_process),
        TEST(test_an_id_in_use_is_not_given_twice),
        TEST(test_an_id_used_again_goes_on_with_the_journal),
        TEST(test_long_paths),
        TEST(test_each_waiting_client_is_told_of_the_end),
        TEST(test_paths_around_the_kernels_limit),
        TEST(test_the_journal_of_a_live_run_is_not_shared),
        TEST(test_closing_a_paused_run_tells_those_who_wait),
        TEST(test_who_comes_before_the_run_listens_is_served_then),
        TEST(test_a_run_that_never_listened_still_answers_at_its_end),
        TEST(test_a_forked_child_is_deaf),
        TEST(test_the_parents_death_frees_lock_and_doors),
        TEST(test_a_signal_ends_an_interruptible_pause),
        TEST(test_secrets_are_masked),
        TEST(test_a_cut_command_line_says_so),
    };
    return cmocka_run_group_tests_name("run-life", tests, NULL, NULL);
}
