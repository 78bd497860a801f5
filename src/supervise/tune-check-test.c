/* SPDX-License-Identifier: Apache-2.0 */
#include "tune-check.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>

static void test_the_default_name_is_the_scripts(void **state)
{
    (void)state;
    static const struct {
        const char *command[6];
        const char *name;
    } cases[] = {
        {{"python", "train.py", "--lr", "{lr}"}, "train"},
        {{"/usr/bin/python3.11", "-u", "dir/my.train.py"}, "my.train"},
        {{"python3", "-m", "pkg.train"}, "train"},
        {{"python3", "-c", "print(1)"}, "python3"},
        {{"./train", "data.csv"}, "train"},
        {{"env", "A=1", "python3", "x.py"}, "x"},
        {{"bash", "run.sh"}, "run"},
        {{"bashful", "run.sh"}, "bashful"},
        {{"./.hidden"}, ".hidden"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint64_t n = 0;
        while (n < 6 && cases[k].command[n])
            n++;
        char *name = kji_tune_default_study(cases[k].command, n);
        assert_string_equal(name, cases[k].name);
        free(name);
    }
}

static void test_search_spaces_are_compared(void **state)
{
    (void)state;
    kji_param_spec params[2];
    assert_int_equal(kji_param_spec_parse("lr=1e-5..0.1:log", &params[0], NULL), 0);
    assert_int_equal(kji_param_spec_parse("opt=adam|sgd", &params[1], NULL), 0);
    kji_tune_config config = {.study_name = (char *)"s", .params = params, .n_params = 2};
    char *json = kji_tune_space_json(&config);
    assert_string_equal(json, "{\"lr\":\"1e-05..0.1:log\",\"opt\":\"adam|sgd\"}");
    assert_int_equal(kji_tune_compare_space(&config, json, NULL), 0);
    kj_error err = KJ_ERROR_INIT;
    const char *other = "{\"opt\":\"adam|sgd\",\"lr\":\"1e-05..1.0:log\"}";
    assert_int_equal(kji_tune_compare_space(&config, other, &err), KJ_ESTATE);
    assert_non_null(strstr(err.message, "parameter lr was 1e-05..1.0:log and is now 1e-05..0.1"));
    config.n_params = 1;
    assert_int_equal(kji_tune_compare_space(&config, json, &err), KJ_ESTATE);
    assert_non_null(strstr(err.message, "parameter opt was adam|sgd and is now not there"));
    assert_int_equal(kji_tune_compare_space(&config, "[1]", &err), KJ_EDATA);
    free(json);
    kji_param_spec_done(&params[0]);
    kji_param_spec_done(&params[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_default_name_is_the_scripts),
        cmocka_unit_test(test_search_spaces_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
