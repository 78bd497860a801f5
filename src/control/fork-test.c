/* SPDX-License-Identifier: Apache-2.0 */
/* Forks at every moment of a run's life: a child keeps no door, no lock and no journal. */
#include "mem.h"
#include "run-fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static bool ends_with(const char *text, const char *tail)
{
    size_t size = strlen(text), tail_size = strlen(tail);
    return size >= tail_size && strcmp(text + size - tail_size, tail) == 0;
}

/* Whether a descriptor of ours is a socket at a path of the test. */
static bool is_our_socket(int fd)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
           address.sun_family == AF_UNIX && strstr(address.sun_path, fix.root);
}

/* Whether this process has anything of a run open that others could notice. Nothing is allocated:
 * the child of a process whose threads allocate must not (POSIX), and with the thread sanitizer's
 * allocator it would wait for ever. */
static bool has_kept_something(void)
{
    enum { DESCRIPTORS = 256 };
    static const char *const kept[] = {"/lock", "/ctl", "/fifo", "/journal.jsonl"};
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        char name[40], target[300] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (readlink(name, target, sizeof target - 1) < 0)
            continue;
        if (is_our_socket(fd))
            return true;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            if (strstr(target, fix.root) && ends_with(target, kept[k]))
                return true;
    }
    return false;
}

/* The same for a program that was started: it has no descriptor of the kinds that a run has. */
static bool has_inherited_something(void)
{
    DIR *listing = opendir("/proc/self/fd");
    bool found = listing == NULL || has_kept_something();
    for (struct dirent *item; !found && (item = readdir(listing));) {
        char target[300] = "";
        if (readlinkat(dirfd(listing), item->d_name, target, sizeof target - 1) >= 0)
            found = strstr(target, fix.root) || strncmp(target, "anon_inode:", 11) == 0;
    }
    if (listing)
        closedir(listing);
    return found;
}

static void wait_child(pid_t child)
{
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int stop_it; /* atomic */

/* Runs that come and go, with a client each, in a thread of their own. */
static void *open_and_close(void *data)
{
    int *n_runs = data;
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.fifo_path = fix.fifo;
    while (!__atomic_load_n(&stop_it, __ATOMIC_ACQUIRE)) {
        kj_run *run = NULL;
        if (kj_run_open(&options, &run, NULL) < 0)
            break;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%s/sock", kj_run_dir(run));
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            ++*n_runs;
        kj_run_poll(run);
        kj_run_close(run);
        close(fd);
    }
    return NULL;
}

static void test_a_fork_storm_while_runs_come_and_go(void **state)
{
    (void)state;
    enum { FORKS = 150, AT_ONCE = 10, RUNS = 20 };
    pthread_t trainer;
    int n_runs = 0;
    kj_log_set(NULL, NULL); /* warnings come in the other thread here */
    stop_it = 0;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    assert_int_equal(pthread_create(&trainer, NULL, open_and_close, &n_runs), 0);
    for (int k = 0; k < FORKS; k += AT_ONCE) {
        pid_t children[AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++) {
            children[j] = fork();
            if (children[j] == 0)
                _exit(has_kept_something());
        }
        for (int j = 0; j < AT_ONCE; j++)
            wait_child(children[j]);
    }
    __atomic_store_n(&stop_it, 1, __ATOMIC_RELEASE);
    pthread_join(trainer, NULL);
    assert_true(n_runs > 0);
}

extern char **environ;

/* Starts this program anew, to look what it was given (main). */
static pid_t spawn_looker(int how)
{
    char *const words[] = {(char *)"fork-test", fix.root, NULL};
    pid_t child = -1;
    if (how == 0) {
        assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ), 0);
        return child;
    }
    child = how == 1 ? vfork() : fork();
    if (child == 0) {
        execv("/proc/self/exe", words);
        _exit(9);
    }
    return child;
}

/* posix_spawn and vfork call no fork handler: what is opened must have O_CLOEXEC from the start. */
static void test_programs_started_at_any_moment_get_nothing(void **state)
{
    (void)state;
    enum { STARTS = 90 };
    pthread_t trainer;
    int n_runs = 0;
    kj_log_set(NULL, NULL);
    stop_it = 0;
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    assert_int_equal(pthread_create(&trainer, NULL, open_and_close, &n_runs), 0);
    for (int k = 0; k < STARTS; k++)
        wait_child(spawn_looker(k % 3));
    __atomic_store_n(&stop_it, 1, __ATOMIC_RELEASE);
    pthread_join(trainer, NULL);
    assert_true(n_runs > 0);
}

/* What a child does with its copy of the run is nothing to the parent's. */
static bool uses_its_copy(void)
{
    bool good = kj_run_poll(fix.run) == 0 && kj_run_begin_step(fix.run, 7) == 0 &&
                kj_run_end_epoch(fix.run, 7) == 0 && !kj_run_should_stop(fix.run);
    kj_run_close(fix.run);
    return good && !has_kept_something();
}

