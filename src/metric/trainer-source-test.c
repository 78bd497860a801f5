/* SPDX-License-Identifier: Apache-2.0 */
#include "lines-place.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STATE(step, entries) \
    "{\n  \"epoch\": 1.0,\n  \"global_step\": " #step ",\n  \"log_history\": [" entries "]\n}\n"
#define ENTRY_10   "{\"epoch\": 0.5, \"learning_rate\": 4e-05, \"loss\": 2.5, \"step\": 10}"
#define ENTRY_EVAL "{\"epoch\": 1.0, \"eval_loss\": NaN, \"step\": 10}"
#define ENTRY_20   "{\"loss\": 1.5, \"step\": 20}"
#define ROWS_10    ". epoch 10 nan 0.5\n. learning_rate 10 nan 4e-05\n. loss 10 nan 2.5\n"
#define ROWS_EVAL  ". epoch 10 nan 1\n. eval_loss 10 nan nan\n"

/* Makes the state the file of this name, in the folder of the test. */
static void put(const char *name, const char *text)
{
    char folder[200];
    snprintf(kji_place.path, sizeof kji_place.path, "%s/%s", kji_place.top, name);
    snprintf(folder, sizeof folder, "%s", kji_place.path);
    *strrchr(folder, '/') = 0;
    mkdir(folder, 0700);
    kji_place_rewrite(text);
}

static kj_events *open_folder(const char *key, uint32_t flags)
{
    char spec[200];
    snprintf(spec, sizeof spec, "trainer:%s%s", kji_place.top, key);
    return kji_place_open(spec, flags);
}

static void test_one_file_that_is_rewritten(void **state)
{
    (void)state;
    kj_events *source = kji_place_open("trainer:%s", 0);
    kji_place_expect(source, "");
    kji_place_rewrite(STATE(10, ENTRY_10));
    kji_place_expect(source, ROWS_10);
    kji_place_rewrite(STATE(20, ENTRY_10 ", " ENTRY_EVAL ", " ENTRY_20));
    kji_place_expect(source, ROWS_EVAL ". loss 20 nan 1.5\n");
    kji_place_expect(source, "");
    kji_place_rewrite(STATE(20, ENTRY_10 ", " ENTRY_20)); /* gone on from an earlier state */
    kji_place_expect(source, ". loss 20 nan 1.5\n");
    kj_events_close(source);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    kji_place_check_growth("trainer:%s:loss", STATE(20, ENTRY_10 ", " ENTRY_20),
                           ". loss 10 nan 2.5\n. loss 20 nan 1.5\n");
}

static void test_checkpoints(void **state)
{
    (void)state;
    kj_events *source = open_folder(":loss", 0);
    kji_place_expect(source, "");
    put("checkpoint-10/trainer_state.json", STATE(10, ENTRY_10));
    kji_place_expect(source, ". loss 10 nan 2.5\n");
    put("checkpoint-20/trainer_state.json", STATE(20, ENTRY_10 ", " ENTRY_20));
    put("checkpoint-20/optimizer.pt", "x");
    put("tmp-checkpoint-30/trainer_state.json", STATE(30, "{\"loss\": 7, \"step\": 30}"));
    kji_place_expect(source, ". loss 20 nan 1.5\n");
    put("trainer_state.json", STATE(25, ENTRY_10 ", " ENTRY_20 ", {\"loss\": 1.0, \"step\": 25}"));
    kji_place_expect(source, ". loss 25 nan 1\n");
    kj_events_close(source);
}

static void test_the_newest_step_comes_first(void **state)
{
    (void)state;
    put("checkpoint-20/trainer_state.json", STATE(20, ENTRY_10 ", " ENTRY_20));
    put("checkpoint-9/trainer_state.json", STATE(9, "{\"loss\": 9, \"step\": 9}"));
    put("trainer_state.json", STATE(8, "{\"loss\": 8, \"step\": 8}"));
    kj_events *source = open_folder(":loss", KJ_EVENTS_FINISHED);
    kji_place_expect(source, ". loss 10 nan 2.5\n. loss 20 nan 1.5\n");
    kj_events_close(source);
}

