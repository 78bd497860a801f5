/* SPDX-License-Identifier: Apache-2.0 */
/* What dead runs leave is removed, and nothing else. */
#include "files.h"
#include "journal.h"
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { DAY = 86400 };

static const char *state_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *state_path(const char *format, ...)
{
    static char path[300];
    int used = snprintf(path, sizeof path, "%s/runs/", fix.state);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof path - (size_t)used, format, args);
    va_end(args);
    return path;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void set_age(const char *path, int64_t age_s)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void put_file(const char *path, size_t size, int64_t age_s)
{
    KJI_CLEANUP(kji_closep) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    set_age(path, age_s);
}

/* The leftovers of a run: 1000 bytes and run.json. */
static void put_run(const char *id, int64_t age_s)
{
    KJI_CLEANUP(kji_freep) char *runs = kji_format("%s/runs", fix.state);
    mkdir(fix.state, 0700);
    mkdir(runs, 0700);
    assert_int_equal(mkdir(state_path("%s", id), 0700), 0);
    put_file(state_path("%s/journal.jsonl", id), 400, age_s);
    put_file(state_path("%s/journal-000000000001.jsonl", id), 600, age_s + DAY);
    put_file(state_path("%s/run.json", id), 0, age_s + DAY);
}

typedef struct told_items {
    char text[2000]; /* ids, one a line */
    int64_t bytes;
    int n;
    int stop_at;
    char reason[100];
} told_items;

static int take_item(void *userdata, const kj_gc_item *item)
{
    told_items *told = userdata;
    assert_true(exists(item->path));
    strcat(strcat(told->text, item->run_id), " ");
    told->bytes += item->bytes;
    snprintf(told->reason, sizeof told->reason, "%s", item->reason);
    return ++told->n == told->stop_at;
}

static told_items collect(uint32_t flags, double older_than_s, int64_t keep_bytes)
{
    told_items told = {.n = 0};
    kj_error err = KJ_ERROR_INIT;
    kj_gc_options options = KJ_GC_OPTIONS_INIT;
    options.flags = flags;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.older_than_s = older_than_s;
    options.keep_bytes = keep_bytes;
    if (kj_gc(&options, take_item, &told, &err) < 0)
        fail_msg("%s", err.message);
    return told;
}

static void test_by_age(void **state)
{
    (void)state;
    put_run("new", 3 * DAY);
    put_run("old", 40 * DAY);
    put_run("older", 50 * DAY);
    told_items told = collect(KJ_GC_DRY_RUN, 30 * DAY, -1);
    assert_string_equal(told.text, "older old ");
    assert_int_equal(told.bytes, 2000);
    assert_string_equal(told.reason, "older than 30 days");
    assert_true(exists(state_path("older/journal.jsonl"))); /* a dry run */
    assert_string_equal(collect(0, 30 * DAY, -1).text, "older old ");
    assert_false(exists(state_path("old")));
    assert_false(exists(state_path("older")));
    assert_true(exists(state_path("new/journal-000000000001.jsonl")));
    assert_string_equal(collect(0, 30 * DAY, -1).text, "");
    assert_string_equal(collect(0, -1, -1).text, "");
}

static void test_by_size(void **state)
{
    (void)state;
    put_run("a", 10 * DAY);
    put_run("b", 20 * DAY);
    put_run("c", 30 * DAY);
    told_items told = collect(0, -1, 2500);
    assert_string_equal(told.text, "c ");
    assert_string_equal(told.reason, "the oldest beyond 2500 bytes");
    assert_string_equal(collect(0, -1, 2000).text, "");
    assert_string_equal(collect(0, 15 * DAY, 1000).text, "b "); /* its age is enough */
    assert_string_equal(collect(0, -1, 0).text, "a ");
}

