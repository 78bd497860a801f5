/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other users, folders that cannot be written, full disks. A child process changes its uid; as
 * root only, and the tests say that they are skipped elsewhere.
 */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { SOMEBODY = 54321, SOMEBODY_ELSE = 54322 };

static void need_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* Whether `check` holds for a process of this user. */
static bool holds_for(uid_t uid, bool (*check)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool good = setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
        _exit(good && check() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

static int open_door(const char *name, int flags)
{
    char path[300];
    snprintf(path, sizeof path, "%s/test/%s", fix.runtime, name);
    return open(path, flags | O_CLOEXEC);
}

static int connect_door(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/test/sock", fix.runtime);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

static bool is_locked_out(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/test/ctl", fix.runtime);
    return open_door("ctl", O_WRONLY | O_NONBLOCK) < 0 && errno == EACCES &&
           open_door("run.json", O_RDONLY) < 0 && open_door(".", O_RDONLY) < 0 &&
           connect_door() < 0 && unlink(path) < 0;
}

static void test_another_user_is_locked_out(void **state)
{
    (void)state;
    need_root();
    fix_open(NULL, 0);
    assert_int_equal(chmod(fix.root, 0755), 0);
    assert_true(holds_for(SOMEBODY, is_locked_out));
    assert_int_equal(kj_run_poll(fix.run), 0);
}

/* What the run says to a connection, up to its end. */
static bool is_turned_away(void)
{
    char text[1000] = "";
    int fd = connect_door();
    ssize_t n = fd < 0 ? -1 : recv(fd, text, sizeof text - 1, MSG_WAITALL);
    return n > 0 && strstr(text, "belongs to another user");
}

static void open_folders_to_all(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/test/sock", fix.runtime);
    assert_int_equal(chmod(path, 0666), 0);
    snprintf(path, sizeof path, "%s/test", fix.runtime);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(chmod(fix.runtime, 0755), 0);
    assert_int_equal(chmod(fix.root, 0755), 0);
}

/* The folders do not keep him out, as with a set-uid program or a folder that was opened by hand.
 */
static void test_a_peer_of_another_user_is_turned_away(void **state)
{
    (void)state;
    need_root();
    fix_open(NULL, 0);
    open_folders_to_all();
    assert_true(holds_for(SOMEBODY, is_turned_away));
    int conn = fix_connect();
    json_object_put(fix_call(conn, "ping", NULL));
    close(conn);
}

static int ready[2], over[2];

/* A training of somebody's, which lasts until `over` is closed. */
static bool train_as_somebody(void)
{
    char c = 'r';
    kj_run *run = fix_open_other(NULL, KJ_RUN_STRICT, "test");
    close(over[1]);
    bool good = write(ready[1], &c, 1) == 1 && read(over[0], &c, 1) == 0;
    kj_run_close(run);
    return good;
}

static void test_root_may_steer_anybody_and_nobody_else_may(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(over, O_CLOEXEC), 0);
    assert_int_equal(chown(fix.root, SOMEBODY, SOMEBODY), 0);
    pid_t training = fork();
    if (training == 0)
        _exit(setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 &&
                      setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 && train_as_somebody()
                  ? 0
                  : 1);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    int conn = connect_door(); /* as root */
    struct json_object *hello = fix_call(conn, "hello", "{\"protocol\": 1}"), *run;
    assert_true(json_object_object_get_ex(hello, "run", &run));
    assert_int_equal(fix_int(run, "uid"), SOMEBODY);
    json_object_put(hello);
    close(conn);
    open_folders_to_all();
    assert_true(holds_for(SOMEBODY_ELSE, is_turned_away));
    close(over[1]);
    int status;
    assert_int_equal(waitpid(training, &status, 0), training);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
    close(over[0]);
}

static bool write_to_their_fifo(void)
{
    int fd = open(fix.fifo, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "tick n=5\n", 9) == 9;
}

/* Who may write to a FIFO that the user made is the user's own choice. */
static void test_a_fifo_open_to_others_is_a_door_for_them(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkfifo(fix.fifo, 0622), 0);
    assert_int_equal(chmod(fix.fifo, 0622), 0);
    assert_int_equal(chmod(fix.root, 0755), 0);
    fix_open(fix.fifo, KJ_RUN_STRICT);
    assert_true(holds_for(SOMEBODY, write_to_their_fifo));
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 5);
}

