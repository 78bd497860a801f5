/* SPDX-License-Identifier: Apache-2.0 */
/* What a run reports, in its event files. */
#include "mem.h"
#include "run-fixture.h"

#include <kajitori/events.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char logs[100];

static kj_run *open_run(const char *events_dir, uint32_t flags)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.flags = flags;
    options.events_dir = events_dir;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    if (kj_run_open(&options, &run, &err) < 0)
        fail_msg("%s", err.message);
    return run;
}

struct text {
    char text[2000];
};

static int append_point(void *userdata, const kj_point *point)
{
    struct text *all = userdata;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "%s%s:%lld=%g ",
             point->flags & KJ_POINT_RESTART ? "restart" : "", point->tag, (long long)point->step,
             point->value);
    return 0;
}

/* "loss:0=1 loss:1=2 restart:1=nan ": what is in the files, in order. */
static const char *read_logs(const char *dir)
{
    static struct text all;
    char spec[200];
    kj_events *events = NULL;
    memset(&all, 0, sizeof all);
    snprintf(spec, sizeof spec, "events:%s", dir);
    assert_int_equal(kj_events_open(spec, NULL, &events, NULL), 0);
    while (kj_events_step(events, 0, append_point, &all, NULL) > 0)
        continue;
    kj_events_close(events);
    return all.text;
}

static void test_reports_are_written_at_once(void **state)
{
    (void)state;
    kj_run *run = open_run(logs, 0);
    kj_run_begin_step(run, 3);
    assert_int_equal(kj_run_report(run, "loss", 3, 0.5, NULL), 0);
    assert_int_equal(kj_run_report(run, "val/acc", 3, NAN, NULL), 0);
    assert_string_equal(read_logs(logs), "loss:3=0.5 val/acc:3=nan ");
    assert_int_equal(kj_run_report(run, "loss", 4, 0.25, NULL), 0);
    kj_run_close(run);
    assert_string_equal(read_logs(logs), "loss:3=0.5 val/acc:3=nan loss:4=0.25 ");
    assert_int_equal(fix.n_warnings, 0);
}

static void test_nothing_is_written_unasked(void **state)
{
    (void)state;
    kj_run *run = open_run(NULL, 0);
    assert_int_equal(kj_run_report(run, "loss", 3, 0.5, NULL), 0);
    kj_run_close(run);
    run = open_run("", 0);
    kj_run_close(run);
    assert_int_equal(access(logs, F_OK), -1);
}

static void test_folder_by_environment(void **state)
{
    (void)state;
    char other[120];
    snprintf(other, sizeof other, "%s/other", fix.root);
    setenv("KAJITORI_EVENTS_DIR", other, 1);
    kj_run *run = open_run(NULL, KJ_RUN_THREADLESS);
    kj_run_report(run, "loss", 1, 1, NULL);
    kj_run_close(run);
    run = open_run(logs, 0);
    kj_run_report(run, "loss", 2, 1, NULL);
    kj_run_close(run);
    unsetenv("KAJITORI_EVENTS_DIR");
    assert_string_equal(read_logs(other), "loss:1=1 ");
    assert_string_equal(read_logs(logs), "loss:2=1 ");
}

static void test_folder_that_cannot_be(void **state)
{
    (void)state;
    kj_run *run = open_run("/dev/null/logs", 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "/dev/null"));
    assert_int_equal(kj_run_report(run, "loss", 3, 0.5, NULL), 0);
    kj_run_poll(run);
    kj_run_close(run);
    assert_int_equal(fix.n_warnings, 1);
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    options.flags = KJ_RUN_STRICT;
    options.events_dir = "/dev/null/logs";
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    run = NULL;
    assert_int_equal(kj_run_open(&options, &run, &err), KJ_EIO);
    assert_non_null(strstr(err.message, "/dev/null"));
    assert_null(run);
}

static void limit_files(rlim_t size)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = size == RLIM_INFINITY ? limit.rlim_max : size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full_disk_is_one_warning(void **state)
{
    (void)state;
    kj_run *run = open_run(logs, 0);
    kj_run_report(run, "loss", 0, 1, NULL);
    limit_files(10);
    for (int64_t step = 1; step < 100; step++) {
        assert_int_equal(kj_run_begin_step(run, step), 0);
        assert_int_equal(kj_run_report(run, "loss", step, 1, NULL), 0);
    }
    limit_files(RLIM_INFINITY);
    assert_int_equal(kj_run_report(run, "loss", 100, 1, NULL), 0);
    kj_run_close(run);
    assert_string_equal(read_logs(logs), "loss:0=1 loss:100=1 ");
    const char *first = strstr(fix.log, logs);
    assert_non_null(first);
    assert_null(strstr(first + 1, logs));
}