static void test_live_runs_are_not_touched(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    put_run("old", 5 * DAY);
    set_age(state_path("test/journal.jsonl"), 40 * DAY);
    set_age(state_path("test/run.json"), 40 * DAY);
    assert_string_equal(collect(0, 0, 0).text, "old ");
    assert_true(exists(state_path("test/run.json")));
    assert_true(exists(fix_ctl()));
    assert_true(kji_journal_open(&(kji_journal){0}, state_path("test"), NULL) < 0);
}

/* A run in another runtime folder is not listed, but its journal is locked. */
static void test_a_locked_journal_is_not_touched(void **state)
{
    (void)state;
    kji_journal journal;
    put_run("held", 50 * DAY);
    assert_int_equal(kji_journal_open(&journal, state_path("held"), NULL), 0);
    set_age(state_path("held/journal.jsonl"), 50 * DAY);
    assert_string_equal(collect(0, 0, 0).text, "");
    kji_journal_done(&journal);
    assert_string_equal(collect(0, 0, 0).text, "held ");
}

static void test_dead_doors_go_whatever_their_age(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fix_open(NULL, 0);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    KJI_CLEANUP(kji_freep) char *doors = kji_format("%s/test", fix.runtime);
    assert_true(exists(doors));
    told_items told = collect(KJ_GC_DRY_RUN, 30 * DAY, -1);
    assert_string_equal(told.text, "test ");
    assert_string_equal(told.reason, "the run is dead");
    KJI_CLEANUP(kji_freep) char *ctl = kji_format("%s/ctl", doors);
    assert_true(exists(ctl));
    collect(0, 30 * DAY, -1);
    assert_false(exists(doors));
    assert_true(exists(state_path("test/journal.jsonl")));
}

static void test_files_of_others_keep_their_folder(void **state)
{
    (void)state;
    put_run("noted", 50 * DAY);
    put_file(state_path("noted/notes.txt"), 10, 0);
    assert_int_equal(mkdir(state_path("noted/plots"), 0700), 0);
    put_file(state_path("noted/plots/run.json"), 10, 0);
    told_items told = collect(0, 30 * DAY, -1);
    assert_string_equal(told.text, "noted ");
    assert_int_equal(told.bytes, 1000);
    assert_non_null(strstr(told.reason, "other files"));
    assert_true(exists(state_path("noted/notes.txt")));
    assert_true(exists(state_path("noted/plots/run.json")));
    assert_false(exists(state_path("noted/journal.jsonl")));
    assert_false(exists(state_path("noted/run.json")));
    assert_string_equal(collect(0, 0, 0).text, ""); /* what is left is nobody's business */
}

static void test_links_are_not_followed(void **state)
{
    (void)state;
    char outside[100], link_path[300];
    put_run("run", 50 * DAY);
    snprintf(outside, sizeof outside, "%s/outside", fix.root);
    assert_int_equal(mkdir(outside, 0700), 0);
    KJI_CLEANUP(kji_freep) char *precious = kji_format("%s/journal.jsonl", outside);
    KJI_CLEANUP(kji_freep) char *other = kji_format("%s/run.json", outside);
    put_file(precious, 10, 90 * DAY);
    put_file(other, 10, 90 * DAY);
    assert_int_equal(symlink(outside, state_path("link")), 0); /* a folder */
    strcpy(link_path, state_path("run/.run.json.7"));
    assert_int_equal(symlink(other, link_path), 0); /* a file */
    assert_string_equal(collect(0, 0, -1).text, "run ");
    assert_true(exists(precious));
    assert_true(exists(other));
    assert_true(exists(state_path("link")));
    assert_true(exists(link_path)); /* not one of ours */
}

static void test_a_journal_that_is_a_link(void **state)
{
    (void)state;
    char outside[100];
    put_run("run", 50 * DAY);
    snprintf(outside, sizeof outside, "%s/precious", fix.root);
    put_file(outside, 10, 90 * DAY);
    assert_int_equal(unlink(state_path("run/journal.jsonl")), 0);
    assert_int_equal(symlink(outside, state_path("run/journal.jsonl")), 0);
    assert_string_equal(collect(0, 0, -1).text, "run ");
    assert_true(exists(outside));
    assert_true(exists(state_path("run/journal.jsonl")));
    assert_false(exists(state_path("run/run.json")));
}

