/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine adds to its parts; the rules of studies are in tests/conformance. */
#include <kajitori/study.h>

#include "kji-test.h"

#include <math.h>
#include <string.h>

static kj_error err = KJ_ERROR_INIT;

static kj_study *open_study(kj_storage *storage, const char *name, uint32_t seed)
{
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = name;
    options.flags = KJ_STUDY_CREATE;
    options.has_seed = 1;
    options.seed = seed;
    options.pruner = "none";
    if (kj_study_open(storage, &options, &study, &err) < 0)
        fail_msg("%s", err.message);
    return study;
}

static double draw(kj_study *study, const kj_distribution *distribution)
{
    kj_trial *trial;
    kj_value value;
    assert_int_equal(kj_study_ask(study, &trial, &err), 0);
    assert_int_equal(kj_trial_suggest(trial, "x", distribution, &value, &err), 0);
    kj_trial_free(trial);
    return value.f;
}

static void test_a_seed_repeats_the_draws(void **state)
{
    (void)state;
    static const kj_distribution x = {
        .size = sizeof(kj_distribution), .kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1};
    kj_storage *storage;
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    kj_study *a = open_study(storage, "a", 0), *b = open_study(storage, "b", 0),
             *c = open_study(storage, "c", 1);
    double first = draw(a, &x);
    assert_true(first == 0.5488135039273248); /* the first of numpy.random.RandomState(0) */
    assert_true(draw(b, &x) == first && draw(c, &x) != first);
    assert_true(draw(a, &x) == draw(b, &x));
    kj_study_close(a);
    kj_study_close(b);
    kj_study_close(c);
    kj_storage_close(storage);
}

