/* SPDX-License-Identifier: Apache-2.0 */
#include "text-line.h"

#include "kji-test.h"

#include <string.h>

static kji_text_line line;

static int parse(const char *text)
{
    return kji_text_line_parse(text, strlen(text), &line, NULL);
}

static void test_words_keys_quotes_comments(void **state)
{
    (void)state;
    assert_int_equal(
        parse("  SeT lr=1e-4\tname=\"a \\\"b\\\\ \\n\\t#\" word \"two words\" # rest\r"), 1);
    assert_string_equal(line.verb, "set");
    assert_int_equal(line.n_args, 2);
    assert_string_equal(line.args[0].key, "lr");
    assert_string_equal(line.args[0].value, "1e-4");
    assert_string_equal(line.args[1].value, "a \"b\\ \n\t#");
    assert_int_equal(line.n_words, 2);
    assert_string_equal(line.words[0], "word");
    assert_string_equal(line.words[1], "two words");
}

static void test_nothing_in_it(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(parse(" \t "), 0);
    assert_int_equal(parse("\r"), 0);
    assert_int_equal(parse("# stop"), 0);
}

static void test_values_may_hold_what_is_no_blank(void **state)
{
    (void)state;
    assert_int_equal(parse("set a=b=c#d empty= q=\"\""), 1);
    assert_string_equal(line.args[0].value, "b=c#d");
    assert_string_equal(line.args[1].value, "");
    assert_string_equal(line.args[2].value, "");
    assert_int_equal(parse("note \xe8\x88\xb5\xe5\x8f\x96\xe3\x82\x8a"), 1);
    assert_string_equal(line.words[0], "\xe8\x88\xb5\xe5\x8f\x96\xe3\x82\x8a");
}

static void test_refused_as_a_whole(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "set lr=\"1",    "set lr=\"1\"2",
        "set a=b\"c",    "set lr=1 lr=2",
        "\"stop",        "lr=1",
        "set =1",        "9stop",
        "st/op",         "set x=\"\\q\"",
        "stop \x01",     "stop \xff\xfe",
        "stop \xc0\x80", "stop \xed\xa0\x80",
        "set .a=1",      "stop \xf4\x90\x80\x80",
        "stop \xe8\x88",
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(kji_text_line_parse(bad[k], strlen(bad[k]), &line, &err), KJ_EDATA);
        assert_true(strlen(err.message) > 10);
    }
    assert_int_equal(kji_text_line_parse("stop\0x", 6, &line, NULL), KJ_EDATA);
}

static void test_limits(void **state)
{
    (void)state;
    char text[KJI_LINE_MAX + 2];
    memset(text, 'a', sizeof text);
    memcpy(text, "note ", 5);
    assert_int_equal(kji_text_line_parse(text, KJI_LINE_MAX, &line, NULL), 1);
    assert_int_equal(strlen(line.words[0]), KJI_LINE_MAX - 5);
    assert_int_equal(kji_text_line_parse(text, KJI_LINE_MAX + 1, &line, NULL), KJ_EDATA);
    memset(text, ' ', sizeof text);
    for (int k = 0; k < KJI_LINE_MAX; k += 2)
        text[k] = 'w';
    assert_int_equal(kji_text_line_parse(text, KJI_LINE_MAX, &line, NULL), KJ_EDATA);
    assert_int_equal(kji_text_line_parse(text, 2 * (KJI_WORDS_MAX + 1), &line, NULL), 1);
}

static void test_names(void **state)
{
    (void)state;
    char name[70];
    memset(name, 'a', 65);
    name[65] = 0;
    assert_false(kji_name_valid(name));
    assert_true(kji_name_valid(name + 1));
    assert_true(kji_name_valid("a.b-c_9"));
    assert_false(kji_name_valid(""));
    assert_false(kji_name_valid("-a"));
    assert_false(kji_name_valid("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_keys_quotes_comments),
        cmocka_unit_test(test_nothing_in_it),
        cmocka_unit_test(test_values_may_hold_what_is_no_blank),
        cmocka_unit_test(test_refused_as_a_whole),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("text-line", tests, NULL, NULL);
}
