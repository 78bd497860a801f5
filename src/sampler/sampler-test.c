/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"
#include "sampler.h"

#include "kji-test.h"

#include <math.h>

static bool within_one_ulp(double a, double b)
{
    return a == b || nextafter(a, b) == b;
}

static void replay(struct json_object *one, size_t *n_values)
{
    uint32_t seed = (uint32_t)json_object_get_int64(kji_test_member(one, "seed"));
    kji_sampler *sampler = NULL;
    assert_int_equal(kji_sampler_new("random", NULL, &seed, &sampler, NULL), 0);
    struct json_object *trials = kji_test_member(one, "trials");
    for (size_t k = 0; k < json_object_array_length(trials); k++) {
        struct json_object *internal =
            kji_test_member(json_object_array_get_idx(trials, k), "internal");
        json_object_object_foreach(kji_test_member(one, "space"), name, json)
        {
            kji_distribution *d = NULL;
            assert_int_equal(kji_distribution_parse(json_object_to_json_string(json), &d, NULL), 0);
            double expected = json_object_get_double(kji_test_member(internal, name)), value = NAN;
            if (kji_distribution_is_single(d))
                value = kji_distribution_first(d);
            else
                assert_int_equal(kji_sampler_sample(sampler, NULL, NULL, name, d, &value, NULL), 0);
            assert_true(d->is.log ? within_one_ulp(value, expected) : value == expected);
            assert_true(kji_distribution_contains(d, value));
            kji_distribution_unref(d);
            (*n_values)++;
        }
    }
    kji_sampler_free(sampler);
}

static void test_random_draws_what_optuna_draws(void **state)
{
    (void)state;
    size_t n_values = 0;
    struct json_object *vectors = kji_test_json("vectors/sampler_random.json");
    struct json_object *cases = kji_test_member(vectors, "cases");
    for (size_t k = 0; k < json_object_array_length(cases); k++)
        replay(json_object_array_get_idx(cases, k), &n_values);
    assert_true(json_object_array_length(cases) == 8 && n_values > 200);
    json_object_put(vectors);
}

static void test_unknown_samplers_are_refused(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    kji_sampler *sampler = NULL;
    assert_int_equal(kji_sampler_new("randm", NULL, NULL, &sampler, &err), KJ_EARG);
    assert_string_equal(err.message,
                        "no sampler \"randm\" (did you mean random?); there is random");
    assert_int_equal(kji_sampler_new("random", "a=1", NULL, &sampler, &err), KJ_EARG);
    assert_null(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_draws_what_optuna_draws),
        cmocka_unit_test(test_unknown_samplers_are_refused),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
