/* SPDX-License-Identifier: Apache-2.0 */
#include "pruner.h"

#include "kji-test.h"

#include <math.h>

static void test_it_never_prunes(void **state)
{
    (void)state;
    kji_pruner *pruner;
    kji_decision d;
    kji_history *history = kji_history_new(KJ_DIRECTION_MINIMIZE);
    kji_trial *trial = kji_trial_new();
    assert_int_equal(kji_pruner_new("none", "", &pruner, NULL), 0);
    assert_int_equal(kji_trial_add_report(trial, 3, NAN), 1);
    assert_int_equal(kji_pruner_decide(pruner, history, trial, &d, NULL), 0);
    assert_true(d.prune == 0 && d.step == 3 && isnan(d.value) && isnan(d.threshold));
    assert_string_equal(d.reason, "this rule never prunes");
    kji_pruner_free(pruner);
    kji_trial_free(trial);
    kji_history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_never_prunes)};
    return cmocka_run_group_tests_name("none", tests, NULL, NULL);
}