/* A run in fix.runtime: nobody can reach it, and the one warning has `part` in it. */
static bool is_deaf_because(const char *part)
{
    fix.log[0] = 0;
    fix.n_warnings = 0;
    kj_run *run = fix_open_other(NULL, 0, NULL);
    bool good = !*kj_run_dir(run) && kj_run_begin_step(run, 0) == 0 && fix.n_warnings == 1 &&
                strstr(fix.log, part);
    kj_run_close(run);
    return good;
}

static void test_a_folder_of_another_user_is_refused(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkdir(fix.runtime, 0700), 0);
    assert_int_equal(chown(fix.runtime, SOMEBODY, SOMEBODY), 0);
    assert_true(is_deaf_because("belongs to user 54321, not to us (0)"));
    kj_run_list *list;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_run_list_load(fix.runtime, &list, &err), KJ_EPERM);
}

static void test_a_folder_that_is_a_link_is_refused(void **state)
{
    (void)state;
    char target[100];
    snprintf(target, sizeof target, "%s/target", fix.root);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, fix.runtime), 0);
    assert_true(is_deaf_because("is a symbolic link"));
    assert_int_equal(rmdir(target), 0); /* nothing was put into it */
}

static bool is_deaf_where_nothing_can_be_written(void)
{
    return is_deaf_because("Permission denied");
}

static void test_a_read_only_runtime_folder_is_one_warning(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(chmod(fix.root, 0555), 0);
    assert_true(holds_for(SOMEBODY, is_deaf_where_nothing_can_be_written));
}

static bool train_without_a_journal(void)
{
    kj_run *run = fix_open_other(NULL, 0, "test");
    int fd = open_door("ctl", O_WRONLY);
    bool good = fix.n_warnings == 1 && strstr(fix.log, "no journal") && write(fd, "stop\n", 5) == 5;
    while (good && !(kj_run_poll(run) & KJ_RUN_STOP))
        ;
    kj_run_close(run);
    return good;
}

static void test_a_read_only_state_folder_is_one_warning(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkdir(fix.runtime, 0700), 0);
    assert_int_equal(chown(fix.runtime, SOMEBODY, SOMEBODY), 0);
    assert_int_equal(chmod(fix.root, 0555), 0);
    assert_true(holds_for(SOMEBODY, train_without_a_journal));
}

static const char fallback[] = "/tmp/kajitori-54321";

static bool open_by_environment(const char *expected_dir)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    unsetenv("KAJITORI_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", fix.runtime, 1);
    setenv("KAJITORI_STATE_DIR", fix.state, 1);
    fix.n_warnings = 0;
    if (kj_run_open(&options, &run, NULL) < 0)
        return false;
    size_t size = strlen(expected_dir);
    bool good = size ? strncmp(kj_run_dir(run), expected_dir, size) == 0 : !*kj_run_dir(run);
    kj_run_close(run);
    return good;
}

static bool takes_the_fallback(void)
{
    return open_by_environment(fallback) && fix.n_warnings <= 1 && rmdir(fallback) == 0;
}

static bool takes_none(void)
{
    *fix.log = 0;
    return open_by_environment("") &&
           (strstr(fix.log, "Permission denied") || strstr(fix.log, "is a symbolic link"));
}

static void test_the_next_place_is_taken_unless_it_is_another_users(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkdir(fix.runtime, 0755), 0);
    assert_int_equal(chmod(fix.root, 0755), 0);
    assert_true(holds_for(SOMEBODY, takes_the_fallback));
    assert_int_equal(mkdir(fallback, 0700), 0); /* root's, put there before */
    assert_true(holds_for(SOMEBODY, takes_none));
    assert_int_equal(rmdir(fallback), 0);
    assert_int_equal(symlink(fix.root, fallback), 0);
    assert_true(holds_for(SOMEBODY, takes_none));
    assert_int_equal(unlink(fallback), 0);
}

