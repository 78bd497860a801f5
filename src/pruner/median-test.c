/* SPDX-License-Identifier: Apache-2.0 */
/* What a decision says; that its answers are Optuna's is shown in tests/conformance. */
#include "pruner.h"

#include "kji-test.h"

#include <math.h>
#include <string.h>

static void add_complete(kji_history *history, const double *values, size_t n)
{
    kji_trial *trial = kji_trial_new();
    trial->number = (int64_t)history->n_trials;
    trial->id = trial->number + 1;
    trial->state = KJ_TRIAL_COMPLETE;
    for (size_t k = 0; k < n; k++)
        assert_int_equal(kji_trial_add_report(trial, (int64_t)k, values[k]), 1);
    assert_int_equal(kji_history_put(history, trial, NULL), 0);
}

static kji_decision decide(const char *options, const kji_history *history, const double *values,
                           size_t n)
{
    kji_pruner *pruner;
    kji_decision decision;
    kji_trial *trial = kji_trial_new();
    for (size_t k = 0; k < n; k++)
        assert_int_equal(kji_trial_add_report(trial, (int64_t)k, values[k]), 1);
    assert_int_equal(kji_pruner_new("median", options, &pruner, NULL), 0);
    assert_int_equal(kji_pruner_decide(pruner, history, trial, &decision, NULL), 0);
    kji_pruner_free(pruner);
    kji_trial_free(trial);
    return decision;
}

static void test_a_cut_says_why(void **state)
{
    (void)state;
    kji_history *h = kji_history_new(KJ_DIRECTION_MINIMIZE);
    for (int k = 0; k < 6; k++)
        add_complete(h, (double[]){0.5, 0.25 + 0.0625 * k}, 2);
    kji_decision d = decide(NULL, h, (double[]){0.75, 0.5}, 2);
    assert_int_equal(d.prune, 1);
    assert_string_equal(d.rule, "median");
    assert_string_equal(d.reason,
                        "best 0.5 until step 1 is worse than the median 0.40625 of 6 trials");
    assert_true(d.step == 1 && d.value == 0.5 && d.threshold == 0.40625 && d.n_peers == 6);
    assert_int_equal(d.peers[0], 0);
    d = decide(NULL, h, (double[]){0.125, 0.5}, 2); /* the best counts, not the newest */
    assert_int_equal(d.prune, 0);
    assert_string_equal(d.reason,
                        "best 0.125 until step 1 is not worse than the median 0.40625 of 6 trials");
    kji_history_free(h);
}

static void expect_reason(double threshold, double value, const char *text)
{
    kji_history *h = kji_history_new(KJ_DIRECTION_MINIMIZE);
    for (int k = 0; k < 6; k++)
        add_complete(h, (double[]){threshold}, 1);
    kji_decision d = decide(NULL, h, (double[]){value}, 1);
    assert_string_equal(d.reason, text);
    assert_true(d.value == value && d.threshold == threshold);
    kji_history_free(h);
}

static void test_reasons_are_short(void **state)
{
    (void)state;
    expect_reason(0.8025305271148682, 2.3081398010253906,
                  "best 2.30814 until step 0 is worse than the median 0.802531 of 6 trials");
    expect_reason(1.23456789e-7, 123456789.0,
                  "best 123457000.0 until step 0 is worse than the median 1.23457e-07 of 6 trials");
    expect_reason(1.00000001, 1.00000002,
                  "best 1.00000002 until step 0 is worse than the median 1.00000001 of 6 trials");
    expect_reason(0.0, 1e-300, "best 1e-300 until step 0 is worse than the median 0.0 of 6 trials");
    expect_reason(1.0, INFINITY, "best inf until step 0 is worse than the median 1.0 of 6 trials");
}

static void test_what_keeps_a_trial(void **state)
{
    (void)state;
    kji_history *h = kji_history_new(KJ_DIRECTION_MAXIMIZE);
    double bad[] = {0.0, 0.0, 0.0};
    assert_string_equal(decide("n_startup_trials=0", h, bad, 1).reason, "no trial is complete yet");
    add_complete(h, (double[]){1, 1}, 2);
    assert_string_equal(decide(NULL, h, bad, 0).reason, "nothing was reported yet");
    assert_string_equal(decide(NULL, h, bad, 1).reason,
                        "fewer than n_startup_trials trials are complete");
    assert_string_equal(decide("n_startup_trials=1,n_warmup_steps=1", h, bad, 1).reason,
                        "the step is below n_warmup_steps");
    assert_string_equal(decide("n_startup_trials=1,interval_steps=2", h, bad, 2).reason,
                        "this interval of interval_steps was looked at before");
    assert_string_equal(decide("n_startup_trials=1,n_min_trials=2", h, bad, 1).reason,
                        "only 1 complete trials reported step 0");
    assert_string_equal(decide("n_startup_trials=1", h, bad, 3).reason,
                        "only 0 complete trials reported step 2");
    kji_decision d = decide("n_startup_trials=1", h, (double[]){NAN}, 1);
    assert_int_equal(d.prune, 1);
    assert_string_equal(d.reason, "every report until step 0 is NaN");
    assert_int_equal(decide("n_startup_trials=1", h, bad, 1).prune, 1);
    kji_history_free(h);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kji_pruner *pruner = NULL;
    assert_int_equal(kji_pruner_new("median", "n_warmup=3", &pruner, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "pruner median has no option \"n_warmup\""));
    assert_int_equal(kji_pruner_new("median", "interval_steps=0", &pruner, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "interval_steps=0 is refused"));
    assert_null(pruner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cut_says_why),
        cmocka_unit_test(test_reasons_are_short),
        cmocka_unit_test(test_what_keeps_a_trial),
        cmocka_unit_test(test_options_are_checked),
    };
    return cmocka_run_group_tests_name("median", tests, NULL, NULL);
}
