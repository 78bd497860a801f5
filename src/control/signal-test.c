/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as commands: the first is the run's, the second what was there before, the third the
 * system's; and everything as it was when the run has ended. */
#include "run-fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_handled; /* by the handler from before */

static void handle(int number)
{
    (void)number;
    n_handled++;
}

static void handle_info(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    n_handled += info->si_pid == getpid();
}

static int set_up(void **state)
{
    n_handled = 0;
    return fix_set_up(state);
}

static int tear_down(void **state)
{
    int r = fix_tear_down(state);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    return r;
}

static int try_open(const char *signals, uint32_t flags, const char *id, kj_run **ret_run,
                    kj_error *err)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    options.run_id = id;
    options.flags = flags;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.signals = signals;
    return kj_run_open(&options, ret_run, err);
}

static void open_with(const char *signals, uint32_t flags)
{
    kj_error err = KJ_ERROR_INIT;
    if (try_open(signals, flags, "test", &fix.run, &err) < 0)
        fail_msg("%s", err.message);
    fix_add_all(fix.run);
}

/* The newest record of command `seq`; for json_object_put. */
static struct json_object *record_of(int64_t seq)
{
    struct json_object *journal = fix_journal();
    struct json_object *record = json_object_get(fix_last_record(journal, seq));
    json_object_put(journal);
    return record;
}

static void test_a_signal_is_a_stop(void **state)
{
    (void)state;
    open_with("INT,TERM", 0);
    raise(SIGTERM);
    fix_wait_seq(1);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_string_equal(kj_run_stop_reason(fix.run), "SIGTERM");
    struct json_object *record = record_of(1);
    assert_string_equal(fix_text(record, "verb"), "stop");
    assert_string_equal(fix_text(record, "door"), "signal");
    assert_string_equal(fix_text(record, "reason"), "SIGTERM");
    assert_int_equal(fix_int(record, "pid"), getpid());
    assert_int_equal(fix_int(record, "uid"), getuid());
    json_object_put(record);
}

static void test_a_signal_is_any_command(void **state)
{
    (void)state;
    open_with("USR1=tick n=5 reason=\"for a, b\" , sigusr2 = set lr=0.5", 0);
    for (int64_t k = 1; k <= 4; k++) { /* as often as it comes */
        raise(SIGUSR1);
        fix_wait_seq(k);
        assert_int_equal(kj_run_poll(fix.run), 0);
    }
    assert_int_equal(fix.tick_sum, 20);
    struct json_object *record = record_of(1);
    assert_string_equal(fix_text(record, "reason"), "for a, b");
    json_object_put(record);
    raise(SIGUSR2);
    fix_wait_seq(5);
    assert_int_equal(kj_run_poll(fix.run), 0);
    assert_true(fix.lr == 0.5);
}

static void test_what_the_run_cannot_do_is_one_warning(void **state)
{
    (void)state;
    open_with("USR1=fly", 0);
    raise(SIGUSR1);
    fix_wait_seq(1);
    while (!strstr(fix.log, "SIGUSR1=fly: no verb \"fly\""))
        kj_run_poll(fix.run);
}

static void test_the_second_does_what_was_there_before(void **state)
{
    (void)state;
    signal(SIGINT, handle);
    open_with("INT,USR1=tick", 0);
    raise(SIGINT);
    fix_wait_seq(1);
    assert_int_equal(n_handled, 0);
    raise(SIGINT); /* the stop is not even applied */
    assert_int_equal(n_handled, 1);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    assert_int_equal(fix.run->last_seq, 1);
}

