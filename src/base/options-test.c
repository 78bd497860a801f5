/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "kji-test.h"

#include <string.h>

typedef struct sample {
    int64_t count;
    double rate;
    int32_t loud;
} sample;

static const kji_option options[] = {
    {"count", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(sample, count), "5", 0, 0, "how many"},
    {"rate", KJ_TYPE_FLOAT, KJI_OPTION_MIN | KJI_OPTION_MAX, offsetof(sample, rate), "0.5", 0, 1,
     "how often"},
    {"loud", KJ_TYPE_BOOL, 0, offsetof(sample, loud), "no", 0, 0, "how loud"},
};

static int parse(const char *text, sample *ret, kj_error *err)
{
    return kji_options_parse(options, 3, "pruner x", text, ret, err);
}

static void test_defaults_and_values(void **state)
{
    (void)state;
    sample s = {0};
    assert_int_equal(parse(NULL, &s, NULL), 0);
    assert_true(s.count == 5 && s.rate == 0.5 && s.loud == 0);
    assert_int_equal(parse("  ", &s, NULL), 0);
    assert_int_equal(parse(" rate = 1 , loud=yes", &s, NULL), 0);
    assert_true(s.count == 5 && s.rate == 1 && s.loud == 1);
    assert_int_equal(parse("count=9223372036854775807", &s, NULL), 0);
    assert_true(s.count == INT64_MAX);
}

static void test_refusals_say_what_would_be_right(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"cuont=3",
         "pruner x has no option \"cuont\", did you mean \"count\"?; it has count, rate, "
         "loud"},
        {"size=3", "pruner x has no option \"size\"; it has count, rate, loud"},
        {"count=-1", "pruner x: count=-1 is refused: it must be a whole number >= 0"},
        {"count=1.5", "pruner x: count=1.5 is refused: it must be a whole number >= 0"},
        {"rate=nan", "pruner x: rate=nan is refused: it must be a number >= 0.0 and <= 1.0"},
        {"rate=2", "pruner x: rate=2 is refused: it must be a number >= 0.0 and <= 1.0"},
        {"loud=maybe", "pruner x: loud=maybe is refused: it must be yes or no"},
        {"count", "pruner x: \"count\" is not key=value"},
        {"count=1,", "pruner x: \"\" is not key=value"},
        {"count=1,count=2", "pruner x: count is given twice"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sample s = {0};
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(parse(cases[k].text, &s, &err), KJ_EARG);
        assert_string_equal(err.message, cases[k].message);
    }
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_options_parse(NULL, 0, "pruner none", "a=1", NULL, &err), KJ_EARG);
    assert_string_equal(err.message, "pruner none has no option \"a\": it has none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_and_values),
        cmocka_unit_test(test_refusals_say_what_would_be_right),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
