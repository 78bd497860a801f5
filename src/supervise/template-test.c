/* SPDX-License-Identifier: Apache-2.0 */
#include "template.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>

static const kji_binding bindings[] = {{"lr", "0.001"}, {"trial", "7"}};

static void test_expand(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expanded;
    } cases[] = {
        {"plain", "plain"},          {"", ""},
        {"--lr={lr}", "--lr=0.001"}, {"{trial}{trial}/{lr}", "77/0.001"},
        {"{{lr}}", "{lr}"},          {"{{{lr}}}", "{0.001}"},
        {"\\d{{2,3}}", "\\d{2,3}"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *text;
        assert_int_equal(kji_template_expand(cases[k].text, bindings, 2, &text, NULL), 0);
        assert_string_equal(text, cases[k].expanded);
        free(text);
    }
}

static void test_refusals_name_what_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"{units}", "unknown name {units} in \"{units}\"; known: {lr}, {trial}"},
        {"{}", "unknown name {}"},
        {"a{lr", "single \"{\" at byte 1"},
        {"lr}", "single \"}\" at byte 2"},
        {"{l{r}", "single \"{\" at byte 0"},
        {"{2}", "{{ and }} stand for braces"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kj_error err = KJ_ERROR_INIT;
        char *text = NULL;
        assert_int_equal(kji_template_check(cases[k].text, bindings, 2, NULL, &err), KJ_EARG);
        assert_non_null(strstr(err.message, cases[k].said));
        assert_int_equal(kji_template_expand(cases[k].text, bindings, 2, &text, NULL), KJ_EARG);
        assert_null(text);
    }
}

static void test_check_tells_what_is_used(void **state)
{
    (void)state;
    bool used[2] = {false, false};
    assert_int_equal(kji_template_check("x{trial}{{lr}}", bindings, 2, used, NULL), 0);
    assert_false(used[0]);
    assert_true(used[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_refusals_name_what_is_known),
        cmocka_unit_test(test_check_tells_what_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
