/* SPDX-License-Identifier: Apache-2.0 */
/* Listing runs and reading journals, on folders made by hand. */
#include "errors.h"
#include "mem.h"
#include "registry.h"

#include <kajitori/client.h>

#include "kji-test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

static char root[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kji-registry-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kji_test_remove_tree(root);
    return 0;
}

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void put_file(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(path_of(name), &st) == 0;
}

/* A run's folder with the usual files; the descriptor that holds its lock. */
static int make_run(const char *id, double start_time)
{
    char name[200], text[300];
    assert_int_equal(mkdir(path_of(id), 0700), 0);
    snprintf(name, sizeof name, "%s/run.json", id);
    snprintf(text, sizeof text,
             "{\"id\":\"%s\",\"name\":\"digits\",\"pid\":42,\"start_time\":%.1f,"
             "\"framework\":\"c\",\"study\":\"s\",\"trial\":3}",
             id, start_time);
    put_file(name, text);
    snprintf(name, sizeof name, "%s/ctl", id);
    assert_int_equal(mkfifo(path_of(name), 0600), 0);
    snprintf(name, sizeof name, "%s/lock", id);
    int fd = open(path_of(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

static kj_run_list *load(void)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list = NULL;
    if (kj_run_list_load(root, &list, &err) < 0)
        fail_msg("%s", err.message);
    return list;
}

static void test_live_runs_oldest_first(void **state)
{
    (void)state;
    int young = make_run("b-young", 200), old = make_run("c-old", 100);
    kj_run_list *list = load();
    assert_int_equal(kj_run_list_size(list), 2);
    const kj_run_info *info = kj_run_list_get(list, 0);
    assert_string_equal(info->id, "c-old");
    assert_string_equal(info->name, "digits");
    assert_string_equal(info->framework, "c");
    assert_string_equal(info->study, "s");
    assert_int_equal(info->trial, 3);
    assert_int_equal(info->pid, 42);
    assert_true(info->start_time == 100);
    assert_string_equal(info->dir, path_of("c-old"));
    assert_non_null(strstr(info->json, "\"c-old\""));
    assert_string_equal(kj_run_list_get(list, 1)->id, "b-young");
    kj_run_list_free(list);
    /* Listing did not disturb the owners: still locked, nothing removed. */
    assert_true(exists("b-young/ctl"));
    list = load();
    assert_int_equal(kj_run_list_size(list), 2);
    kj_run_list_free(list);
    close(young);
    close(old);
}

static void test_dead_runs_are_removed(void **state)
{
    (void)state;
    close(make_run("dead", 1));
    put_file("dead/.run.json.17", "half");
    close(make_run("dead-with-guest", 1));
    put_file("dead-with-guest/thesis.txt", "precious");
    kj_run_list *list = load();
    assert_int_equal(kj_run_list_size(list), 0);
    kj_run_list_free(list);
    assert_false(exists("dead"));
    assert_true(exists("dead-with-guest/thesis.txt"));
    assert_false(exists("dead-with-guest/ctl"));
}

static void test_what_is_no_run_is_left_alone(void **state)
{
    (void)state;
    put_file("file", "");
    assert_int_equal(mkdir(path_of(".hidden"), 0700), 0);
    assert_int_equal(mkdir(path_of("open-to-others"), 0700), 0);
    assert_int_equal(chmod(path_of("open-to-others"), 0755), 0);
    put_file("open-to-others/lock", "");
    assert_int_equal(mkdir(path_of("being-made"), 0700), 0);
    put_file("being-made/run.json", "{}");
    char outside[] = "/tmp/kji-outside-XXXXXX", lock[64];
    assert_non_null(mkdtemp(outside));
    snprintf(lock, sizeof lock, "%s/lock", outside);
    close(open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(symlink(outside, path_of("link")), 0);
    kj_run_list *list = load();
    assert_int_equal(kj_run_list_size(list), 0);
    kj_run_list_free(list);
    assert_true(exists("file"));
    assert_true(exists(".hidden"));
    assert_true(exists("open-to-others/lock"));
    assert_true(exists("being-made/run.json"));
    assert_int_equal(access(lock, F_OK), 0);
    kji_test_remove_tree(outside);
}

/* Makes a folder look as if nothing had happened in it for an hour. */
static void age(const char *name)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 3600;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path_of(name), times, 0), 0);
}

