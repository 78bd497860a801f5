/* SPDX-License-Identifier: Apache-2.0 */
/* What a run left undone when it died, and the run of the same id after it. */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* A process opens the run, takes `lines` in, makes `n_steps` steps, and is killed. */
static void die_with(const char *lines, int64_t n_commands, int64_t n_steps)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fix_open(NULL, 0);
        fix_write(fix_ctl(), lines);
        fix_wait_seq(n_commands);
        for (int64_t step = 0; step < n_steps; step++)
            kj_run_begin_step(fix.run, step);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static const char lines[] = "set lr=0.5 by=alice reason=hot\n"
                            "tick n=3 at=step:5\n"
                            "tick n=20 at=step:50 command_id=b\n"
                            "set mode=\"a b\" at=epoch:2\n";

/* `recoverable` of the newest run_started. */
static struct json_object *listed(struct json_object *journal)
{
    struct json_object *list = NULL;
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        if (strcmp(fix_text(line, "event"), "run_started") == 0)
            list = json_object_object_get(line, "recoverable");
    }
    return list;
}

static struct json_object *command(int fd, const char *line)
{
    KJI_CLEANUP(kji_freep) char *params = kji_format("{\"line\": \"%s\"}", line);
    return fix_call(fd, "command", params);
}

static void test_the_next_run_says_what_is_undone(void **state)
{
    (void)state;
    die_with(lines, 4, 10);
    fix_open(NULL, 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "left 2 commands undone: 3 (tick at step:50), 4 (set at "
                                    "epoch:2)"));
    struct json_object *journal = fix_journal(), *list = listed(journal);
    assert_int_equal(json_object_array_length(list), 2);
    assert_int_equal(fix_int(json_object_array_get_idx(list, 0), "seq"), 3);
    assert_string_equal(fix_text(json_object_array_get_idx(list, 0), "command_id"), "b");
    int fd = fix_connect();
    struct json_object *status = fix_call(fd, "status", NULL);
    assert_int_equal(json_object_array_length(json_object_object_get(status, "recoverable")), 2);
    for (int64_t step = 0; step < 100; step++)
        kj_run_begin_step(fix.run, step);
    assert_int_equal(fix.tick_sum, 0); /* never by itself */
    json_object_put(command(fd, "ping"));
    fix_wait_seq(5); /* the numbers go on */
    json_object_put(status);
    json_object_put(journal);
    close(fd);
}

static void test_recover_sends_them_anew(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    fix_open(NULL, 0);
    int fd = fix_connect();
    struct json_object *answer = command(fd, "recover dry_run=yes");
    struct json_object *result = json_object_object_get(answer, "result");
    assert_int_equal(json_object_array_length(json_object_object_get(result, "recoverable")), 4);
    json_object_put(answer);
    answer = command(fd, "recover");
    result = json_object_object_get(answer, "result");
    assert_string_equal(fix_text(answer, "state"), "done");
    assert_int_equal(fix_int(result, "recovered"), 4);
    assert_int_equal(fix_int(result, "rejected"), 0);
    json_object_put(answer);
    for (int64_t step = 4; step < 60; step++) {
        kj_run_begin_step(fix.run, step);
        assert_int_equal(fix.tick_sum, (step >= 5 ? 3 : 0) + (step >= 50 ? 20 : 0));
    }
    assert_true(fix.lr == 0.5);
    kj_run_end_epoch(fix.run, 7);
    assert_string_equal(fix.mode, "a b");
    answer = command(fd, "recover");
    assert_int_equal(fix_int(json_object_object_get(answer, "result"), "recovered"), 0);
    json_object_put(answer);
    struct json_object *journal = fix_journal(), *record = fix_last_record(journal, 7);
    assert_int_equal(fix_int(record, "recovered"), 1);
    assert_string_equal(fix_text(record, "by"), "alice");
    assert_string_equal(fix_text(record, "reason"), "hot");
    assert_string_equal(fix_text(record, "door"), "run");
    assert_string_equal(fix_text(record, "state"), "done");
    json_object_put(journal);
    answer = fix_call(fd, "status", NULL);
    assert_false(json_object_object_get_ex(answer, "recoverable", NULL));
    json_object_put(answer);
    close(fd);
}