static kj_run_list *list_by_environment(void)
{
    kj_run_list *list = NULL;
    unsetenv("KAJITORI_RUNTIME_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    *fix.log = 0;
    kj_run_list_load(NULL, &list, NULL);
    return list;
}

/* A fallback folder of our own that somebody made wide open, or that is no folder. */
static bool takes_no_open_folder(void)
{
    static const mode_t modes[] = {0777, 01777, 0755, 0710, 0701};
    bool good = mkdir(fallback, 0700) == 0;
    for (size_t k = 0; good && k < sizeof modes / sizeof *modes; k++) {
        *fix.log = 0;
        good = chmod(fallback, modes[k]) == 0 && open_by_environment("") &&
               strstr(fix.log, "is open to others") && list_by_environment() == NULL;
    }
    good = good && rmdir(fallback) == 0;
    int fd = open(fallback, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    good = good && fd >= 0 && open_by_environment("") && unlink(fallback) == 0;
    close(fd);
    return good;
}

static void test_a_fallback_open_to_others_is_refused(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkdir(fix.runtime, 0700), 0);
    assert_int_equal(chmod(fix.root, 0755), 0);
    assert_true(holds_for(SOMEBODY, takes_no_open_folder));
}

/* What another user put there is neither listed nor cleaned. */
static bool lists_nothing_there(void)
{
    kj_run_list *list = list_by_environment();
    return list == NULL || kj_run_list_size(list) == 0;
}

static void test_runs_that_another_user_put_there_are_not_listed(void **state)
{
    (void)state;
    need_root();
    char path[100];
    assert_int_equal(mkdir(fallback, 0777), 0);
    assert_int_equal(chmod(fallback, 0777), 0);
    snprintf(path, sizeof path, "%s/trap", fallback);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/trap/lock", fallback);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    assert_true(holds_for(SOMEBODY, lists_nothing_there));
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    kji_test_remove_tree(fallback);
}

/* A shell that became another user by `su` may have its first user's XDG_RUNTIME_DIR. */
static void test_the_runtime_folder_of_another_user_is_not_taken(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(mkdir(fix.runtime, 0700), 0);
    assert_int_equal(chown(fix.runtime, SOMEBODY, SOMEBODY), 0);
    bool was_there = access("/tmp/kajitori-0", F_OK) == 0;
    assert_true(open_by_environment("/tmp/kajitori-0"));
    if (!was_there)
        rmdir("/tmp/kajitori-0");
    assert_int_equal(rmdir(fix.runtime), 0); /* nothing is left in it */
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("KAJITORI_STATE_DIR");
}

static int impostor_fd;

/* A socket of SOMEBODY's where a run of SOMEBODY_ELSE is looked for. */
static bool listen_as_somebody(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/sock", fix.root);
    return bind(impostor_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           chmod(address.sun_path, 0666) == 0 && listen(impostor_fd, 1) == 0;
}

static bool refuses_to_talk(void)
{
    kj_client *client = NULL;
    kj_error err = KJ_ERROR_INIT;
    return kj_client_open(fix.root, &client, &err) == KJ_EPERM &&
           strstr(err.message, "belongs to another user (54321)");
}

static void test_a_client_does_not_talk_to_another_users_socket(void **state)
{
    (void)state;
    need_root();
    assert_int_equal(chmod(fix.root, 0777), 0);
    impostor_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(holds_for(SOMEBODY, listen_as_somebody));
    assert_true(holds_for(SOMEBODY_ELSE, refuses_to_talk));
    close(impostor_fd);
}

/* A disk of 64 KiB at `path`, which is full but for `free_pages` pages; skips without the right. */
static void mount_full(const char *path, int free_pages)
{
    need_root();
    assert_int_equal(mkdir(path, 0700), 0);
    if (mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700") < 0) {
        assert_true(errno == EPERM || errno == EACCES);
        skip();
    }
    char filler[200], page[4096] = {0};
    snprintf(filler, sizeof filler, "%s/filler", path);
    int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int n = 0;
    while (write(fd, page, sizeof page) == sizeof page)
        n++;
    assert_int_equal(ftruncate(fd, (off_t)(n - free_pages) * (off_t)sizeof page), 0);
    close(fd);
}

static void unmount(const char *path)
{
    fix_close();
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

static void test_a_full_runtime_disk_is_one_warning(void **state)
{
    (void)state;
    mount_full(fix.runtime, 0);
    assert_true(is_deaf_because("No space left"));
    unmount(fix.runtime);
}

static void test_a_full_runtime_disk_is_no_reason_to_be_deaf(void **state)
{
    (void)state;
    mount_full(fix.runtime, 0);
    bool was_there = access("/tmp/kajitori-0", F_OK) == 0;
    assert_true(open_by_environment("/tmp/kajitori-0"));
    if (!was_there)
        rmdir("/tmp/kajitori-0"); /* fails when another run of ours is there by now */
    unmount(fix.runtime);
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("KAJITORI_STATE_DIR");
}

static void test_a_full_state_disk_is_one_warning(void **state)
{
    (void)state;
    mount_full(fix.state, 0);
    fix_open(NULL, 0);
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 1);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "No space left"));
    unmount(fix.state);
}

