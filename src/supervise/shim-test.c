/* SPDX-License-Identifier: Apache-2.0 */
/* The shim as a worker uses it: shim-test SHIM. Waiting for it to end is waiting for its lock. */
#include "trial-dir.h"

#include "kji-test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *shim;

typedef struct fixture {
    char root[64];
    int trials_fd, dir_fd;
    pid_t pid;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    strcpy(f->root, "/tmp/kji-shim-test-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    f->trials_fd = open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    close(f->dir_fd);
    close(f->trials_fd);
    kji_test_remove_tree(f->root);
    free(f);
    return 0;
}

/* Starts `script` with sh under the shim. */
static void start(fixture *f, const char *program, const char *script)
{
    int lock;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_trial_dir_create(f->trials_fd, 3, &f->dir_fd, &lock, &err), 0);
    char dir[100], lock_text[16];
    snprintf(dir, sizeof dir, "%s/3", f->root);
    snprintf(lock_text, sizeof lock_text, "%d", lock);
    f->pid = fork();
    if (f->pid == 0) {
        fcntl(lock, F_SETFD, 0);
        setenv("KAJITORI_RUN_ID", f->root + 5, 1);
        execl(shim, shim, dir, lock_text, program, "-c", script, NULL);
        _exit(99);
    }
    close(lock);
}

static int wait_for_shim(fixture *f)
{
    int status;
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    return status;
}

/* Blocks until the program has written a line into the FIFO. */
static void wait_for_line(const char *fifo)
{
    FILE *file = fopen(fifo, "r");
    char line[64];
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
}

static void make_fifo(const fixture *f, char path[100])
{
    snprintf(path, 100, "%s/ready", f->root);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void test_output_and_exit_status(void **state)
{
    fixture *f = *state;
    kji_trial_exit ended;
    start(f, "sh", "echo one; echo two >&2; echo; exit 3");
    assert_int_equal(wait_for_shim(f), 0);
    assert_false(kji_trial_dir_is_alive(f->dir_fd));
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), 0);
    assert_int_equal(ended.exit_code, 3);
    assert_int_equal(ended.signal, 0);
    char *text = kji_trial_dir_output_end(f->dir_fd, 1, 100);
    assert_string_equal(text, "two");
    free(text);
    text = kji_trial_dir_output_end(f->dir_fd, 9, 100);
    assert_string_equal(text, "one | two");
    free(text);
}

static void test_a_program_that_is_not_there(void **state)
{
    fixture *f = *state;
    kji_trial_exit ended;
    start(f, "/nowhere/at/all", "");
    assert_int_equal(wait_for_shim(f), 0);
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), 0);
    assert_int_equal(ended.native, ENOENT);
}

static void test_sigterm_is_handed_on(void **state)
{
    fixture *f = *state;
    char fifo[100], script[300];
    kji_trial_exit ended;
    make_fifo(f, fifo);
    snprintf(script, sizeof script, "trap 'exit 7' TERM; echo up >%s; while :; do read x <%s; done",
             fifo, fifo);
    start(f, "sh", script);
    wait_for_line(fifo);
    assert_true(kji_trial_dir_is_alive(f->dir_fd));
    pid_t pid = -1;
    while (kji_trial_dir_read_shim(f->dir_fd, &pid, NULL) == KJ_ENOENT) /* the program was faster */
        sched_yield();
    assert_int_equal(pid, f->pid);
    kill(f->pid, SIGTERM);
    assert_int_equal(wait_for_shim(f), 0);
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), 0);
    assert_int_equal(ended.exit_code, 7);
}

static bool is_process(pid_t pid)
{
    return kill(pid, 0) == 0;
}

/* The pid that the program wrote into a file before it said that it is up. */
static pid_t read_pid(const fixture *f)
{
    char path[100];
    long pid = 0;
    snprintf(path, sizeof path, "%s/pid", f->root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pid), 1);
    fclose(file);
    return (pid_t)pid;
}

static void test_nothing_is_left(void **state)
{
    fixture *f = *state;
    char fifo[100], script[400];
    kji_trial_exit ended;
    make_fifo(f, fifo);
    /* A sleeper in a session of its own, forked twice, that ignores SIGTERM. */
    snprintf(script, sizeof script,
             "(setsid sh -c 'trap \"\" TERM; echo $$ >%s/pid; echo up >%s; while :; do sleep 100; "
             "done' &) ; read x <%s/go",
             f->root, fifo, f->root);
    char go[100];
    snprintf(go, sizeof go, "%s/go", f->root);
    assert_int_equal(mkfifo(go, 0600), 0);
    start(f, "sh", script);
    wait_for_line(fifo);
    pid_t sleeper = read_pid(f);
    assert_true(is_process(sleeper));
    FILE *file = fopen(go, "w"); /* the program may end now */
    fputs("go\n", file);
    fclose(file);
    assert_int_equal(wait_for_shim(f), 0);
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), 0);
    assert_int_equal(ended.exit_code, 0);
    assert_false(is_process(sleeper));
}

static void test_sigusr1_kills_all(void **state)
{
    fixture *f = *state;
    char fifo[100], script[300];
    kji_trial_exit ended;
    make_fifo(f, fifo);
    snprintf(script, sizeof script,
             "trap '' TERM; echo $$ >%s/pid; echo up >%s; while :; do sleep 100; done", f->root,
             fifo);
    start(f, "sh", script);
    wait_for_line(fifo);
    kill(f->pid, SIGTERM); /* is ignored */
    kill(f->pid, SIGUSR1);
    assert_int_equal(wait_for_shim(f), 0);
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), 0);
    assert_int_equal(ended.signal, SIGKILL);
    assert_int_equal(ended.exit_code, -1);
}

static void test_a_killed_shim_takes_the_program_with_it(void **state)
{
    fixture *f = *state;
    char fifo[100], script[300];
    kji_trial_exit ended;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that we can wait for what it leaves */
    make_fifo(f, fifo);
    snprintf(script, sizeof script, "setsid sh -c 'echo $$ >%s/pid; echo up >%s; sleep 100' & wait",
             f->root, fifo);
    start(f, "sh", script);
    wait_for_line(fifo);
    pid_t left = read_pid(f);
    kill(f->pid, SIGKILL);
    wait_for_shim(f);
    assert_false(kji_trial_dir_is_alive(f->dir_fd));
    assert_int_equal(kji_trial_dir_read_exit(f->dir_fd, &ended, NULL), KJ_ENOENT);
    assert_true(kji_trial_dir_sweep(f->root + 5) >= 1);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    assert_false(is_process(left));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: shim-test SHIM\n");
        return 2;
    }
    shim = argv[1];
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_output_and_exit_status), TEST(test_a_program_that_is_not_there),
        TEST(test_sigterm_is_handed_on),   TEST(test_nothing_is_left),
        TEST(test_sigusr1_kills_all),      TEST(test_a_killed_shim_takes_the_program_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
