/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many runs: born, listed and killed all at once; in one process; with too few descriptors. What
 * uses up a limit of the process, or dies, does so in a child.
 */
#include "rng.h"
#include "run-fixture.h"

#include <kajitori/client.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static bool holds_in_child(bool (*check)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fix.training = pthread_self();
        _exit(check() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

/* Without cmocka: a failure is to end this process, and not to be taken for the parent's. */
static kj_run *open_here(uint32_t flags)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_run *run = NULL;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.flags = flags;
    if (kj_run_open(&options, &run, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
    return run;
}

static bool is_listed(const kj_run *run)
{
    kj_run_list *list = NULL;
    if (kj_run_list_load(fix.runtime, &list, NULL) < 0)
        return false;
    bool found = false;
    for (uint64_t k = 0; !found && k < kj_run_list_size(list); k++)
        found = strcmp(kj_run_list_get(list, k)->id, kj_run_id(run)) == 0;
    kj_run_list_free(list);
    return found;
}

static bool has_doors(const kj_run *run)
{
    static const char *const names[] = {"ctl", "sock", "monitor", "run.json", "lock"};
    char path[300];
    bool good = true;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, "%s/%s", kj_run_dir(run), names[k]);
        good = good && access(path, F_OK) == 0;
    }
    return good;
}

/* Runs that come and go until the process is killed; each must be there while it lives. All want
 * the same id, so that they take over what the dead ones left. */
static int come_and_go(int born_fd)
{
    char c = 0;
    for (;;) {
        kj_run *run = open_here(KJ_RUN_STRICT);
        if (!run || !*kj_run_dir(run) || !has_doors(run) || !is_listed(run) || !has_doors(run))
            return 1;
        if (write(born_fd, &c, 1) != 1)
            return 2;
        kj_run_close(run);
    }
}

static int list_for_ever(int fd)
{
    (void)fd;
    for (kj_run_list *list; kj_run_list_load(fix.runtime, &list, NULL) >= 0;)
        kj_run_list_free(list);
    return 1;
}

static pid_t start(int (*act)(int), int fd)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? 9 : act(fd));
    return child;
}

static void kill_one(pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status)); /* else it had ended by itself: something was not there */
}

/* Nothing of a run is left, but for what was being made when it was killed. */
static void expect_empty(void)
{
    kj_run_list *list;
    assert_int_equal(kj_run_list_load(fix.runtime, &list, NULL), 0);
    assert_int_equal(kj_run_list_size(list), 0);
    kj_run_list_free(list);
    DIR *listing = opendir(fix.runtime);
    for (struct dirent *item; (item = readdir(listing));)
        if (*item->d_name != '.')
            fail_msg("%s is left", item->d_name);
    closedir(listing);
}

static void test_listers_disturb_neither_the_living_nor_each_other(void **state)
{
    (void)state;
    enum { TRAINERS = 4, LISTERS = 2, KILLS = 80 };
    pid_t trainers[TRAINERS], listers[LISTERS];
    int born[2];
    kji_rng rng;
    kji_rng_seed(&rng, 20);
    setenv("KAJITORI_RUN_ID", "same", 1);
    assert_int_equal(pipe2(born, O_CLOEXEC), 0);
    kj_run_close(fix_open_other(NULL, KJ_RUN_STRICT, NULL)); /* makes the runtime folder */
    for (int k = 0; k < TRAINERS; k++)
        trainers[k] = start(come_and_go, born[1]);
    for (int k = 0; k < LISTERS; k++)
        listers[k] = start(list_for_ever, -1);
    for (int n = 0; n < KILLS; n++) {
        char c[8];
        assert_true(read(born[0], c, 1 + kji_rng_uint32(&rng) % sizeof c) > 0);
        size_t victim = kji_rng_uint32(&rng) % TRAINERS;
        kill_one(trainers[victim]);
        trainers[victim] = start(come_and_go, born[1]);
    }
    for (int k = 0; k < TRAINERS; k++)
        kill_one(trainers[k]);
    for (int k = 0; k < LISTERS; k++)
        kill_one(listers[k]);
    expect_empty();
    close(born[0]);
    close(born[1]);
    unsetenv("KAJITORI_RUN_ID");
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *listing = opendir(path);
    for (struct dirent *item; listing && (item = readdir(listing));)
        n += *item->d_name != '.';
    if (listing)
        closedir(listing);
    return n;
}

enum { MANY = 50, INOTIFY = 8, ABOVE_INOTIFY = 20, FDS_EACH = 14 };

static kj_run *many[MANY];