static void test_run_without_doors_writes(void **state)
{
    (void)state;
    close(open(fix.runtime, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); /* a file in its place */
    kj_run *run = open_run(logs, 0);
    assert_string_equal(kj_run_dir(run), "");
    kj_run_report(run, "loss", 3, 0.5, NULL);
    kj_run_close(run);
    assert_string_equal(read_logs(logs), "loss:3=0.5 ");
}

static void test_forked_child_writes_nothing(void **state)
{
    (void)state;
    kj_run *run = open_run(logs, 0);
    kj_run_report(run, "loss", 1, 1, NULL);
    pid_t child = fork();
    if (child == 0) {
        int r = kj_run_report(run, "loss", 2, 2, NULL);
        kj_run_close(run);
        _exit(r);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kj_run_report(run, "loss", 3, 3, NULL);
    kj_run_close(run);
    assert_string_equal(read_logs(logs), "loss:1=1 loss:3=3 ");
}

static void train(int64_t first, int64_t end)
{
    kj_run *run = open_run(logs, 0);
    kj_run_poll(run);
    for (int64_t step = first; step < end; step++) {
        kj_run_begin_step(run, step);
        if (step % 2)
            kj_run_report(run, "loss", step, (double)first, NULL);
    }
    kj_run_close(run);
}

static void test_resumed_run_takes_back_what_it_does_again(void **state)
{
    (void)state;
    train(0, 6);
    setenv("KAJITORI_CHECKPOINT", "/checkpoints/4", 1);
    train(4, 8);
    unsetenv("KAJITORI_CHECKPOINT");
    train(8, 10);
    const char *text = read_logs(logs), *restart = strstr(text, "restart:4=nan ");
    assert_memory_equal(text, "loss:1=0 loss:3=0 loss:5=0 restart:4=nan ", 40);
    assert_non_null(restart);
    assert_non_null(strstr(restart, "loss:5=4 loss:7=4 loss:9=8 "));
    assert_null(strstr(text, "restart:8"));
}

/* A framework that says where it is, and polls. */
static void test_resumed_run_that_polls(void **state)
{
    (void)state;
    train(0, 6);
    setenv("KAJITORI_CHECKPOINT", "/checkpoints/4", 1);
    kj_run *run = open_run(logs, 0);
    unsetenv("KAJITORI_CHECKPOINT");
    kj_run_cell *cell = kj_run_get_cell(run);
    assert_true(cell->pending);
    cell->step = 4;
    kj_run_poll(run);
    assert_false(cell->pending);
    kj_run_report(run, "loss", 5, 4, NULL);
    kj_run_close(run);
    assert_non_null(strstr(read_logs(logs), "loss:5=0 restart:4=nan "));
}

static void test_report_before_the_first_step_takes_back_nothing(void **state)
{
    (void)state;
    setenv("KAJITORI_CHECKPOINT", "/checkpoints/4", 1);
    kj_run *run = open_run(logs, 0);
    unsetenv("KAJITORI_CHECKPOINT");
    kj_run_report(run, "loss", 4, 1, NULL);
    kj_run_begin_step(run, 4);
    kj_run_report(run, "loss", 5, 2, NULL);
    kj_run_close(run);
    assert_string_equal(read_logs(logs), "loss:4=1 loss:5=2 ");
}

/* Only rank 0 is there to be asked, and only it writes. */
static void test_one_rank_writes(void **state)
{
    (void)state;
    static const char *const names[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"};
    static const char *const values[] = {"1", "1", "2", "localhost"};
    kj_log_set(NULL, NULL); /* it is told that it is not rank 0 */
    for (size_t k = 0; k < 4; k++)
        setenv(names[k], values[k], 1);
    kj_run *run = open_run(logs, 0);
    for (size_t k = 0; k < 4; k++)
        unsetenv(names[k]);
    kj_run_report(run, "loss", 4, 1, NULL);
    kj_run_close(run);
    assert_int_equal(access(logs, F_OK), -1);
}

enum { N_REPORTERS = 4, REPORTS = 500 };

static void *report_many(void *run)
{
    for (int64_t step = 0; step < REPORTS; step++)
        kj_run_report(run, step % 3 ? "loss" : "a tag that is longer", step, 1, NULL);
    return NULL;
}

static void test_threads_report_at_once(void **state)
{
    (void)state;
    kj_run *run = open_run(logs, 0);
    pthread_t threads[N_REPORTERS];
    for (int k = 0; k < N_REPORTERS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, report_many, run), 0);
    for (int k = 0; k < N_REPORTERS; k++)
        pthread_join(threads[k], NULL);
    kj_run_close(run);
    kj_events *events = NULL;
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    char spec[200];
    options.flags = KJ_EVENTS_FINISHED;
    snprintf(spec, sizeof spec, "events:%s", logs);
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), 0);
    while (kj_events_step(events, 0, NULL, NULL, NULL) > 0)
        continue;
    kj_events_get_stats(events, &stats);
    kj_events_close(events);
    assert_int_equal(stats.points, N_REPORTERS * REPORTS);
    assert_int_equal(stats.skipped_bytes, 0);
}

static int set_up(void **state)
{
    int r = fix_set_up(state);
    unsetenv("KAJITORI_EVENTS_DIR");
    unsetenv("KAJITORI_CHECKPOINT");
    snprintf(logs, sizeof logs, "%s/logs", fix.root);
    return r;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, fix_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reports_are_written_at_once),
        TEST(test_nothing_is_written_unasked),
        TEST(test_folder_by_environment),
        TEST(test_folder_that_cannot_be),
        TEST(test_full_disk_is_one_warning),
        TEST(test_run_without_doors_writes),
        TEST(test_forked_child_writes_nothing),
        TEST(test_resumed_run_takes_back_what_it_does_again),
        TEST(test_resumed_run_that_polls),
        TEST(test_report_before_the_first_step_takes_back_nothing),
        TEST(test_one_rank_writes),
        TEST(test_threads_report_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