static void test_a_handler_that_wants_to_know_more(void **state)
{
    (void)state;
    struct sigaction action = {.sa_flags = SA_SIGINFO}, now;
    action.sa_sigaction = handle_info;
    sigaction(SIGINT, &action, NULL);
    open_with("INT=stop save=no", 0);
    sigaction(SIGINT, NULL, &now);
    assert_true(now.sa_flags & SA_RESTART);
    raise(SIGINT);
    sigaction(SIGINT, NULL, &now); /* the next one goes to a handler that breaks calls off */
    assert_false(now.sa_flags & SA_RESTART);
    raise(SIGINT);
    assert_int_equal(n_handled, 1);
    fix_close();
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_sigaction, handle_info);
    assert_int_equal(now.sa_flags & SA_RESTART, 0);
}

/* In a child process with a run of its own: SIGTERM, so often; the status of its end. */
static int end_of_child(void (*before)(int), int times)
{
    pid_t child = fork();
    if (child == 0) {
        kj_run *run = NULL;
        signal(SIGTERM, before);
        if (try_open("TERM", KJ_RUN_THREADLESS, "child", &run, NULL) < 0)
            _exit(2);
        for (int k = 0; k < times; k++)
            raise(SIGTERM);
        while (!(kj_run_poll(run) & KJ_RUN_STOP))
            ;
        kj_run_close(run);
        _exit(n_handled);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_second_and_third(void **state)
{
    (void)state;
    assert_int_equal(end_of_child(SIG_DFL, 1), 0);
    assert_int_equal(end_of_child(SIG_DFL, 2), SIGTERM);
    assert_int_equal(end_of_child(SIG_IGN, 2), 0);
    assert_int_equal(end_of_child(SIG_IGN, 3), SIGTERM);
    assert_int_equal(end_of_child(handle, 2), W_EXITCODE(1, 0));
    assert_int_equal(end_of_child(handle, 3), SIGTERM);
}

#ifndef __SANITIZE_THREAD__
static int wait_status(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_a_forked_child_has_what_was_there_before(void **state)
{
    (void)state;
    signal(SIGUSR1, handle);
    open_with("TERM,USR1", 0);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGUSR1);
        if (n_handled == 1)
            raise(SIGTERM);
        _exit(1);
    }
    assert_int_equal(wait_status(child), SIGTERM);
    child = _Fork(); /* no handler of fork(2) runs */
    if (child == 0) {
        kill(getpid(), SIGUSR1);
        if (n_handled == 1)
            kill(getpid(), SIGTERM);
        _exit(1);
    }
    assert_int_equal(wait_status(child), SIGTERM);
    assert_int_equal(fix.run->last_seq, 0);
    raise(SIGTERM); /* the parent's are still there */
    fix_wait_seq(1);
}

#endif

static void test_all_is_as_it_was_after_the_run(void **state)
{
    (void)state;
    struct sigaction now;
    signal(SIGTERM, SIG_IGN);
    open_with("INT,TERM,USR1", 0);
    signal(SIGUSR1, handle); /* the program has put another one over ours */
    fix_close();
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    sigaction(SIGTERM, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_IGN);
    sigaction(SIGUSR1, NULL, &now);
    assert_ptr_equal(now.sa_handler, handle);
}

/* Another handler has kept ours and puts it back when the run is gone. */
static void test_a_handler_that_outlives_its_run(void **state)
{
    (void)state;
    struct sigaction ours, theirs = {.sa_handler = handle};
    signal(SIGUSR1, handle);
    open_with("USR1", 0);
    sigaction(SIGUSR1, &theirs, &ours);
    fix_close();
    sigaction(SIGUSR1, &ours, NULL);
    raise(SIGUSR1);
    assert_int_equal(n_handled, 1);
    open_with("USR1", 0);
    raise(SIGUSR1);
    fix_wait_seq(1);
    raise(SIGUSR1);
    assert_int_equal(n_handled, 2);
}

static struct sigaction kept; /* by the handler below */

static void hand_on(int number, siginfo_t *info, void *context)
{
    n_handled += 100;
    kept.sa_sigaction(number, info, context);
}

/* A handler that hands on to ours stays when its run is gone, and is there when the next one comes.
 */
static void test_two_that_hand_on_to_each_other(void **state)
{
    (void)state;
    struct sigaction theirs = {.sa_flags = SA_SIGINFO};
    theirs.sa_sigaction = hand_on;
    signal(SIGUSR2, handle);
    open_with("USR2", 0);
    sigaction(SIGUSR2, &theirs, &kept);
    fix_close();
    open_with("USR2", 0);
    raise(SIGUSR2);
    fix_wait_seq(1);
    assert_int_equal(n_handled, 0);
    raise(SIGUSR2);
    assert_int_equal(n_handled, 101);
    fix_close();
    raise(SIGUSR2); /* to theirs, and once more by way of ours */
    assert_int_equal(n_handled, 302);
    signal(SIGUSR2, SIG_DFL);
}

static void test_no_handler_unless_asked_for(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (number != SIGPIPE && sigaction(number, NULL, &now) == 0)
            assert_true(now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN ||
                        number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                        number == SIGILL || number == SIGABRT || number == SIGSYS);
    }
}

