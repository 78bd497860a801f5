/* SPDX-License-Identifier: Apache-2.0 */
/* The registry, whatever stands in it; that each rule keeps to its contract is in
 * tests/conformance. */
#include "pruner.h"

#include "kji-test.h"

#include <stdio.h>
#include <string.h>

static void test_unknown_pruners_are_refused(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kji_pruner *pruner = NULL;
    assert_int_equal(kji_pruner_new("medain", NULL, &pruner, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "no pruner \"medain\" (did you mean median?); there are "));
    const kji_pruner_ops *ops;
    for (size_t k = 0; (ops = kji_pruner_at(k)); k++)
        assert_non_null(strstr(strchr(err.message, ';'), ops->name));
    assert_null(pruner);
}

static void test_the_first_is_the_default(void **state)
{
    (void)state;
    kji_pruner *pruner = NULL;
    kji_decision decision;
    kji_history *history = kji_history_new(KJ_DIRECTION_MINIMIZE);
    kji_trial *trial = kji_trial_new();
    assert_int_equal(kji_pruner_new(NULL, NULL, &pruner, NULL), 0);
    assert_int_equal(kji_pruner_decide(pruner, history, trial, &decision, NULL), 0);
    assert_string_equal(decision.rule, "median");
    assert_string_equal(kji_pruner_at(0)->name, "median");
    kji_pruner_free(pruner);
    kji_trial_free(trial);
    kji_history_free(history);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    for (size_t k = 0; kji_pruner_at(k); k++)
        for (size_t j = 0; j < k; j++)
            assert_string_not_equal(kji_pruner_at(k)->name, kji_pruner_at(j)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_pruners_are_refused),
        cmocka_unit_test(test_the_first_is_the_default),
        cmocka_unit_test(test_names_are_unique),
    };
    return cmocka_run_group_tests_name("pruner", tests, NULL, NULL);
}