static void test_recover_takes_those_that_are_named(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    fix_open(NULL, 0);
    int fd = fix_connect();
    struct json_object *answer = command(fd, "recover 2 77");
    assert_non_null(strstr(fix_text(answer, "message"), "no command 77"));
    json_object_put(answer);
    answer = command(fd, "recover x");
    assert_non_null(strstr(fix_text(answer, "message"), "numbers"));
    json_object_put(answer);
    answer = command(fd, "recover 2 2");
    assert_int_equal(fix_int(json_object_object_get(answer, "result"), "recovered"), 1);
    json_object_put(answer);
    kj_run_begin_step(fix.run, 5);
    assert_int_equal(fix.tick_sum, 3);
    answer = command(fd, "tick n=20 command_id=b"); /* sent again by who missed the answer */
    json_object_put(answer);
    answer = command(fd, "recover");
    assert_int_equal(fix_int(json_object_object_get(answer, "result"), "recovered"), 2);
    json_object_put(answer);
    kj_run_begin_step(fix.run, 60);
    assert_int_equal(fix.tick_sum, 23);
    close(fd);
}

static void test_what_is_rejected_can_be_recovered_later(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    fix.run = fix_open_other(NULL, 0, "test");
    int fd = fix_connect();
    struct json_object *answer = command(fd, "recover 1");
    struct json_object *result = json_object_object_get(answer, "result");
    assert_int_equal(fix_int(result, "rejected"), 1);
    struct json_object *told =
        json_object_array_get_idx(json_object_object_get(result, "commands"), 0);
    assert_non_null(strstr(fix_text(told, "error"), "may still register"));
    json_object_put(answer);
    fix_add_all(fix.run);
    answer = command(fd, "recover");
    assert_int_equal(fix_int(json_object_object_get(answer, "result"), "recovered"), 4);
    json_object_put(answer);
    close(fd);
}

static void test_a_run_that_ended_leaves_nothing(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    fix_open(NULL, 0);
    fix_write(fix_ctl(), "tick at=step:1000\n");
    fix_wait_seq(5);
    fix_close();
    fix.n_warnings = 0;
    fix_open(NULL, 0);
    assert_int_equal(fix.n_warnings, 0);
    struct json_object *journal = fix_journal();
    assert_null(listed(journal));
    json_object_put(journal);
}

static void test_a_run_that_died_at_once_loses_nothing(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    die_with("tick n=1 at=step:9\n", 5, 0);
    fix_open(NULL, 0);
    struct json_object *journal = fix_journal();
    assert_int_equal(json_object_array_length(listed(journal)), 5);
    json_object_put(journal);
}

static void test_a_flood_does_not_take_the_numbers_back(void **state)
{
    (void)state;
    die_with(lines, 4, 0);
    fix_open(NULL, 0);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf flood = KJI_STRBUF_INIT;
    for (int k = 0; k < 200; k++)
        kji_strbuf_puts(&flood, "nonsense\n");
    kji_strbuf_puts(&flood, "recover\n");
    fix_write(fix_ctl(), flood.text);
    while (fix.tick_sum < 23)
        kj_run_begin_step(fix.run, 60);
    struct json_object *journal = fix_journal();
    bool *seen = calloc(1000, sizeof *seen);
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        const char *verb = fix_text(line, "state");
        int64_t seq;
        if (!kji_json_int(line, "seq", &seq) ||
            (strcmp(verb, "accepted") != 0 && strcmp(fix_text(line, "verb"), "recover") != 0))
            continue;
        assert_false(seen[seq]); /* a number is given once */
        seen[seq] = true;
    }
    free(seen);
    json_object_put(journal);
}