static void test_going_on_with_a_seed_draws_other_values(void **state)
{
    (void)state;
    static const kj_distribution x = {
        .size = sizeof(kj_distribution), .kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1};
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = "a";
    options.has_seed = 1;
    options.seed = 0;
    kj_storage *storage;
    kj_study *study = NULL;
    double values[9];
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    for (size_t k = 0; k < 9; k++) {
        if (k % 3 == 0) {
            kj_study_close(study);
            options.flags = k ? KJ_STUDY_LOAD : KJ_STUDY_CREATE;
            assert_int_equal(kj_study_open(storage, &options, &study, &err), 0);
        }
        values[k] = draw(study, &x);
        for (size_t j = 0; j < k; j++)
            assert_true(values[j] != values[k]);
    }
    assert_true(values[0] == 0.5488135039273248);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_ranges_that_cannot_be_drawn_from(void **state)
{
    (void)state;
    static const kj_distribution bad[] = {
        {.size = sizeof(kj_distribution),
         .kind = KJ_DISTRIBUTION_FLOAT,
         .low = 0,
         .high = INFINITY},
        {.size = sizeof(kj_distribution), .kind = KJ_DISTRIBUTION_FLOAT, .low = NAN, .high = 1},
        {.size = sizeof(kj_distribution),
         .kind = KJ_DISTRIBUTION_FLOAT,
         .low = -1e308,
         .high = 1e308},
    };
    kj_storage *storage;
    kj_trial *trial;
    kj_value value;
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    kj_study *study = open_study(storage, "a", 0);
    assert_int_equal(kj_study_ask(study, &trial, &err), 0);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        assert_int_equal(kj_trial_suggest(trial, "x", &bad[k], &value, &err), KJ_EARG);
        assert_non_null(strstr(err.message, "parameter \"x\": the range must be finite; it is"));
    }
    assert_int_equal(kj_trial_suggest(trial, "x", NULL, &value, &err), KJ_EARG);
    assert_int_equal(kj_trial_suggest(trial, NULL, &bad[0], &value, &err), KJ_EARG);
    kj_trial_free(trial);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_a_keep_says_why(void **state)
{
    (void)state;
    kj_storage *storage;
    kj_trial *trial;
    kj_decision decision = KJ_DECISION_INIT;
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    kj_study *study = open_study(storage, "a", 0);
    assert_int_equal(kj_study_ask(study, &trial, &err), 0);
    assert_int_equal(kj_trial_report(trial, 4, 1, &err), 0);
    assert_int_equal(kj_trial_should_prune(trial, &decision, &err), 0);
    assert_string_equal(decision.rule, "none");
    assert_string_equal(decision.reason, "this rule never prunes");
    assert_true(decision.step == 4 && isnan(decision.value) && decision.n_peers == 0);
    kj_trial_free(trial);
    kj_study_close(study);
    kj_storage_close(storage);
}

/* A program that was built with other headers. */
static void test_structs_of_another_size(void **state)
{
    (void)state;
    kj_storage *storage;
    kj_study *study = NULL;
    kj_trial *trial;
    kj_value value;
    kj_study_options options = {.flags = KJ_STUDY_CREATE};
    kj_distribution x = {.size = 8, .kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1};
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    assert_int_equal(kj_study_open(storage, &options, &study, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "kj_study_options.size is 0; it must be "));
    assert_null(study);
    study = open_study(storage, "a", 0);
    assert_int_equal(kj_study_ask(study, &trial, &err), 0);
    assert_int_equal(kj_trial_suggest(trial, "x", &x, &value, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "parameter \"x\": kj_distribution.size is 8; it must be"));
    kj_decision decision = {.size = offsetof(kj_decision, step), .step = 77};
    assert_int_equal(kj_trial_should_prune(trial, &decision, &err), 0);
    assert_string_equal(decision.rule, "none");
    assert_true(decision.size == offsetof(kj_decision, step) && decision.step == 77);
    kj_trial_free(trial);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_the_name_of_a_study(void **state)
{
    (void)state;
    kj_storage *storage;
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    assert_int_equal(kj_study_open(storage, &options, &study, &err), KJ_EARG);
    assert_string_equal(err.message, "the study's name is missing");
    options.flags = KJ_STUDY_CREATE;
    assert_int_equal(kj_study_open(storage, &options, &study, &err), 0);
    assert_int_equal(strlen(kj_study_get_name(study)), strlen("no-name-") + 36);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_claims_are_marked(void **state)
{
    (void)state;
    static const kj_distribution x = {
        .size = sizeof x, .kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1};
    kj_storage *storage;
    kj_trial_list *list;
    assert_int_equal(kj_storage_open("memory:", &storage, &err), 0);
    kj_study *study = open_study(storage, "a", 0);
    draw(study, &x);
    assert_int_equal(kj_study_enqueue(study, NULL, "{\"worker\": \"b\"}", NULL, &err), 0);
    assert_int_equal(kj_study_mark_claims(study, "worker", "{", &err), KJ_EDATA);
    assert_int_equal(kj_study_mark_claims(study, "worker", "\"a\"", &err), 0);
    draw(study, &x);
    draw(study, &x);
    assert_int_equal(kj_study_list_trials(study, &list, &err), 0);
    static const char *const expected[] = {"{}", "{\"worker\": \"a\"}", "{\"worker\": \"a\"}"};
    for (uint64_t k = 0; k < 3; k++)
        assert_string_equal(kj_trial_list_get(list, k)->attributes_json, expected[k]);
    kj_trial_list_free(list);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_the_catalog(void **state)
{
    (void)state;
    const char *name, *help;
    kj_option_info option = KJ_OPTION_INFO_INIT;
    assert_int_equal(kj_pruner_get_info(0, &name, &help), 1);
    assert_string_equal(name, "median");
    assert_true(strlen(help) > 10);
    assert_int_equal(kj_pruner_get_option(0, 0, &option), 1);
    assert_string_equal(option.key, "n_startup_trials");
    assert_string_equal(option.default_text, "5");
    assert_int_equal(option.type, KJ_TYPE_INT);
    assert_int_equal(kj_pruner_get_option(0, 4, &option), 0);
    assert_int_equal(kj_pruner_get_option(1, 0, &option), 0);
    assert_int_equal(kj_pruner_get_info(100, &name, &help), 0);
    assert_int_equal(kj_sampler_get_info(0, &name, &help), 1);
    assert_string_equal(name, "random");
    assert_int_equal(kj_sampler_get_info(100, &name, &help), 0);
    assert_int_equal(kj_sampler_get_option(0, 0, &option), 0);
    assert_string_equal(kj_trial_state_name(KJ_TRIAL_WAITING), "WAITING");
    assert_null(kj_trial_state_name(9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_repeats_the_draws),
        cmocka_unit_test(test_going_on_with_a_seed_draws_other_values),
        cmocka_unit_test(test_ranges_that_cannot_be_drawn_from),
        cmocka_unit_test(test_a_keep_says_why),
        cmocka_unit_test(test_structs_of_another_size),
        cmocka_unit_test(test_the_name_of_a_study),
        cmocka_unit_test(test_claims_are_marked),
        cmocka_unit_test(test_the_catalog),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
