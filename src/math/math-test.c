/* SPDX-License-Identifier: Apache-2.0 */
#include "decimal.h"
#include "json.h"
#include "quantile.h"

#include "kji-test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Without the NaN ones, ascending. */
static size_t take_sorted(struct json_object *array, double *values)
{
    size_t n = 0;
    for (size_t k = 0; k < json_object_array_length(array); k++) {
        assert_true(kji_json_get_double(json_object_array_get_idx(array, k), &values[n]));
        n += !isnan(values[n]);
    }
    qsort(values, n, sizeof *values, by_value);
    return n;
}

static void test_percentiles_are_numpys(void **state)
{
    (void)state;
    size_t n_checked = 0;
    struct json_object *vectors = kji_test_json("vectors/pruner_statistics.json"), *array, *number;
    struct json_object *cases = kji_test_member(vectors, "cases");
    for (size_t k = 0; k < json_object_array_length(cases); k++) {
        struct json_object *one = json_object_array_get_idx(cases, k);
        if (strcmp(kji_json_string(one, "kind"), "nanpercentile") != 0)
            continue;
        double values[64], percent, expected;
        json_object_object_get_ex(one, "values", &array);
        assert_true(json_object_array_length(array) <= 64);
        json_object_object_get_ex(one, "percentile", &number);
        percent = json_object_get_double(number);
        json_object_object_get_ex(one, "result", &number);
        assert_true(kji_json_get_double(number, &expected));
        double result = kji_percentile_sorted(values, take_sorted(array, values), percent);
        assert_true(result == expected || (isnan(result) && isnan(expected)));
        n_checked++;
    }
    assert_int_equal(n_checked, 30);
    json_object_put(vectors);
}

static void test_last_step_is_decimal(void **state)
{
    (void)state;
    static const struct {
        double low, high, step, last;
    } cases[] = {
        {0, 1, 0.3, 0.9},       {0.1, 1, 0.1, 1},         {0, 0.3, 0.1, 0.3},
        {-1, 1, 0.7, 0.4},      {3, 12.578, 0.45, 12.45}, {0, 0.05, 0.1, 0},
        {-4.35, 2, 0.96, 1.41}, {0, 1e22, 1e5, 1e22},     {0, 1e25, 0.25, 1e25},
        {1e-300, 1, 0.1, 1},    {0, 1, 1e300, 0},         {1e-97, 1, 2.3, 1e-97},
        {1e-17, 1, 0.3, 0.9},   {5, 5, 0.1, 5},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double last = -1;
        assert_true(kji_decimal_last_step(cases[k].low, cases[k].high, cases[k].step, &last));
        if (last != cases[k].last)
            fail_msg("case %zu: %.17g", k, last);
    }
    double last = 7;
    assert_false(kji_decimal_last_step(0, 1e300, 0.1, &last));
    assert_true(last == 7);
    assert_true(kji_decimal_range_below(0, 0.05, 0.1));
    assert_false(kji_decimal_range_below(0.1, 0.3, 0.2)); /* in doubles it would be below */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_are_numpys),
        cmocka_unit_test(test_last_step_is_decimal),
    };
    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}