static bool open_many(int n)
{
    bool good = true;
    for (int k = 0; k < n; k++) {
        many[k] = open_here(0);
        good = good && many[k] && *kj_run_dir(many[k]);
    }
    return good;
}

/* Whether all of them take a stop. */
static bool stop_many(int n, const char *text)
{
    char ctl[300];
    for (int k = 0; k < n; k++) {
        snprintf(ctl, sizeof ctl, "%s/ctl", kj_run_dir(many[k]));
        int fd = open(ctl, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, text, strlen(text)) < 0)
            return false;
        close(fd);
    }
    for (int k = 0; k < n; k++)
        while (!(kj_run_poll(many[k]) & KJ_RUN_STOP))
            ;
    return true;
}

static bool fifty_fit(void)
{
    struct rlimit limit = {1024, 1024};
    int fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    bool good = setrlimit(RLIMIT_NOFILE, &limit) == 0 && open_many(MANY) && fix.n_warnings == 0;
    good = good && count_entries("/proc/self/task") - threads <= MANY;
    good = good && count_entries("/proc/self/fd") - fds <= MANY * FDS_EACH;
    good = good && stop_many(MANY, "stop");
    for (int k = 0; k < MANY; k++)
        kj_run_close(many[k]);
    return good && count_entries("/proc/self/fd") == fds &&
           count_entries("/proc/self/task") == threads;
}

static void test_fifty_runs_fit_in_a_process_of_1024_descriptors(void **state)
{
    (void)state;
    assert_true(holds_in_child(fifty_fit));
}

#ifndef __SANITIZE_THREAD__
static bool write_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

/* In a user namespace of its own, so that the limit (usually 128 of a user) is no other program's.
 */
static bool limit_inotify(void)
{
    char uids[40], gids[40], limit[20];
    snprintf(uids, sizeof uids, "0 %ld 1", (long)geteuid());
    snprintf(gids, sizeof gids, "0 %ld 1", (long)getegid());
    snprintf(limit, sizeof limit, "%d", INOTIFY);
    return unshare(CLONE_NEWUSER) == 0 && write_to("/proc/self/setgroups", "deny") &&
           write_to("/proc/self/uid_map", uids) && write_to("/proc/self/gid_map", gids) &&
           write_to("/proc/sys/user/max_inotify_instances", limit);
}

static bool more_than_inotify(void)
{
    kj_log_set(NULL, NULL);
    bool good = limit_inotify() && open_many(ABOVE_INOTIFY);
    good = good && many[0]->helper.inotify_fd >= 0 && many[INOTIFY]->helper.inotify_fd < 0;
    good = good && stop_many(ABOVE_INOTIFY, "stop\n");
    for (int k = 0; k < ABOVE_INOTIFY; k++)
        kj_run_close(many[k]);
    return good;
}

static void test_more_runs_than_inotify_instances(void **state)
{
    (void)state;
    if (!holds_in_child(limit_inotify))
        skip(); /* user namespaces are not for us here */
    assert_true(holds_in_child(more_than_inotify));
}

#endif

/* With room for so many descriptors more: a run that is deaf, or has some doors, and says so. */
static bool train_with(rlim_t n_free)
{
    struct rlimit limit;
    int fds = count_entries("/proc/self/fd");
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)fds - 1 + n_free; /* one of them was the listing's own */
    setrlimit(RLIMIT_NOFILE, &limit);
    fix.n_warnings = 0;
    *fix.log = 0;
    kj_run *run = open_here(0);
    bool good = run && (*kj_run_dir(run) || fix.n_warnings > 0);
    for (int64_t step = 0; good && step < 100; step++)
        good = kj_run_begin_step(run, step) == 0;
    kj_run_close(run);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return good && count_entries("/proc/self/fd") == fds && count_entries(fix.runtime) == 0;
}

static bool any_number_does(void)
{
    for (rlim_t n = 0; n <= FDS_EACH + 2; n++) {
        if (!train_with(n)) {
            fprintf(stderr, "not with %d descriptors: %s\n", (int)n, fix.log);
            return false;
        }
    }
    return fix.n_warnings == 0;
}

static void test_without_descriptors_the_training_goes_on(void **state)
{
    (void)state;
    assert_true(holds_in_child(any_number_does));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_listers_disturb_neither_the_living_nor_each_other),
        TEST(test_fifty_runs_fit_in_a_process_of_1024_descriptors),
#ifndef __SANITIZE_THREAD__ /* whose runtime's own thread keeps us in the user namespace */
        TEST(test_more_runs_than_inotify_instances),
#endif
        TEST(test_without_descriptors_the_training_goes_on),
    };
    return cmocka_run_group_tests_name("many-runs", tests, NULL, NULL);
}