static void test_folders_that_were_never_finished(void **state)
{
    (void)state;
    static const char *const names[] = {"no-lock", ".new-no-lock", ".new-dead", ".new-young"};
    for (size_t k = 0; k < 4; k++)
        assert_int_equal(mkdir(path_of(names[k]), 0700), 0);
    put_file(".new-dead/lock", "");
    for (size_t k = 0; k < 3; k++)
        age(names[k]);
    assert_int_equal(mkdir(path_of("empty"), 0700), 0); /* all but removed */
    close(make_run(".new-live", 1));
    int live = open(path_of(".new-live/lock"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(live, LOCK_EX), 0);
    age(".new-live");
    kj_run_list *list = load();
    assert_int_equal(kj_run_list_size(list), 0);
    kj_run_list_free(list);
    for (size_t k = 0; k < 3; k++)
        assert_false(exists(names[k]));
    assert_false(exists("empty"));
    assert_true(exists(".new-young"));
    assert_true(exists(".new-live/ctl"));
    close(live);
}

static void test_damaged_run_json_does_not_hide_a_run(void **state)
{
    (void)state;
    int a = make_run("a", 1), b = make_run("b", 2);
    put_file("a/run.json", "{\"id\": ");
    put_file("b/run.json", "[]");
    kj_run_list *list = load();
    assert_int_equal(kj_run_list_size(list), 2);
    assert_string_equal(kj_run_list_get(list, 0)->name, "");
    assert_int_equal(kj_run_list_get(list, 0)->trial, -1);
    assert_string_equal(kj_run_list_get(list, 1)->json, "{\"id\":\"b\"}");
    kj_run_list_free(list);
    close(a);
    close(b);
}

static void test_places(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    const kj_run_info *info;
    assert_int_equal(kj_run_list_load(path_of("missing"), &list, &err), 0);
    assert_int_equal(kj_run_list_size(list), 0);
    assert_int_equal(kj_run_list_find(list, NULL, &info, &err), KJ_ENORUN);
    assert_non_null(strstr(err.message, "no run is live (looked in /tmp/kji-registry-"));
    kj_run_list_free(list);
    put_file("regular", "");
    assert_int_equal(kj_run_list_load(path_of("regular"), &list, &err), KJ_EIO);
    assert_non_null(strstr(err.message, "not a folder"));
    assert_int_equal(mkdir(path_of("wide"), 0700), 0);
    assert_int_equal(chmod(path_of("wide"), 0777), 0);
    assert_int_equal(kj_run_list_load(path_of("wide"), &list, &err), KJ_EPERM);
    assert_non_null(strstr(err.message, "mode 700"));
}

static void test_pick(void **state)
{
    (void)state;
    static const char *const ids[] = {"digits", "digits-2", "mnist-1"};
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_pick_run(ids, 3, "m", "live run", &err), 2);
    assert_int_equal(kji_pick_run(ids, 3, "digits", "live run", &err), 0);
    assert_int_equal(kji_pick_run(ids, 3, "digits-", "live run", &err), 1);
    assert_int_equal(kji_pick_run(ids, 1, NULL, "live run", &err), 0);
    assert_int_equal(kji_pick_run(ids, 3, "dig", "live run", &err), KJ_EAMBIGUOUS);
    assert_string_equal(err.message, "'dig' fits 2 live runs: digits, digits-2");
    assert_int_equal(kji_pick_run(ids, 3, "", "live run", &err), KJ_EAMBIGUOUS);
    assert_string_equal(err.message, "there are 3 live runs, name one: digits, digits-2, mnist-1");
    assert_int_equal(kji_pick_run(ids, 3, "x", "live run", &err), KJ_ENORUN);
    assert_string_equal(err.message,
                        "no live run begins with 'x'; there is digits, digits-2, mnist-1");
    assert_int_equal(kji_pick_run(NULL, 0, "x", "journal", &err), KJ_ENORUN);
    static const char *const many[] = {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10"};
    assert_int_equal(kji_pick_run(many, 10, "a", "live run", &err), KJ_EAMBIGUOUS);
    assert_non_null(strstr(err.message, "a8 and 2 more"));
}

static void put_journal(const char *id, double start_time, const char *text)
{
    char name[200], run[100];
    mkdir(path_of("runs"), 0700);
    snprintf(name, sizeof name, "runs/%s", id);
    assert_int_equal(mkdir(path_of(name), 0700), 0);
    snprintf(name, sizeof name, "runs/%s/journal.jsonl", id);
    put_file(name, text);
    snprintf(name, sizeof name, "runs/%s/run.json", id);
    snprintf(run, sizeof run, "{\"start_time\":%.1f}", start_time);
    if (start_time > 0)
        put_file(name, run);
}

static int collect(void *userdata, const char *line)
{
    char *text = userdata;
    strcat(text, line);
    strcat(text, "|");
    return strcmp(line, "last wanted") == 0;
}

static void test_journal(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    char text[1000] = "", *id;
    put_journal("old-1", 100, "{\"n\":1}\n{\"n\":2}\n{\"n\":");
    put_journal("new-1", 200, "x\nlast wanted\ny\n");
    put_journal("old-2", 50, "");
    assert_int_equal(kj_journal_read(root, NULL, collect, text, &id, &err), 0);
    assert_string_equal(id, "new-1");
    assert_string_equal(text, "x|last wanted|");
    kj_free(id);
    *text = 0;
    assert_int_equal(kj_journal_read(root, "old-1", collect, text, &id, &err), 0);
    assert_string_equal(text, "{\"n\":1}|{\"n\":2}|");
    kj_free(id);
    assert_int_equal(kj_journal_read(root, "old", collect, text, NULL, &err), KJ_EAMBIGUOUS);
    assert_int_equal(kj_journal_read(root, "none", collect, text, NULL, &err), KJ_ENORUN);
    assert_int_equal(kj_journal_read(path_of("x"), NULL, collect, text, NULL, &err), KJ_ENORUN);
}

static int count(void *userdata, const char *line)
{
    size_t *n = userdata;
    assert_int_equal(strlen(line), 999);
    ++*n;
    return 0;
}

static void test_long_journal(void **state)
{
    (void)state;
    char *text = malloc(500001);
    for (size_t k = 0; k < 500000; k++)
        text[k] = k % 1000 == 999 ? '\n' : 'x';
    text[500000] = 0;
    put_journal("long", 1, text);
    size_t n = 0;
    assert_int_equal(kj_journal_read(root, "long", count, &n, NULL, NULL), 0);
    assert_int_equal(n, 500);
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_live_runs_oldest_first),
        TEST(test_dead_runs_are_removed),
        TEST(test_what_is_no_run_is_left_alone),
        TEST(test_folders_that_were_never_finished),
        TEST(test_damaged_run_json_does_not_hide_a_run),
        TEST(test_places),
        TEST(test_pick),
        TEST(test_journal),
        TEST(test_long_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
