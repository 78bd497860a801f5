/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are given a schedule. */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { EPOCHS = 10, STEPS = 20 };

static const char *put_schedule(const char *text)
{
    static char path[120];
    snprintf(path, sizeof path, "%s/schedule", fix.root);
    KJI_CLEANUP(kji_closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(kji_write_all(fd, text, strlen(text), NULL), 0);
    return path;
}

static int open_with(const char *schedule, uint32_t flags, kj_error *err)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    options.run_id = "test";
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.schedule_path = schedule;
    options.flags = flags;
    int r = kj_run_open(&options, &fix.run, err);
    if (r >= 0)
        fix_add_all(fix.run);
    return r;
}

/* Sends some commands before some of the steps. */
static void steer(unsigned *seed, int64_t *seq)
{
    static const char *const lines[] = {
        "tick n=%d\n",
        "set lr=0.%d\n",
        "set units=%d at=epoch\n",
        "set mode=\"m %d\"\ntick\n",
    };
    static const int64_t n_commands[] = {1, 1, 1, 2};
    while (rand_r(seed) % 3 == 0) {
        size_t k = (size_t)rand_r(seed) % 4;
        KJI_CLEANUP(kji_freep) char *text = kji_format(lines[k], 1 + rand_r(seed) % 99);
        fix_write(fix_ctl(), text);
        fix_wait_seq(*seq += n_commands[k]);
    }
}

/* The same training each time: what it ends with depends on every value at every step. */
static double train(unsigned *seed)
{
    double state = 1;
    int64_t seq = 0;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        kj_run_begin_epoch(fix.run, epoch);
        for (int64_t step = epoch * STEPS; step < (epoch + 1) * STEPS; step++) {
            if (seed)
                steer(seed, &seq);
            kj_run_begin_step(fix.run, step);
            state = state * 0.9 + fix.lr * (double)(fix.tick_sum + 1) + (double)fix.units +
                    (double)strlen(fix.mode);
        }
        if (seed)
            steer(seed, &seq);
        kj_run_end_epoch(fix.run, epoch);
    }
    return state;
}

/* Calls `print` for each command that was done: in the order in which they were. */
static char *list_done(void (*print)(struct json_object *record, kji_strbuf *to))
{
    struct json_object *journal = fix_journal();
    kji_strbuf list = KJI_STRBUF_INIT;
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        if (strcmp(fix_text(line, "state"), "done") == 0)
            print(line, &list);
    }
    json_object_put(journal);
    return kji_strbuf_take(&list);
}

/* What happened, where. */
static void print_applied(struct json_object *record, kji_strbuf *to)
{
    static const char *const keys[] = {"verb", "args", "place", "step", "epoch", "old", "new"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        kji_strbuf_printf(to, "%s ",
                          json_object_to_json_string(json_object_object_get(record, keys[k])));
    kji_strbuf_putc(to, '\n');
}

/* The line that does it again. */
static void print_line(struct json_object *record, kji_strbuf *to)
{
    const char *place = fix_text(record, "place");
    kji_strbuf_puts(to, fix_text(record, "verb"));
    struct json_object *args = json_object_object_get(record, "args");
    if (args) {
        json_object_object_foreach(args, key, value)
            kji_strbuf_printf(to, " %s=%s", key, json_object_to_json_string(value));
    }
    kji_strbuf_printf(to, " at=%s:%lld\n", place, (long long)fix_int(record, place));
}

static void test_a_steered_run_is_repeated_by_a_schedule(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        unsigned random = seed;
        assert_int_equal(open_with(NULL, 0, NULL), 0);
        double result = train(&random);
        fix_close();
        KJI_CLEANUP(kji_freep) char *applied = list_done(print_applied);
        KJI_CLEANUP(kji_freep) char *schedule = list_done(print_line);
        assert_non_null(strstr(schedule, "at=step:"));
        assert_non_null(strstr(schedule, "at=epoch:"));
        kji_test_remove_tree(fix.state);
        fix.lr = 0.1, fix.units = 32, fix.tick_sum = 0, fix.n_ticks = 0;
        strcpy(fix.mode, "train");
        assert_int_equal(open_with(put_schedule(schedule), KJ_RUN_LISTEN_LATER, NULL), 0);
        assert_int_equal(kj_run_listen(fix.run, NULL), 0);
        assert_true(train(NULL) == result);
        fix_close();
        KJI_CLEANUP(kji_freep) char *again = list_done(print_applied);
        assert_string_equal(applied, again);
        assert_int_equal(fix.n_warnings, 0);
        kji_test_remove_tree(fix.state);
        fix.lr = 0.1, fix.units = 32, fix.tick_sum = 0, fix.n_ticks = 0;
        strcpy(fix.mode, "train");
    }
}

