/* SPDX-License-Identifier: Apache-2.0 */
#include "param-spec.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int kind;
        const char *canonical;
    } cases[] = {
        {"lr=1e-5..1e-1:log", "lr", KJ_DISTRIBUTION_FLOAT, "1e-05..0.1:log"},
        {"units=16..128:int", "units", KJ_DISTRIBUTION_INT, "16..128:int"},
        {"units=16..128:int:step=16", "units", KJ_DISTRIBUTION_INT, "16..128:int:step=16"},
        {"units=1..1024:log:int", "units", KJ_DISTRIBUTION_INT, "1..1024:int:log"},
        {"drop=0..0.5:step=0.1", "drop", KJ_DISTRIBUTION_FLOAT, "0.0..0.5:step=0.1"},
        {"x=-5..5", "x", KJ_DISTRIBUTION_FLOAT, "-5.0..5.0"},
        {"x=-5..-1:int", "x", KJ_DISTRIBUTION_INT, "-5..-1:int"},
        {"one=3..3:int", "one", KJ_DISTRIBUTION_INT, "3..3:int"},
        {"opt=adam|sgd|rms-prop", "opt", KJ_DISTRIBUTION_CATEGORICAL, "adam|sgd|rms-prop"},
        {"batch=16|32|64", "batch", KJ_DISTRIBUTION_CATEGORICAL, "16|32|64"},
        {"mix=0.1|1|x", "mix", KJ_DISTRIBUTION_CATEGORICAL, "0.1|1|x"},
        {"mom=0.9|1", "mom", KJ_DISTRIBUTION_CATEGORICAL, "0.9|1.0"},
        {"range=1..2|3..4", "range", KJ_DISTRIBUTION_CATEGORICAL, "1..2|3..4"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kji_param_spec spec;
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(kji_param_spec_parse(cases[k].text, &spec, &err), 0);
        assert_string_equal(spec.name, cases[k].name);
        assert_int_equal(spec.distribution.kind, cases[k].kind);
        char *text = kji_param_spec_text(&spec);
        assert_string_equal(text, cases[k].canonical);
        free(text);
        kji_param_spec_done(&spec);
    }
}

static void test_types_of_choices(void **state)
{
    (void)state;
    kji_param_spec spec;
    assert_int_equal(kji_param_spec_parse("b=16|32", &spec, NULL), 0);
    assert_int_equal(spec.distribution.choices[1].type, KJ_TYPE_INT);
    assert_int_equal(spec.distribution.choices[1].i, 32);
    kji_param_spec_done(&spec);
    assert_int_equal(kji_param_spec_parse("b=16|0.5", &spec, NULL), 0);
    assert_int_equal(spec.distribution.choices[0].type, KJ_TYPE_FLOAT);
    kji_param_spec_done(&spec);
    assert_int_equal(kji_param_spec_parse("b=True|False", &spec, NULL), 0);
    assert_int_equal(spec.distribution.choices[0].type, KJ_TYPE_STRING);
    kji_param_spec_done(&spec);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"lr", "no \"=\"; expected NAME=LO..HI"},
        {"lr=0.1", "neither a range nor choices"},
        {"lr=", "neither a range nor choices"},
        {"=1..2", "a name is a letter"},
        {"1x=1..2", "a name is a letter"},
        {"lr=a..2", "\"a\" is not a number"},
        {"lr=0,1..2", "\"0,1\" is not a number"},
        {"lr=1..inf", "\"inf\" is not a number"},
        {"lr=2..1", "the lower end is above the upper end"},
        {"lr=0..1:log", "the lower end must be above 0"},
        {"n=0..9:int:log", "must be at least 1"},
        {"n=1.5..9:int", "\"1.5\" is not an integer"},
        {"n=1..9:int:step=0", "the step must be above 0"},
        {"x=0..1:step=-1", "the step must be above 0"},
        {"x=1..9:log:step=1", "exclude each other"},
        {"x=1..9:lgo", "unknown option \"lgo\"; known: int, log, step=S"},
        {"x=1..9:", "unknown option \"\""},
        {"o=a||b", "choice 2 is empty"},
        {"o=a|b|a", "choice 3 is there twice"},
        {"o=1|1.0", "choice 2 is there twice"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kji_param_spec spec = {0};
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(kji_param_spec_parse(cases[k].text, &spec, &err), KJ_EARG);
        if (!strstr(err.message, cases[k].said))
            fail_msg("%s: %s", cases[k].text, err.message);
        assert_null(spec.name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_types_of_choices),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
