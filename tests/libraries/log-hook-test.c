/* SPDX-License-Identifier: Apache-2.0 */
/* One hook gets the warnings of both libraries. */
#include <kajitori.h>
#include <kajitori/engine.h>

#include "kji-test.h"

#include <stdio.h>
#include <string.h>

static char told[1000];
static int n_told, level_told;

static void keep(void *userdata, int level, const char *message)
{
    assert_ptr_equal(userdata, told);
    snprintf(told, sizeof told, "%s", message);
    level_told = level;
    n_told++;
}

static void suggest_out_of_range(kj_study *study)
{
    kj_distribution x = KJ_DISTRIBUTION_INIT;
    kj_trial *trial;
    kj_value value;
    x.kind = KJ_DISTRIBUTION_FLOAT;
    x.high = 1;
    assert_int_equal(kj_study_enqueue(study, "{\"x\": 7}", NULL, NULL, NULL), 0);
    assert_int_equal(kj_study_ask(study, &trial, NULL), 0);
    assert_int_equal(kj_trial_suggest(trial, "x", &x, &value, NULL), 0);
    assert_true(value.f == 7);
    kj_trial_free(trial);
}

static void test_the_engine_warns_through_the_one_hook(void **state)
{
    (void)state;
    kj_storage *storage;
    kj_study *study;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.flags = KJ_STUDY_CREATE;
    assert_int_equal(kj_storage_open("memory:", &storage, NULL), 0);
    assert_int_equal(kj_study_open(storage, &options, &study, NULL), 0);
    kj_log_set(keep, told);
    suggest_out_of_range(study);
    assert_int_equal(n_told, 1);
    assert_int_equal(level_told, KJ_LOG_WARNING);
    assert_string_equal(told, "trial 0: the enqueued value of \"x\" is out of its range");
    kj_log_set(NULL, NULL);
    suggest_out_of_range(study);
    assert_int_equal(n_told, 1);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_others_may_write_to_the_hook(void **state)
{
    (void)state;
    n_told = 0;
    kj_log_set(keep, told);
    kj_log_write(KJ_LOG_INFO, "100%s\nof it");
    kj_log_set(NULL, NULL);
    assert_int_equal(n_told, 1);
    assert_int_equal(level_told, KJ_LOG_INFO);
    assert_string_equal(told, "100%s of it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_warns_through_the_one_hook),
        cmocka_unit_test(test_others_may_write_to_the_hook),
    };
    return cmocka_run_group_tests_name("log-hook", tests, NULL, NULL);
}