static void test_names_that_are_no_runs(void **state)
{
    (void)state;
    put_run("run", DAY);
    put_file(state_path("a-file"), 10, 90 * DAY);
    assert_int_equal(mkdir(state_path(".hidden"), 0700), 0);
    put_file(state_path(".hidden/journal.jsonl"), 10, 90 * DAY);
    assert_int_equal(mkdir(state_path("photos"), 0700), 0);
    put_file(state_path("photos/1.jpg"), 10, 90 * DAY);
    assert_string_equal(collect(0, 0, 0).text, "run ");
    assert_true(exists(state_path("a-file")));
    assert_true(exists(state_path(".hidden/journal.jsonl")));
    assert_true(exists(state_path("photos/1.jpg")));
}

static void test_it_ends_when_it_is_told_to(void **state)
{
    (void)state;
    put_run("a", 10 * DAY);
    put_run("b", 20 * DAY);
    told_items told = {.stop_at = 2};
    kj_gc_options options = KJ_GC_OPTIONS_INIT;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.older_than_s = 0;
    assert_int_equal(kj_gc(&options, take_item, &told, NULL), 0);
    assert_string_equal(told.text, "b a ");
    assert_false(exists(state_path("b")));
    assert_true(exists(state_path("a")));
}

static void test_errors(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kj_gc_options options = KJ_GC_OPTIONS_INIT;
    options.flags = 64;
    assert_int_equal(kj_gc(&options, NULL, NULL, &err), KJ_EARG);
    assert_string_equal(collect(0, 0, 0).text, ""); /* no folder at all */
    assert_int_equal(mkdir(fix.state, 0700), 0);
    KJI_CLEANUP(kji_freep) char *runs = kji_format("%s/runs", fix.state);
    assert_int_equal(symlink("/tmp", runs), 0);
    options.flags = 0;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    assert_int_equal(kj_gc(&options, NULL, NULL, &err), KJ_EPERM); /* not followed */
    assert_non_null(strstr(err.message, runs));
}

/* A process that removes all that it may whenever a byte comes, until nobody can send one. */
static pid_t start_remover(int *ret_fd)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    close(fds[child > 0 ? 0 : 1]);
    *ret_fd = fds[1];
    if (child > 0)
        return child;
    for (char byte; read(fds[0], &byte, 1) == 1;)
        collect(0, 0, 0);
    _exit(0);
}

static void test_a_run_that_begins_meanwhile_has_a_journal(void **state)
{
    (void)state;
    put_run("run", 50 * DAY);
    int remover_fd;
    pid_t child = start_remover(&remover_fd);
    for (int k = 0; k < 300; k++) {
        kji_journal journal;
        kj_error err = KJ_ERROR_INIT;
        struct stat by_path, by_fd;
        assert_int_equal(write(remover_fd, "x", 1), 1);
        if (kji_journal_open(&journal, state_path("run"), &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(stat(state_path("run/journal.jsonl"), &by_path), 0);
        assert_int_equal(fstat(journal.fd, &by_fd), 0);
        assert_int_equal(by_path.st_ino, by_fd.st_ino);
        kji_journal_done(&journal);
    }
    close(remover_fd);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_by_age),
        TEST(test_by_size),
        TEST(test_live_runs_are_not_touched),
        TEST(test_a_locked_journal_is_not_touched),
        TEST(test_dead_doors_go_whatever_their_age),
        TEST(test_files_of_others_keep_their_folder),
        TEST(test_links_are_not_followed),
        TEST(test_a_journal_that_is_a_link),
        TEST(test_names_that_are_no_runs),
        TEST(test_it_ends_when_it_is_told_to),
        TEST(test_errors),
        TEST(test_a_run_that_begins_meanwhile_has_a_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
