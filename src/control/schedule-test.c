/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include "kji-test.h"

static kji_at at(const char *text)
{
    kji_at result;
    assert_int_equal(kji_at_parse(text, &result, NULL), 0);
    return result;
}

static void test_texts(void **state)
{
    (void)state;
    static const char *const good[] = {"now", "epoch", "step:0", "step:12", "epoch:3"};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        kji_at a = at(good[k]);
        char text[KJI_AT_TEXT];
        assert_string_equal(kji_at_text(&a, text), good[k]);
    }
    static const char *const bad[] = {"",        "step",     "step:",
                                      "step:-1", "step:1.5", "step: 1",
                                      "later",   "epoch:x",  "step:99999999999999999999"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        kji_at a;
        assert_int_equal(kji_at_parse(bad[k], &a, NULL), KJ_EREJECTED);
    }
}

static void test_due_at_or_after(void **state)
{
    (void)state;
    kji_place poll = {KJI_PLACE_POLL, 0}, step9 = {KJI_PLACE_STEP_BEGIN, 9},
              step12 = {KJI_PLACE_STEP_BEGIN, 12}, epoch2 = {KJI_PLACE_EPOCH_END, 2},
              epoch12 = {KJI_PLACE_EPOCH_END, 12};
    kji_at now = at("now"), step = at("step:10"), epoch = at("epoch:3");
    assert_true(kji_at_is_due(&now, &poll));
    assert_true(kji_at_is_due(&now, &epoch2));
    assert_false(kji_at_is_due(&step, &poll));
    assert_false(kji_at_is_due(&step, &step9));
    assert_true(kji_at_is_due(&step, &step12));
    assert_false(kji_at_is_due(&step, &epoch12));
    assert_false(kji_at_is_due(&epoch, &epoch2));
    assert_true(kji_at_is_due(&epoch, &epoch12));
    assert_false(kji_at_is_due(&epoch, &step12));
}

static void test_earlier_only_where_it_is_known(void **state)
{
    (void)state;
    kji_at now = at("now"), step1 = at("step:1"), step2 = at("step:2"), epoch1 = at("epoch:1");
    assert_true(kji_at_is_earlier(&now, &step1));
    assert_false(kji_at_is_earlier(&step1, &now));
    assert_false(kji_at_is_earlier(&now, &now));
    assert_true(kji_at_is_earlier(&step1, &step2));
    assert_false(kji_at_is_earlier(&step2, &step1));
    assert_false(kji_at_is_earlier(&step1, &epoch1));
    assert_false(kji_at_is_earlier(&epoch1, &step2));
    kji_at current = {KJI_AT_CURRENT_EPOCH, 0};
    assert_true(kji_at_is_earlier(&current, &epoch1));
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"90", 90000},    {"90s", 90000}, {"15m", 900000},       {"2H", 7200000},
                {"1d", 86400000}, {"0.25s", 250}, {"365d", 31536000000}, {"1.5h", 5400000}};
    static const char *const bad[] = {"",
                                      "0",
                                      "s",
                                      "-1s",
                                      "1w",
                                      "1 s",
                                      "inf",
                                      "nan",
                                      "1e3",
                                      "366d",
                                      "1.2.3",
                                      "1ms",
                                      "99999999999999999d"};
    int64_t ms = 0;
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        assert_int_equal(kji_duration_parse(good[k].text, &ms, NULL), 0);
        assert_int_equal(ms, good[k].ms);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(kji_duration_parse(bad[k], &ms, NULL), KJ_EREJECTED);
    assert_int_equal(ms, good[7].ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_due_at_or_after),
        cmocka_unit_test(test_earlier_only_where_it_is_known),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