static void test_a_disk_that_fills_up_keeps_what_was_written(void **state)
{
    (void)state;
    mount_full(fix.state, 3); /* run.json, and a little of the journal */
    fix_open(NULL, 0);
    assert_int_equal(fix.n_warnings, 0);
    int64_t n = 0;
    for (; fix.n_warnings == 0 && n < 1000; kj_run_poll(fix.run)) {
        fix_write(fix_ctl(), "tick n=1\n");
        fix_wait_seq(++n);
    }
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(++n);
    kj_run_poll(fix.run);
    assert_int_equal(fix.n_ticks, n); /* the training goes on */
    assert_int_equal(fix.n_warnings, 1);
    fix_close();
    struct json_object *journal = fix_journal(); /* whole lines, numbered */
    assert_true(json_object_array_length(journal) > 10);
    json_object_put(journal);
    unmount(fix.state);
}

/* Also after a test that failed with a disk mounted. */
static int tear_down(void **state)
{
    fix_close();
    umount2(fix.runtime, MNT_DETACH);
    umount2(fix.state, MNT_DETACH);
    if (geteuid() == 0 && unlink(fallback) < 0)
        kji_test_remove_tree(fallback);
    return fix_tear_down(state);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_another_user_is_locked_out),
        TEST(test_a_peer_of_another_user_is_turned_away),
        TEST(test_root_may_steer_anybody_and_nobody_else_may),
        TEST(test_a_fifo_open_to_others_is_a_door_for_them),
        TEST(test_a_folder_of_another_user_is_refused),
        TEST(test_a_folder_that_is_a_link_is_refused),
        TEST(test_a_read_only_runtime_folder_is_one_warning),
        TEST(test_a_read_only_state_folder_is_one_warning),
        TEST(test_the_next_place_is_taken_unless_it_is_another_users),
        TEST(test_a_fallback_open_to_others_is_refused),
        TEST(test_runs_that_another_user_put_there_are_not_listed),
        TEST(test_the_runtime_folder_of_another_user_is_not_taken),
        TEST(test_a_client_does_not_talk_to_another_users_socket),
        TEST(test_a_full_runtime_disk_is_one_warning),
        TEST(test_a_full_runtime_disk_is_no_reason_to_be_deaf),
        TEST(test_a_full_state_disk_is_one_warning),
        TEST(test_a_disk_that_fills_up_keeps_what_was_written),
    };
    return cmocka_run_group_tests_name("users", tests, NULL, NULL);
}
