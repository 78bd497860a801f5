/* SPDX-License-Identifier: Apache-2.0 */
/* Modes whatever the umask, and links in place of what a run makes: what they lead to is neither
 * read, written nor removed. */
#include "files.h"
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", fix.root, name);
    return path;
}

static char precious[80]; /* a file that nobody may touch */

static int set_up(void **state)
{
    int r = fix_set_up(state);
    snprintf(precious, sizeof precious, "%s/precious", fix.root);
    int fd = open(precious, O_CREAT | O_WRONLY | O_CLOEXEC, 0640);
    if (r < 0 || write(fd, "thesis", 6) != 6)
        return -1;
    close(fd);
    return chmod(precious, 0640);
}

static void expect_untouched(void)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    struct stat st;
    assert_int_equal(kji_read_file(AT_FDCWD, precious, 100, &text, NULL, NULL), 0);
    assert_string_equal(text, "thesis");
    assert_int_equal(stat(precious, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

static void expect_private(const char *dir)
{
    DIR *listing = opendir(dir);
    struct stat st;
    assert_non_null(listing);
    assert_int_equal(fstat(dirfd(listing), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    for (struct dirent *item; (item = readdir(listing));) {
        if (*item->d_name == '.')
            continue;
        assert_int_equal(fstatat(dirfd(listing), item->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        if ((st.st_mode & 07777) != 0600)
            fail_msg("%s/%s has mode %o", dir, item->d_name, st.st_mode & 07777);
    }
    closedir(listing);
}

static void test_modes_whatever_the_umask(void **state)
{
    (void)state;
    static const mode_t masks[] = {0, 022, 077};
    mode_t before = umask(0);
    for (size_t k = 0; k < sizeof masks / sizeof *masks; k++) {
        umask(masks[k]);
        fix_open(fix.fifo, KJ_RUN_STRICT);
        umask(0);
        expect_private(kj_run_dir(fix.run));
        expect_private(path_of("state/runs/test"));
        struct stat st;
        assert_int_equal(stat(fix.fifo, &st), 0);
        assert_int_equal(st.st_mode & 07077, 0);
        fix_close();
        kji_test_remove_tree(fix.runtime);
        kji_test_remove_tree(fix.state);
    }
    umask(before);
}

/* All sockets of the process are unix ones. */
static void test_no_network_socket(void **state)
{
    (void)state;
    fix_open(fix.fifo, KJ_RUN_STRICT);
    int conn = fix_connect(), n_unix = 0;
    json_object_put(fix_call(conn, "ping", NULL));
    for (int fd = 3; fd < 200; fd++) {
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
            continue;
        assert_int_equal(address.ss_family, AF_UNIX);
        n_unix++;
    }
    assert_true(n_unix >= 4); /* two that listen, and both ends of ours */
    close(conn);
}

static const char *const names[] = {"ctl", "sock", "monitor", "run.json", "lock"};

/* A dead run's folder with a link of each name to what is precious. */
static void make_trap(bool symbolic)
{
    char path[200];
    mkdir(fix.runtime, 0700);
    assert_int_equal(mkdir(path_of("run/test"), 0700), 0);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, "%s/test/%s", fix.runtime, names[k]);
        assert_int_equal(symbolic ? symlink(precious, path) : link(precious, path), 0);
    }
}

static void list(void)
{
    kj_run_list *runs = NULL;
    assert_int_equal(kj_run_list_load(fix.runtime, &runs, NULL), 0);
    assert_int_equal(kj_run_list_size(runs), 0);
    kj_run_list_free(runs);
}

static void test_hard_links_in_a_run_folder(void **state)
{
    (void)state;
    make_trap(false);
    list();
    expect_untouched();
    assert_int_equal(access(path_of("run/test"), F_OK),
                     -1); /* the names are gone, the file is not */
}

static void test_symbolic_links_in_a_run_folder(void **state)
{
    (void)state;
    make_trap(true);
    list();
    expect_untouched();
}

/* A run of this id then takes another, or replaces what is there; it works either way. */
static void test_a_run_over_links(void **state)
{
    (void)state;
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        make_trap(symbolic);
        fix.run = fix_open_other(NULL, 0, "test");
        assert_true(*kj_run_dir(fix.run));
        fix_write(fix_ctl(), "stop\n");
        while (!(kj_run_poll(fix.run) & KJ_RUN_STOP))
            ;
        expect_untouched();
        fix_close();
        expect_untouched();
        kji_test_remove_tree(fix.runtime);
    }
}

static void test_a_run_folder_that_is_a_link(void **state)
{
    (void)state;
    assert_int_equal(mkdir(fix.runtime, 0700) | mkdir(path_of("elsewhere"), 0700), 0);
    assert_int_equal(symlink("../elsewhere", path_of("run/test")), 0);
    list();
    fix.run = fix_open_other(NULL, 0, "test");
    list();
    fix_close();
    struct stat st;
    assert_int_equal(lstat(path_of("run/test"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(rmdir(path_of("elsewhere")), 0); /* empty still */
}

/* Puts a link or something odd where the journal goes, and expects one warning. */
static void expect_no_journal(const char *why)
{
    fix.n_warnings = 0;
    *fix.log = 0;
    fix_open(NULL, 0);
    if (fix.n_warnings != 1 || !strstr(fix.log, "no journal") || !strstr(fix.log, why))
        fail_msg("%s", fix.log);
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    fix_close();
    expect_untouched();
}

static void make_journal_folder(mode_t mode)
{
    kji_test_remove_tree(fix.state);
    assert_int_equal(mkdir(fix.state, 0700) | mkdir(path_of("state/runs"), 0700), 0);
    assert_int_equal(mkdir(path_of("state/runs/test"), 0700), 0);
    assert_int_equal(chmod(path_of("state/runs/test"), mode), 0);
}

static void test_a_journal_that_is_a_link(void **state)
{
    (void)state;
    make_journal_folder(0700);
    assert_int_equal(symlink(precious, path_of("state/runs/test/journal.jsonl")), 0);
    expect_no_journal("");
}

static void test_a_journal_that_is_a_fifo(void **state)
{
    (void)state;
    make_journal_folder(0700);
    assert_int_equal(mkfifo(path_of("state/runs/test/journal.jsonl"), 0600), 0);
    expect_no_journal("");
}

static void test_a_journal_folder_open_to_others(void **state)
{
    (void)state;
    make_journal_folder(0777);
    expect_no_journal("open to others");
}

/* What is started again must have been written by us. */
static void test_a_past_run_that_others_may_have_written(void **state)
{
    (void)state;
    char *json = NULL, *id = NULL;
    kj_error err = KJ_ERROR_INIT;
    fix_open(NULL, KJ_RUN_STRICT);
    fix_close();
    static const struct {
        const char *folder;
        mode_t mode;
        int expected;
    } cases[] = {
        {"state/runs/test", 0755, 0},        {"state/runs/test", 0777, KJ_EPERM},
        {"state/runs/test", 0720, KJ_EPERM}, {"state/runs/test", 0700, 0},
        {"state/runs", 0777, KJ_EPERM},      {"state/runs", 01777, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        assert_int_equal(chmod(path_of(cases[k].folder), cases[k].mode), 0);
        int r = kj_past_run_load(fix.state, "test", &json, &id, &err);
        assert_int_equal(r, cases[k].expected);
        if (r == 0) {
            kj_free(json);
            kj_free(id);
        }
    }
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(path_of("state/runs/test"), 54321, 54321), 0);
    assert_int_equal(kj_past_run_load(fix.state, "test", &json, &id, &err), KJ_EPERM);
    assert_non_null(strstr(err.message, "belongs to another user"));
}

static void test_a_run_json_that_is_a_link_is_replaced(void **state)
{
    (void)state;
    make_journal_folder(0700);
    assert_int_equal(symlink(precious, path_of("state/runs/test/run.json")), 0);
    fix_open(NULL, KJ_RUN_STRICT);
    expect_untouched();
    struct stat st;
    assert_int_equal(lstat(path_of("state/runs/test/run.json"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_modes_whatever_the_umask),
        TEST(test_no_network_socket),
        TEST(test_hard_links_in_a_run_folder),
        TEST(test_symbolic_links_in_a_run_folder),
        TEST(test_a_run_over_links),
        TEST(test_a_run_folder_that_is_a_link),
        TEST(test_a_journal_that_is_a_link),
        TEST(test_a_journal_that_is_a_fifo),
        TEST(test_a_journal_folder_open_to_others),
        TEST(test_a_past_run_that_others_may_have_written),
        TEST(test_a_run_json_that_is_a_link_is_replaced),
    };
    return cmocka_run_group_tests_name("links", tests, NULL, NULL);
}
