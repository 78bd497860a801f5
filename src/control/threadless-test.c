/* SPDX-License-Identifier: Apache-2.0 */
/* A run without a helper thread: its safe points serve the doors. */
#include "clock.h"
#include "mem.h"
#include "run-fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int set_up(void **state)
{
    if (fix_set_up(state) < 0)
        return -1;
    fix_open(NULL, KJ_RUN_THREADLESS);
    return 0;
}

static void request(int fd, const char *line)
{
    KJI_CLEANUP(kji_freep)
    char *text =
        kji_format("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"command\",\"params\":{\"line\":"
                   "\"%s\"}}",
                   line);
    fix_send(fd, text);
}

/* Steps until a command was carried out; the bits of the last one. */
static int step_until(int n_ticks)
{
    int bits = 0;
    for (int64_t step = kji_run_step(fix.run) + 1; fix.n_ticks < n_ticks; step++)
        bits = kj_run_begin_step(fix.run, step);
    return bits;
}

static void test_there_is_no_thread(void **state)
{
    (void)state;
    DIR *listing = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *item; (item = readdir(listing));) {
        char path[300], name[20] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", item->d_name);
        FILE *file = *item->d_name == '.' ? NULL : fopen(path, "r");
        if (file && fgets(name, sizeof name, file))
            n += strcmp(name, "kajitori\n") == 0;
        if (file)
            fclose(file);
    }
    closedir(listing);
    assert_int_equal(n, 0);
}

static void test_the_doors_are_served_at_safe_points(void **state)
{
    (void)state;
    int fd = fix_connect();
    fix_write(fix_ctl(), "tick n=1\n");
    request(fd, "tick n=2");
    assert_int_equal(step_until(2), 0);
    assert_int_equal(fix.tick_sum, 3);
    json_object_put(fix_wait_event(fd, "command", "done"));
    fix_write(fix_ctl(), "stop\n");
    for (int64_t step = 100; !(kj_run_begin_step(fix.run, step) & KJ_RUN_STOP); step++)
        ;
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    close(fd);
}

static void test_at_most_20_looks_a_second(void **state)
{
    (void)state;
    int64_t looks = 0, before = fix.run->helper.next_look_ms, start = kji_coarse_ms();
    while (kji_coarse_ms() - start < 300) {
        assert_int_equal(kj_run_poll(fix.run), 0);
        looks += fix.run->helper.next_look_ms != before;
        before = fix.run->helper.next_look_ms;
    }
    assert_in_range(looks, 1, 7);
}

static void test_what_is_scheduled_comes_at_its_step(void **state)
{
    (void)state;
    fix_write(fix_ctl(), "tick at=step:1000000\n");
    while (fix.run->last_seq == 0)
        kj_run_poll(fix.run);
    assert_int_equal(kj_run_begin_step(fix.run, 999999), 0);
    assert_int_equal(fix.n_ticks, 0);
    assert_int_equal(kj_run_begin_step(fix.run, 1000000), 0);
    assert_int_equal(fix.n_ticks, 1);
}

typedef struct caller {
    int fd;
    int number; /* a signal to send, 0: none */
} caller;

/* While the training waits: asks, then ends the pause. */
static void *visit_paused(void *data)
{
    caller *visitor = data;
    for (bool paused = false; !paused;) {
        struct json_object *status = fix_call(visitor->fd, "status", NULL);
        paused = strcmp(fix_text(status, "state"), "paused") == 0;
        json_object_put(status);
    }
    if (visitor->number)
        pthread_kill(fix.training, visitor->number);
    else
        json_object_put(fix_call(visitor->fd, "command", "{\"line\": \"resume\"}"));
    return NULL;
}

static void test_a_pause_waits_and_answers(void **state)
{
    (void)state;
    caller visitor = {.fd = fix_connect()};
    pthread_t thread;
    fix_write(fix_ctl(), "pause\n");
    assert_int_equal(pthread_create(&thread, NULL, visit_paused, &visitor), 0);
    while (fix.run->last_seq < 2) /* one of these polls is the pause */
        kj_run_poll(fix.run);
    assert_int_equal(kj_run_poll(fix.run), 0);
    pthread_join(thread, NULL);
    close(visitor.fd);
}