static void test_names_of_tensorboard(void **state)
{
    (void)state;
    const char *text = STATE(10, ENTRY_10 ", " ENTRY_EVAL ", {\"test_x\": 5, \"step\": 11}");
    kji_place_check_growth("trainer:%s:eval/loss", text, ". eval_loss 10 nan nan\n");
    kji_place_check_growth("trainer:%s:eval_loss", text, ". eval_loss 10 nan nan\n");
    kji_place_check_growth("trainer:%s:train/loss", text, ". loss 10 nan 2.5\n");
    kji_place_check_growth("trainer:%s:test/x", text, ". test_x 11 nan 5\n");
    kji_place_check_growth("trainer:%s:train/loss", STATE(1, "{\"train/loss\": 1, \"step\": 1}"),
                           ". train/loss 1 nan 1\n");
}

static void test_a_new_checkpoint_is_told_by_the_descriptor(void **state)
{
    (void)state;
    kji_rows got = {0};
    put("checkpoint-10/trainer_state.json", STATE(10, ENTRY_10));
    kj_events *source = open_folder(":loss", 0);
    kji_rows_await(source, &got, 1);
    assert_int_equal(kji_rows_drain(source, &got), 0);
    struct pollfd wait = {.fd = kj_events_get_fd(source), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    put("checkpoint-20/trainer_state.json", STATE(20, ENTRY_10 ", " ENTRY_20));
    kji_rows_await(source, &got, 2);
    put("checkpoint-20/trainer_state.json",
        STATE(20, ENTRY_10 ", " ENTRY_20 ", {\"loss\": 1.0, \"step\": 20}"));
    kji_rows_await(source, &got, 3);
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_what_is_no_state(void **state)
{
    (void)state;
    kji_place_rewrite("{\"log_history\": [{\"loss\": 1");
    kj_events *source = kji_place_open("trainer:%s", 0);
    kji_place_expect(source, "");
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.waiting_files, 1);
    assert_int_equal(kji_place.n_logged, 0);
    kj_events_finish(source);
    kji_place_expect(source, "");
    assert_int_equal(kji_place.n_logged, 1);
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.waiting_files, 0);
    assert_int_equal(stats.skipped_records, 1);
    kj_events_close(source);
    kji_place_rewrite("[1]");
    source = kji_place_open("trainer:%s", KJ_EVENTS_FINISHED);
    kji_place_expect(source, "");
    assert_non_null(strstr(kji_place.logged, "no state of a Trainer: it has no list log_history"));
    kj_events_close(source);
}

static void test_cursor(void **state)
{
    (void)state;
    kji_place_check_cursor("trainer:%s", STATE(20, ENTRY_10 ", " ENTRY_EVAL ", " ENTRY_20),
                           ROWS_10 ROWS_EVAL ". loss 20 nan 1.5\n");
    kj_events *source = kji_place_open("trainer:%s", 0);
    kji_place_expect(source, ROWS_10 ROWS_EVAL ". loss 20 nan 1.5\n");
    source = kji_place_reopen(source, "trainer:%s", 0);
    kji_place_rewrite(STATE(20, ENTRY_10 ", " ENTRY_20 ", " ENTRY_EVAL)); /* another state */
    kji_place_expect(source, ROWS_10 ". loss 20 nan 1.5\n" ROWS_EVAL);
    kj_events_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_PLACE_TEST(test_one_file_that_is_rewritten),
        KJI_PLACE_TEST(test_byte_by_byte),
        KJI_PLACE_TEST(test_checkpoints),
        KJI_PLACE_TEST(test_the_newest_step_comes_first),
        KJI_PLACE_TEST(test_names_of_tensorboard),
        KJI_PLACE_TEST(test_a_new_checkpoint_is_told_by_the_descriptor),
        KJI_PLACE_TEST(test_what_is_no_state),
        KJI_PLACE_TEST(test_cursor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