static void test_it_is_taken_in_before_the_first_step(void **state)
{
    (void)state;
    setenv("KAJITORI_SCHEDULE",
           put_schedule("# made by hand\n\ntick n=1 at=step:0\ntick n=2\ntick n=4 at=step:2\n"), 1);
    int r = open_with(NULL, 0, NULL);
    unsetenv("KAJITORI_SCHEDULE");
    assert_int_equal(r, 0);
    fix_write(fix_ctl(), "tick n=8\n");
    fix_wait_seq(1); /* a door may be quicker, the schedule is not lost for it */
    assert_int_equal(fix.tick_sum, 0);
    kj_run_begin_step(fix.run, 0);
    assert_int_equal(fix.tick_sum, 11);
    kj_run_begin_step(fix.run, 1);
    assert_int_equal(fix.tick_sum, 11);
    kj_run_begin_step(fix.run, 2);
    assert_int_equal(fix.tick_sum, 15);
    struct json_object *journal = fix_journal(), *record = fix_last_record(journal, 2);
    assert_string_equal(fix_text(record, "door"), "schedule");
    json_object_put(journal);
    assert_int_equal(fix.n_warnings, 0);
}

static void test_a_bad_line_is_one_warning(void **state)
{
    (void)state;
    const char *path = put_schedule("tick n=1\n"
                                    "tik n=1\n"
                                    "set lr=7 at=step:5\n"
                                    "set \"\n"
                                    "tick n=2"); /* without a newline */
    assert_int_equal(open_with(path, KJ_RUN_STRICT, NULL), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 0), 0);
    assert_int_equal(fix.tick_sum, 3);
    assert_int_equal(fix.n_warnings, 3);
    assert_non_null(strstr(fix.log, "schedule:2: "));
    assert_non_null(strstr(fix.log, "schedule:3: "));
    assert_non_null(strstr(fix.log, "schedule:4: "));
}

static void test_many_bad_lines_are_counted(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    for (int k = 0; k < KJI_SCHEDULE_WARNINGS + 20; k++)
        kji_strbuf_puts(&text, "?\n");
    assert_int_equal(open_with(put_schedule(text.text), 0, NULL), 0);
    fix.log[0] = 0;
    kj_run_poll(fix.run);
    assert_int_equal(fix.n_warnings, KJI_SCHEDULE_WARNINGS + 1);
    struct json_object *journal = fix_journal();
    struct json_object *last =
        json_object_array_get_idx(journal, json_object_array_length(journal) - 1);
    assert_non_null(strstr(fix_text(last, "text"), "20 more lines"));
    json_object_put(journal);
}

static void test_a_schedule_that_is_not_there(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    assert_true(open_with("/nonexistent/schedule", KJ_RUN_STRICT, &err) < 0);
    assert_non_null(strstr(err.message, "/nonexistent/schedule"));
    assert_null(fix.run);
    assert_int_equal(open_with("/nonexistent/schedule", 0, NULL), 0);
    assert_int_equal(fix.n_warnings, 1);
    assert_non_null(strstr(fix.log, "no schedule: /nonexistent/schedule"));
    fix_close();
    assert_true(open_with("/dev/zero", KJ_RUN_STRICT, &err) < 0); /* without end */
    assert_non_null(strstr(err.message, "larger"));
    assert_true(open_with(fix.root, KJ_RUN_STRICT, &err) < 0);
    assert_int_equal(mkfifo(fix.fifo, 0600), 0); /* empty until somebody writes */
    assert_true(open_with(fix.fifo, KJ_RUN_STRICT, &err) < 0);
    assert_non_null(strstr(err.message, "is a FIFO"));
}

static void test_a_run_that_never_trains_takes_nothing_in(void **state)
{
    (void)state;
    assert_int_equal(open_with(put_schedule("tick n=1\n"), KJ_RUN_LISTEN_LATER, NULL), 0);
    fix_close();
    struct json_object *journal = fix_journal();
    assert_int_equal(json_object_array_length(journal), 2); /* it began and ended */
    json_object_put(journal);
}

static void test_a_deaf_run_follows_its_schedule(void **state)
{
    (void)state;
    int fd = open(fix.runtime, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* no folder */
    close(fd);
    assert_int_equal(open_with(put_schedule("tick n=5 at=step:3\nstop at=step:7\n"), 0, NULL), 0);
    for (int64_t step = 0; step < 20; step++)
        assert_int_equal(kj_run_begin_step(fix.run, step), step < 7 ? 0 : KJ_RUN_STOP);
    assert_int_equal(fix.tick_sum, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fix_set_up, fix_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_steered_run_is_repeated_by_a_schedule),
        TEST(test_it_is_taken_in_before_the_first_step),
        TEST(test_a_bad_line_is_one_warning),
        TEST(test_many_bad_lines_are_counted),
        TEST(test_a_schedule_that_is_not_there),
        TEST(test_a_run_that_never_trains_takes_nothing_in),
        TEST(test_a_deaf_run_follows_its_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