static void test_a_secret_cannot_be_recovered(void **state)
{
    (void)state;
    static const char masked[] =
        "{\"n\":4,\"time\":1,\"seq\":2,\"state\":\"accepted\",\"verb\":\"set\",\"args\":{\"mode\":"
        "\"***\"},\"at\":\"step:5\",\"masked\":true}\n";
    die_with("ping\n", 1, 0);
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/runs/test/journal.jsonl", fix.state);
    KJI_CLEANUP(kji_closep) int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(kji_write_all(file, masked, strlen(masked), NULL), 0);
    fix_open(NULL, 0);
    int fd = fix_connect();
    struct json_object *answer = command(fd, "recover");
    struct json_object *result = json_object_object_get(answer, "result");
    assert_int_equal(fix_int(result, "rejected"), 1);
    json_object_put(answer);
    kj_run_begin_step(fix.run, 5);
    assert_string_equal(fix.mode, "train");
    close(fd);
}

static void delete_journal(void)
{
    kji_test_remove_tree(fix.state);
    pthread_mutex_lock(&fix.run->lock);
    fix.run->journal.looked_ms = -1000000; /* as if a second had passed */
    pthread_mutex_unlock(&fix.run->lock);
}

static void test_deleted_journals_are_one_warning(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    fix_write(fix_ctl(), "tick n=1\n");
    fix_wait_seq(1);
    kj_run_poll(fix.run);
    delete_journal();
    fix_write(fix_ctl(), "tick n=2\ntick n=4\n");
    fix_wait_seq(3);
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 7);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "deleted"));
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/runs/test/run.json", fix.state);
    assert_int_equal(access(path, F_OK), 0);
    path[strlen(path) - strlen("run.json")] = 0;
    KJI_CLEANUP(kji_freep) char *journal = kji_format("%sjournal.jsonl", path);
    KJI_CLEANUP(kji_freep) char *text = NULL;
    assert_int_equal(kji_read_file(AT_FDCWD, journal, 1 << 20, &text, NULL, NULL), 0);
    assert_non_null(strstr(text, "\"seq\":3,\"state\":\"done\""));
}

static void test_a_live_run_begins_new_files(void **state)
{
    (void)state;
    fix_open(NULL, 0);
    pthread_mutex_lock(&fix.run->lock);
    fix.run->journal.rotate_bytes = 3000;
    pthread_mutex_unlock(&fix.run->lock);
    fix_write(fix_ctl(), "tick n=1 at=step:900\n");
    for (int64_t seq = 2; seq <= 100; seq++) {
        fix_write(fix_ctl(), "tick n=0\n");
        fix_wait_seq(seq);
        kj_run_poll(fix.run);
    }
    int fd = fix_connect();
    int64_t after = 0, n_commands = 0;
    for (size_t n = 1; n;) {
        KJI_CLEANUP(kji_freep) char *params = kji_format("{\"after\": %lld}", (long long)after);
        struct json_object *answer = fix_call(fd, "journal", params);
        struct json_object *list = json_object_object_get(answer, "lines");
        n = json_object_array_length(list);
        for (size_t k = 0; k < n; k++) {
            struct json_object *line = json_object_array_get_idx(list, k);
            assert_int_equal(fix_int(line, "n"), ++after);
            n_commands += strcmp(fix_text(line, "state"), "done") == 0;
        }
        json_object_put(answer);
    }
    assert_int_equal(n_commands, 99);
    assert_true(fix.run->journal.n_older > 5);
    assert_int_equal(fix.n_warnings, 0);
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_next_run_says_what_is_undone),
        TEST(test_recover_sends_them_anew),
        TEST(test_recover_takes_those_that_are_named),
        TEST(test_what_is_rejected_can_be_recovered_later),
        TEST(test_a_run_that_ended_leaves_nothing),
        TEST(test_a_run_that_died_at_once_loses_nothing),
        TEST(test_a_flood_does_not_take_the_numbers_back),
        TEST(test_a_secret_cannot_be_recovered),
        TEST(test_deleted_journals_are_one_warning),
        TEST(test_a_live_run_begins_new_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