static void test_a_signal_ends_a_pause(void **state)
{
    (void)state;
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    fix_close();
    options.run_id = "test";
    options.flags = KJ_RUN_THREADLESS;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.signals = "USR1";
    assert_int_equal(kj_run_open(&options, &fix.run, NULL), 0);
    caller visitor = {.fd = fix_connect(), .number = SIGUSR1};
    pthread_t thread;
    fix_write(fix_ctl(), "pause\n");
    assert_int_equal(pthread_create(&thread, NULL, visit_paused, &visitor), 0);
    while (!(kj_run_poll(fix.run) & KJ_RUN_STOP))
        ;
    assert_string_equal(kj_run_stop_reason(fix.run), "SIGUSR1");
    pthread_join(thread, NULL);
    close(visitor.fd);
}

static void test_closing_answers_who_is_left(void **state)
{
    (void)state;
    int fd = fix_connect(); /* nobody has taken it in yet */
    request(fd, "tick");
    fix_write(fix_ctl(), "tick\n");
    fix_close();
    struct json_object *answer = fix_receive(fd), *error;
    assert_non_null(answer);
    assert_true(json_object_object_get_ex(answer, "error", &error));
    assert_non_null(strstr(fix_text(error, "message"), "the run is ending"));
    json_object_put(answer);
    struct json_object *journal = fix_journal();
    assert_string_equal(fix_text(fix_last_record(journal, 2), "state"), "rejected");
    assert_non_null(fix_find_event(journal, "run_ended"));
    json_object_put(journal);
    close(fd);
}

static void test_a_watcher_gets_metrics(void **state)
{
    (void)state;
    int fd = fix_connect();
    fix_send(fd, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"subscribe\"}");
    while (fix.run->feed.n_metric_readers == 0)
        kj_run_poll(fix.run);
    kj_run_report(fix.run, "loss", 1, 0.5, NULL);
    fix_close();
    struct json_object *event = fix_wait_event(fd, "metric", "");
    assert_int_equal(fix_int(event, "step"), 1);
    json_object_put(event);
    close(fd);
}

static void test_a_forked_child_is_deaf(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int bits = kj_run_begin_step(fix.run, 1) | kj_run_poll(fix.run);
        _exit(bits || fix.run->cell.pending);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fix_write(fix_ctl(), "tick\n");
    assert_int_equal(step_until(1), 0);
}

static void test_it_may_listen_later(void **state)
{
    (void)state;
    fix_close();
    fix_open(NULL, KJ_RUN_THREADLESS | KJ_RUN_LISTEN_LATER);
    assert_int_equal(fix.run->cell.pending, 0);
    fix_write(fix_ctl(), "tick\n");
    assert_int_equal(kj_run_listen(fix.run, NULL), 0);
    assert_int_equal(step_until(1), 0);
}

/* However much one client reads at once, the others have their turns. */
static void test_a_client_has_a_part_of_the_events_in_one_look(void **state)
{
    (void)state;
    enum {
        REPORTS = 2000,
        ROOM = 212992
    }; /* the usual most of net.core.wmem_max; it counts double */
    int fd = fix_connect();
    fix_send(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscribe\"}");
    while (fix.run->feed.n_metric_readers == 0)
        kj_run_poll(fix.run);
    kji_client *client = &fix.run->helper.socket.client[0];
    assert_int_equal(setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &(int){ROOM}, sizeof(int)), 0);
    for (int k = 0; k < REPORTS; k++)
        kj_run_report(fix.run, "loss", k, 0.125, NULL);
    kji_helper_push(&fix.run->helper);
    assert_true(fix.run->helper.socket.has_more);
    assert_int_equal(client->out.size, 0);
    while (fix.run->helper.socket.has_more)
        kji_helper_wait(&fix.run->helper, -1);
    json_object_put(fix_receive(fd));
    for (int k = 0; k < REPORTS; k++)
        json_object_put(fix_wait_event(fd, "metric", ""));
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fix_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_there_is_no_thread),
        TEST(test_the_doors_are_served_at_safe_points),
        TEST(test_at_most_20_looks_a_second),
        TEST(test_what_is_scheduled_comes_at_its_step),
        TEST(test_a_pause_waits_and_answers),
        TEST(test_a_signal_ends_a_pause),
        TEST(test_closing_answers_who_is_left),
        TEST(test_a_watcher_gets_metrics),
        TEST(test_a_forked_child_is_deaf),
        TEST(test_it_may_listen_later),
        TEST(test_a_client_has_a_part_of_the_events_in_one_look),
    };
    return cmocka_run_group_tests_name("threadless", tests, NULL, NULL);
}