static void test_before_the_run_listens_nothing_is_taken(void **state)
{
    (void)state;
    struct sigaction now;
    open_with("INT", KJ_RUN_LISTEN_LATER);
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    raise(SIGINT);
    fix_wait_seq(1);
}

static void test_one_run_of_a_process_has_the_signals(void **state)
{
    (void)state;
    kj_run *other = NULL;
    kj_error err = KJ_ERROR_INIT;
    open_with("TERM", 0);
    assert_int_equal(try_open("TERM", KJ_RUN_STRICT, "other", &other, &err), KJ_EBUSY);
    assert_int_equal(try_open("TERM", 0, "other", &other, &err), 0);
    assert_non_null(strstr(fix.log, "another run of this process has the signals"));
    raise(SIGTERM);
    fix_wait_seq(1);
    kj_run_close(other);
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    fix_close();
    *fix.log = 0;
    open_with("TERM", 0); /* they are free again */
    assert_null(strstr(fix.log, "another run"));
}

static void test_specs_that_cannot_be_meant(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *why;
    } bad[] = {
        {"KILL", "no signal \"KILL\"; there are HUP, INT"},
        {"INT,", "no signal \"\""},
        {"INT,INT", "INT is there twice"},
        {"TERM,SIGTERM=stop", "TERM is there twice"},
        {"USR1=", "no command behind"},
        {"USR1=stop at=never", "at=never"},
        {"USR1=note \"a", "\""},
        {"USR1=tick tags=a,b", "double quotes"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        kj_run *run = NULL;
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(try_open(bad[k].spec, 0, "test", &run, &err), KJ_EARG);
        if (!strstr(err.message, bad[k].why))
            fail_msg("%s: %s", bad[k].spec, err.message);
        assert_null(run);
    }
    open_with("", 0);
}

static void test_the_run_says_which(void **state)
{
    (void)state;
    open_with("INT,USR1=tick", 0);
    assert_string_equal(fix_text(fix.run->json, "signals"), "INT,USR1=tick");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_signal_is_a_stop),
        TEST(test_a_signal_is_any_command),
        TEST(test_what_the_run_cannot_do_is_one_warning),
        TEST(test_the_second_does_what_was_there_before),
        TEST(test_a_handler_that_wants_to_know_more),
        TEST(test_second_and_third),
#ifndef __SANITIZE_THREAD__ /* whose runtime delivers no signal in a forked child */
        TEST(test_a_forked_child_has_what_was_there_before),
#endif
        TEST(test_all_is_as_it_was_after_the_run),
        TEST(test_a_handler_that_outlives_its_run),
        TEST(test_two_that_hand_on_to_each_other),
        TEST(test_no_handler_unless_asked_for),
        TEST(test_before_the_run_listens_nothing_is_taken),
        TEST(test_one_run_of_a_process_has_the_signals),
        TEST(test_specs_that_cannot_be_meant),
        TEST(test_the_run_says_which),
    };
    return cmocka_run_group_tests_name("signal", tests, NULL, NULL);
}
