/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"
#include "rng.h"

#include "kji-test.h"

static void test_streams_are_numpys(void **state)
{
    (void)state;
    struct json_object *vectors = kji_test_json("vectors/rng.json"),
                       *cases = kji_test_member(vectors, "cases");
    assert_true(json_object_array_length(cases) >= 5);
    for (size_t k = 0; k < json_object_array_length(cases); k++) {
        struct json_object *one = json_object_array_get_idx(cases, k);
        uint32_t seed = (uint32_t)json_object_get_int64(kji_test_member(one, "seed"));
        struct json_object *raw = kji_test_member(one, "raw_uint32"),
                           *doubles = kji_test_member(one, "rand"),
                           *uniform = kji_test_member(one, "uniform(-3,7)");
        kji_rng rng;
        kji_rng_seed(&rng, seed);
        for (size_t i = 0; i < json_object_array_length(raw); i++)
            assert_true(kji_rng_uint32(&rng) ==
                        (uint32_t)json_object_get_int64(json_object_array_get_idx(raw, i)));
        kji_rng_seed(&rng, seed);
        for (size_t i = 0; i < json_object_array_length(doubles); i++)
            assert_true(kji_rng_double(&rng) ==
                        json_object_get_double(json_object_array_get_idx(doubles, i)));
        kji_rng_seed(&rng, seed);
        for (size_t i = 0; i < json_object_array_length(uniform); i++)
            assert_true(kji_rng_uniform(&rng, -3, 7) ==
                        json_object_get_double(json_object_array_get_idx(uniform, i)));
    }
    json_object_put(vectors);
}

static void test_the_kernel_seeds_differently(void **state)
{
    (void)state;
    kji_rng a, b;
    assert_int_equal(kji_rng_seed_randomly(&a, NULL), 0);
    bool differs = false;
    for (int k = 0; k < 8 && !differs; k++) {
        assert_int_equal(kji_rng_seed_randomly(&b, NULL), 0);
        differs = a.state[0] != b.state[0];
    }
    assert_true(differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_numpys),
        cmocka_unit_test(test_the_kernel_seeds_differently),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
