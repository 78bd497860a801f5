/* SPDX-License-Identifier: Apache-2.0 */
/* Where FIFOs, sockets or inotify are refused, as by some file systems and by limits. Each filter
 * stays for the rest of this process: the later tests have those of the earlier ones. */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static int n_refused; /* so many of the next calls fail, as by a file system without FIFOs */

int mkfifoat(int dir_fd, const char *path, mode_t mode)
{
    if (n_refused > 0) {
        n_refused--;
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_mknodat, dir_fd, path, mode | S_IFIFO, 0);
}

int mkfifo(const char *path, mode_t mode)
{
    return mkfifoat(AT_FDCWD, path, mode);
}

/* From now on the kernel answers `number` with `errnum`. */
static void refuse(int number, int errnum)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof lines / sizeof *lines, .filter = lines};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static bool has(const char *name)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/%s", kj_run_dir(fix.run), name);
    struct stat st;
    return lstat(path, &st) == 0;
}

static char *mailbox_path(void)
{
    return kji_format("%s/mailbox", kj_run_dir(fix.run));
}

/* A shell's way: a file put into `in` by rename. */
static void put_lines(const char *text)
{
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/mailbox/in", kj_run_dir(fix.run));
    KJI_CLEANUP(kji_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_file_atomic(fd, "lines.txt", text, strlen(text), NULL), 0);
}

static void expect_stop_by_mailbox(void)
{
    put_lines("stop reason=enough\n");
    fix_wait_seq(1);
    assert_true(kj_run_poll(fix.run) & KJ_RUN_STOP);
    assert_string_equal(kj_run_stop_reason(fix.run), "enough");
}

static void test_the_next_place_is_taken(void **state)
{
    (void)state;
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    char expected[64], refusing[200];
    snprintf(expected, sizeof expected, "/tmp/kajitori-%ld/", (long)geteuid());
    snprintf(refusing, sizeof refusing, "%s/kajitori: the file system refuses FIFOs", fix.root);
    unsetenv("KAJITORI_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", fix.root, 1);
    options.state_dir = fix.state;
    n_refused = 1;
    assert_int_equal(kj_run_open(&options, &fix.run, NULL), 0);
    assert_memory_equal(kj_run_dir(fix.run), expected, strlen(expected));
    assert_true(has("ctl"));
    assert_false(has("mailbox"));
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, refusing));
    expected[strlen(expected) - 1] = 0;
    assert_non_null(strstr(fix.log, expected));
}

static void test_the_users_fifo_is_refused(void **state)
{
    (void)state;
    n_refused = 1;
    fix_open(fix.fifo, 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "refuses FIFOs"));
    KJI_CLEANUP(kji_freep) char *instead = kji_format("write to %s instead", fix_ctl());
    assert_non_null(strstr(fix.log, instead));
    fix_write(fix_ctl(), "stop\n");
    fix_wait_seq(1);
    assert_true(kj_run_poll(fix.run) & KJ_RUN_STOP);
}

static void test_no_fifo_in_the_only_place(void **state)
{
    (void)state;
    refuse(SYS_mknodat, EPERM);
    fix_open(NULL, 0);
    KJI_CLEANUP(kji_freep) char *box = mailbox_path();
    assert_false(has("ctl"));
    assert_true(has("sock"));
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "refuses FIFOs"));
    assert_non_null(strstr(fix.log, box));
    int fd = fix_connect();
    json_object_put(fix_call(fd, "ping", NULL));
    close(fd);
    expect_stop_by_mailbox();
    KJI_CLEANUP(kji_freep) char *dir = strdup(kj_run_dir(fix.run));
    put_lines("ping\n");
    fix_close();
    fix_open(NULL, 0); /* the answers that were left are no run of this id */
    assert_string_equal(kj_run_dir(fix.run), dir);
    fix_close();
    struct stat st;
    assert_true(lstat(dir, &st) < 0);
}

static void test_a_strict_run_is_an_error(void **state)
{
    (void)state;
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    options.flags = KJ_RUN_STRICT;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    assert_int_equal(kj_run_open(&options, &fix.run, &err), KJ_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "refuses FIFOs"));
    fix.run = NULL;
}

static void test_no_socket_either(void **state)
{
    (void)state;
    refuse(SYS_bind, EPERM);
    fix_open(NULL, 0);
    assert_false(has("sock"));
    assert_false(has("monitor"));
    assert_int_equal(fix.n_warnings, 1);
    kj_run_list *list;
    assert_int_equal(kj_run_list_load(fix.runtime, &list, NULL), 0);
    assert_int_equal(kj_run_list_size(list), 1);
    kj_client *client;
    char *json;
    assert_int_equal(kj_client_open(kj_run_list_get(list, 0)->dir, &client, NULL), 0);
    assert_int_equal(kj_client_call(client, "status", NULL, 20000, &json, NULL), 0);
    assert_non_null(strstr(json, "running"));
    kj_free(json);
    kj_client_close(client);
    kj_run_list_free(list);
    expect_stop_by_mailbox();
}

static void test_no_inotify(void **state)
{
    (void)state;
    refuse(SYS_inotify_init1, EMFILE);
    fix_open(NULL, 0);
    assert_int_equal(fix.n_warnings, 1); /* of the FIFO; none of inotify */
    kj_client *client;
    char *json;
    assert_int_equal(kj_client_open(kj_run_dir(fix.run), &client, NULL), 0);
    assert_int_equal(kj_client_call(client, "ping", NULL, 20000, &json, NULL), 0);
    kj_free(json);
    KJI_CLEANUP(kji_freep) char *box = mailbox_path();
    kj_client_close(client);
    expect_stop_by_mailbox();
    struct stat st;
    while (lstat(box, &st) == 0) /* an answer may be put there meanwhile */
        kji_test_remove_tree(box);
    for (time_t end = time(NULL) + 20; time(NULL) < end && fix.n_warnings == 1; sched_yield())
        kj_run_poll(fix.run);
    assert_non_null(strstr(fix.log, "was deleted"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_next_place_is_taken),   TEST(test_the_users_fifo_is_refused),
        TEST(test_no_fifo_in_the_only_place), TEST(test_a_strict_run_is_an_error),
        TEST(test_no_socket_either),          TEST(test_no_inotify),
    };
    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