static void test_a_child_closes_its_copy_and_the_run_goes_on(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    int conn = fix_connect();
    json_object_put(fix_call(conn, "subscribe", NULL));
    pid_t child = fork();
    if (child == 0)
        _exit(uses_its_copy() ? 0 : 1);
    wait_child(child);
    assert_int_equal(access(fix_ctl(), F_OK), 0);
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
    json_object_put(fix_wait_event(conn, "command", "done")); /* the connection lives, too */
    close(conn);
    struct json_object *journal = fix_journal();
    assert_null(fix_find_event(journal, "run_ended"));
    json_object_put(journal);
}

/* Several runs, as a notebook has them: the child is deaf to all, and each of the parent's goes on.
 */
static void test_a_fork_with_several_runs(void **state)
{
    (void)state;
    fix_open(fix.fifo, 0);
    kj_run *second = fix_open_other(NULL, 0, "second"), *third = fix_open_other(NULL, 0, "third");
    pid_t child = fork();
    if (child == 0) {
        bool good = !has_kept_something() && kj_run_poll(second) == 0 && kj_run_poll(third) == 0;
        kj_run_close(third);
        kj_run_close(second);
        kj_run_close(fix.run);
        _exit(good ? 0 : 1);
    }
    wait_child(child);
    kj_run *runs[] = {fix.run, second, third};
    for (size_t k = 0; k < 3; k++) {
        char ctl[300];
        snprintf(ctl, sizeof ctl, "%s/ctl", kj_run_dir(runs[k]));
        fix_write(ctl, "stop\n");
        while (!(kj_run_poll(runs[k]) & KJ_RUN_STOP))
            ;
    }
    kj_run_close(second);
    kj_run_close(third);
}

#ifndef __SANITIZE_THREAD__
static void test_a_child_opens_a_run_of_its_own(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    pid_t child = fork();
    if (child == 0) {
        fix.training = pthread_self();
        kj_run *own = fix_open_other(NULL, KJ_RUN_STRICT, "child");
        char ctl[300];
        snprintf(ctl, sizeof ctl, "%s/ctl", kj_run_dir(own));
        int fd = open(ctl, O_WRONLY | O_CLOEXEC);
        bool good = strcmp(kj_run_id(own), "child") == 0 && write(fd, "stop\n", 5) == 5;
        while (good && !(kj_run_poll(own) & KJ_RUN_STOP))
            ;
        good = good && kj_run_poll(fix.run) == 0; /* the parent's copy is deaf */
        kj_run_close(own);
        kj_run_close(fix.run);
        _exit(good ? 0 : 1);
    }
    wait_child(child);
    fix_write(fix_ctl(), "tick n=1\n"); /* and the parent's own is as it was */
    fix_wait_seq(1);
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_int_equal(fix.tick_sum, 1);
}
#endif

/* What a training's own verb does is its own business: also to fork there. */
static int fork_in_a_verb(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata, (void)call, (void)err;
    pid_t child = fork();
    if (child == 0)
        _exit(kj_run_poll(fix.run) || kj_run_end_epoch(fix.run, 0) || has_kept_something());
    wait_child(child);
    return 0;
}

static void test_a_fork_inside_a_command(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    kj_verb verb = {.size = sizeof verb, .name = "fork", .run = fork_in_a_verb};
    assert_int_equal(kj_run_add_verb(fix.run, &verb, NULL), 0);
    fix_write(fix_ctl(), "fork\ntick n=1\n");
    fix_wait_seq(2);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
}

/* A child of a child, and one that outlives the run. */
static void test_grandchildren_hold_nothing_after_the_end(void **state)
{
    (void)state;
    int over[2];
    char c;
    assert_int_equal(pipe2(over, O_CLOEXEC), 0);
    assert_int_equal(mkfifo(fix.fifo, 0600), 0);
    fix_open(fix.fifo, KJ_RUN_STRICT);
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            close(over[1]);
            ssize_t n = read(over[0], &c, 1);
            _exit(n != 0);
        }
        _exit(has_kept_something());
    }
    wait_child(child);
    fix_close();
    assert_int_equal(open(fix.fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
    assert_int_equal(errno, ENXIO);
    fix_open(fix.fifo, KJ_RUN_STRICT); /* same id, same FIFO, same journal */
    assert_int_equal(fix.n_warnings, 0);
    close(over[1]);
    close(over[0]);
}

int main(int argc, char **argv)
{
    if (argc == 2 && *argv[1] == '/') { /* started by spawn_looker */
        snprintf(fix.root, sizeof fix.root, "%s", argv[1]);
        return has_inherited_something();
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_fork_storm_while_runs_come_and_go),
        TEST(test_programs_started_at_any_moment_get_nothing),
        TEST(test_a_child_closes_its_copy_and_the_run_goes_on),
        TEST(test_a_fork_with_several_runs),
#ifndef __SANITIZE_THREAD__ /* whose runtime starts no thread in a forked child */
        TEST(test_a_child_opens_a_run_of_its_own),
#endif
        TEST(test_a_fork_inside_a_command),
        TEST(test_grandchildren_hold_nothing_after_the_end),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
