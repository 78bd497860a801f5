/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "number.h"
#include "strbuf.h"
#include "utf8.h"

#include "kji-test.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_error_is_one_printable_line(void **state)
{
    (void)state;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_fail(&err, KJ_EARG, "bad %s", "a\nb\x1b[31m"), KJ_EARG);
    assert_string_equal(err.message, "bad a b [31m");
    assert_int_equal(kji_fail_prefix(&err, KJ_EIO, "while reading"), KJ_EARG);
    assert_string_equal(err.message, "while reading: bad a b [31m");
    assert_int_equal(kji_fail(NULL, KJ_EIO, "nobody listens"), KJ_EIO);
    assert_string_equal(kj_error_text(KJ_ENORUN), "no such run");
    assert_string_equal(kj_error_text(-999), "unknown error");
}

static void test_nearest_name(void **state)
{
    (void)state;
    const char *known[] = {"stop", "set", "status", "pause"};
    assert_string_equal(kji_nearest("stpo", known, 4), "stop");
    assert_string_equal(kji_nearest("staus", known, 4), "status");
    assert_null(kji_nearest("explode", known, 4));
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_fail_unknown(&err, KJ_EARG, "verb", "stpo", known, 4), KJ_EARG);
    assert_non_null(strstr(err.message, "no verb \"stpo\" (did you mean stop?); there are "));
    assert_int_equal(kji_fail_unknown(&err, KJ_ENOENT, "verb", "x", NULL, 0), KJ_ENOENT);
    assert_string_equal(err.message, "no verb \"x\"; there are none");
}

static void test_double_text_is_pythons_repr(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {0x1p-44, "5.684341886080802e-14"},
        {0x1p89, "6.189700196426902e+26"},
        {-0x1p-1017, "-7.120236347223045e-307"},
        {0x1p-1074, "5e-324"},
        {1e-5, "1e-05"},
        {0.0001, "0.0001"},
        {5, "5.0"},
        {-0.0, "-0.0"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e15, "1000000000000000.0"},
        {123.456, "123.456"},
        {0.10000000149011612, "0.10000000149011612"},
        {5e-324, "5e-324"},
        {NAN, "nan"},
        {-INFINITY, "-inf"},
        {120, "120.0"},
        {0.05, "0.05"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[KJI_DOUBLE_TEXT];
        assert_string_equal(kji_double_text(cases[k].value, text), cases[k].text);
    }
}

static void test_numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    /* de_DE is installed by tools/bootstrap for this test; where it is not, the C locale is tested
     * a second time. */
    setlocale(LC_ALL, "de_DE.UTF-8");
    double value;
    char text[KJI_DOUBLE_TEXT];
    assert_true(kji_parse_double("0.25", 4, &value));
    assert_true(value == 0.25);
    assert_false(kji_parse_double("0,25", 4, &value));
    assert_string_equal(kji_double_text(1.5, text), "1.5");
    setlocale(LC_ALL, "C");
}

static void test_parse_takes_the_whole_text_or_nothing(void **state)
{
    (void)state;
    double value = 7;
    int64_t number = 7;
    static const char *const bad[] = {"", " 1", "1 ", "1x", "0x10", "1e", "--1", "1 2"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        assert_false(kji_parse_double(bad[k], strlen(bad[k]), &value));
        assert_false(kji_parse_int64(bad[k], strlen(bad[k]), &number));
    }
    assert_true(value == 7);
    assert_true(kji_parse_int64("-9223372036854775808", 20, &number));
    assert_true(number == INT64_MIN);
    assert_false(kji_parse_int64("9223372036854775808", 19, &number));
    assert_true(kji_parse_double("nan", 3, &value) && isnan(value));
}

static void test_strbuf(void **state)
{
    (void)state;
    kji_strbuf buf = KJI_STRBUF_INIT;
    assert_string_equal(buf.text, "");
    kji_strbuf_puts(&buf, "step");
    kji_strbuf_printf(&buf, "=%d", 12);
    kji_strbuf_putc(&buf, '!');
    assert_string_equal(buf.text, "step=12!");
    kji_strbuf_consume(&buf, 5);
    assert_string_equal(buf.text, "12!");
    char *text = kji_strbuf_take(&buf);
    assert_string_equal(text, "12!");
    free(text);
    assert_string_equal(buf.text, "");
    kji_strbuf_done(&buf);
}

static void test_json_refuses_what_is_not_one_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{", "{} x", "[1,]x", "nul", "\"a", "{\"a\":}"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct json_object *json = NULL;
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(kji_json_parse(bad[k], strlen(bad[k]), &json, &err), KJ_EDATA);
        assert_true(strncmp(err.message, "not JSON", 8) == 0);
    }
    struct json_object *json = NULL;
    assert_int_equal(kji_json_parse(" 12 ", 4, &json, NULL), 0);
    assert_int_equal(json_object_get_int(json), 12);
    json_object_put(json);
}

static void test_json_doubles_round_trip(void **state)
{
    (void)state;
    static const double values[] = {0.1, 1e-300, NAN, INFINITY, -INFINITY, -0.0};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        struct json_object *json = kji_json_new_double(values[k]);
        char *text = kji_json_text(json);
        json_object_put(json);
        double back = 42;
        assert_int_equal(kji_json_parse(text, strlen(text), &json, NULL), 0);
        assert_true(kji_json_get_double(json, &back));
        assert_true(isnan(values[k]) ? isnan(back) : back == values[k]);
        json_object_put(json);
        free(text);
    }
}

static void test_private_folder_is_checked(void **state)
{
    (void)state;
    char root[] = "/tmp/kji-base-XXXXXX";
    assert_non_null(mkdtemp(root));
    KJI_CLEANUP(kji_freep) char *deep = kji_format("%s/a/b", root);
    int fd = -1;
    assert_int_equal(kji_open_dir(deep, true, &fd, NULL), 0);
    close(fd);
    assert_int_equal(chmod(deep, 0755), 0);
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_open_dir(deep, true, &fd, &err), KJ_EPERM);
    assert_non_null(strstr(err.message, "must be 700"));
    KJI_CLEANUP(kji_freep) char *link = kji_format("%s/link", root);
    assert_int_equal(symlink(deep, link), 0);
    assert_int_equal(kji_open_dir(link, true, &fd, NULL), KJ_EPERM);
    kji_test_remove_tree(root);
}

static void test_atomic_write_and_read(void **state)
{
    (void)state;
    char root[] = "/tmp/kji-base-XXXXXX";
    assert_non_null(mkdtemp(root));
    int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(kji_write_file_atomic(dir, "f", "one", 3, NULL), 0);
    assert_int_equal(kji_write_file_atomic(dir, "f", "three", 5, NULL), 0);
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(kji_read_file(dir, "f", 100, &text, &size, NULL), 0);
    assert_int_equal(size, 5);
    assert_string_equal(text, "three");
    free(text);
    assert_int_equal(kji_read_file(dir, "f", 4, &text, &size, NULL), KJ_EDATA);
    assert_int_equal(kji_read_file(dir, "g", 4, &text, &size, NULL), KJ_ENOENT);
    close(dir);
    kji_test_remove_tree(root);
}

static atomic_bool over;

static void drop(void *userdata, int level, const char *message)
{
    (void)userdata, (void)level, (void)message;
}

static void *log_on_and_on(void *unused)
{
    (void)unused;
    while (!over)
        kji_log(KJ_LOG_WARNING, "%s", "");
    return NULL;
}

/* The default of the signal that the kernel sends would end the test. */
static void test_a_write_beyond_the_limit_of_file_sizes_is_an_error(void **state)
{
    (void)state;
    struct rlimit before, four = {.rlim_cur = 4};
    int fd = memfd_create("limited", MFD_CLOEXEC);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    four.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &four), 0);
    assert_int_equal(kji_write_all(fd, "three", 5, NULL), KJ_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(kji_write_all(fd, "e", 1, NULL), 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), 5);
    close(fd);
}

static void test_a_forked_child_can_log(void **state)
{
    (void)state;
    pthread_t thread;
    kj_log_set(drop, NULL);
    assert_int_equal(pthread_create(&thread, NULL, log_on_and_on, NULL), 0);
    for (int k = 0; k < 100; k++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10); /* ends a child that waits for ever */
            kji_log(KJ_LOG_WARNING, "%s", "");
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    over = true;
    pthread_join(thread, NULL);
    kj_log_set(NULL, NULL);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        uint32_t code;
    } good[] = {
        {"a", 1, 'a'},
        {"\x7f", 1, 0x7f},
        {"\xc2\x80", 2, 0x80},
        {"\xe3\x83\xa1", 3, 0x30e1},
        {"\xed\x9f\xbf", 3, 0xd7ff},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
    };
    static const char *const bad[] = {"\x80",         "\xc1\xbf",     "\xe3\x83",
                                      "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xff",         "\xe3\x83 "};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        uint32_t code = 0;
        assert_int_equal(kji_utf8_decode(good[k].text, strlen(good[k].text), &code), good[k].n);
        assert_int_equal(code, good[k].code);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(kji_utf8_valid(bad[k], strlen(bad[k])));
    assert_true(kji_utf8_valid("", 0));
    assert_true(kji_utf8_valid("a\0b", 3));
}

static void test_where_nothing_is_is_no_network(void **state)
{
    (void)state;
    assert_false(kji_is_network_path("/nonexistent/file"));
    assert_false(kji_is_network_path("/proc"));
}

static void test_lower_bound(void **state)
{
    (void)state;
    struct item {
        char name;
        int64_t key;
    } items[] = {{'a', -5}, {'b', 0}, {'c', 0}, {'d', INT64_MAX}};
    static const struct {
        int64_t key;
        size_t index;
    } cases[] = {{INT64_MIN, 0}, {-5, 0}, {-4, 1}, {0, 1}, {1, 3}, {INT64_MAX, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        assert_int_equal(
            kji_lower_bound(items, 4, sizeof *items, offsetof(struct item, key), cases[k].key),
            cases[k].index);
    assert_int_equal(kji_lower_bound(items, 3, sizeof *items, offsetof(struct item, key), 1), 3);
    assert_int_equal(kji_lower_bound(NULL, 0, sizeof *items, offsetof(struct item, key), 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lower_bound),
        cmocka_unit_test(test_error_is_one_printable_line),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_double_text_is_pythons_repr),
        cmocka_unit_test(test_numbers_do_not_follow_the_locale),
        cmocka_unit_test(test_parse_takes_the_whole_text_or_nothing),
        cmocka_unit_test(test_strbuf),
        cmocka_unit_test(test_json_refuses_what_is_not_one_value),
        cmocka_unit_test(test_json_doubles_round_trip),
        cmocka_unit_test(test_private_folder_is_checked),
        cmocka_unit_test(test_atomic_write_and_read),
        cmocka_unit_test(test_a_write_beyond_the_limit_of_file_sizes_is_an_error),
        cmocka_unit_test(test_a_forked_child_can_log),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_where_nothing_is_is_no_network),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
