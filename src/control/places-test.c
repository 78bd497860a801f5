/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include "mem.h"
#include "publish.h"

#include "kji-test.h"

#include <stdio.h>
#include <string.h>

static void clear_environment(void)
{
    static const char *const names[] = {"KAJITORI_RUNTIME_DIR", "XDG_RUNTIME_DIR",
                                        "KAJITORI_STATE_DIR", "XDG_STATE_HOME", "HOME"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        unsetenv(names[k]);
}

static void expect_runtime(const char *override, const char *first, size_t n_choices)
{
    char **paths = NULL, *path = NULL;
    size_t n = 0;
    assert_int_equal(kji_runtime_choices(override, &paths, &n, NULL), 0);
    assert_int_equal(n, n_choices);
    assert_string_equal(paths[0], first);
    kji_places_free(paths, n);
    assert_int_equal(kji_runtime_dir(override, &path, NULL), 0);
    assert_string_equal(path, first);
    free(path);
}

static void test_runtime_places_in_their_order(void **state)
{
    (void)state;
    char fallback[64];
    clear_environment();
    snprintf(fallback, sizeof fallback, "/tmp/kajitori-%ld", (long)geteuid());
    expect_runtime(NULL, fallback, 1);
    setenv("XDG_RUNTIME_DIR", "relative/is/ignored", 1);
    expect_runtime(NULL, fallback, 1);
    setenv("XDG_RUNTIME_DIR", "/run/x", 1);
    expect_runtime("", "/run/x/kajitori", 2);
    setenv("KAJITORI_RUNTIME_DIR", "/k", 1);
    expect_runtime(NULL, "/k", 1);
    expect_runtime("/o", "/o", 1);
}

static void test_listing_names_only_what_exists(void **state)
{
    (void)state;
    char **paths = NULL;
    size_t n = 7;
    clear_environment();
    setenv("KAJITORI_RUNTIME_DIR", "/does/not/exist", 1);
    assert_int_equal(kji_runtime_dirs(NULL, &paths, &n, NULL), 0);
    assert_int_equal(n, 0);
    kji_places_free(paths, n);
    assert_int_equal(kji_runtime_dirs("/tmp", &paths, &n, NULL), 0);
    assert_int_equal(n, 1);
    kji_places_free(paths, n);
}

static void expect_state_dir(const char *override, const char *expected)
{
    KJI_CLEANUP(kji_freep) char *path = NULL;
    assert_int_equal(kji_state_dir(override, &path, NULL), 0);
    assert_string_equal(path, expected);
}

static void test_state_places_in_their_order(void **state)
{
    (void)state;
    char *path = NULL;
    kj_error err = KJ_ERROR_INIT;
    clear_environment();
    assert_int_equal(kji_state_dir(NULL, &path, &err), KJ_ENOENT);
    assert_non_null(strstr(err.message, "KAJITORI_STATE_DIR"));
    setenv("HOME", "/home/u", 1);
    expect_state_dir(NULL, "/home/u/.local/state/kajitori");
    setenv("XDG_STATE_HOME", "/s", 1);
    expect_state_dir(NULL, "/s/kajitori");
    setenv("KAJITORI_STATE_DIR", "/k", 1);
    expect_state_dir(NULL, "/k");
    expect_state_dir("/o", "/o");
}

static void test_run_ids(void **state)
{
    (void)state;
    char longest[66];
    memset(longest, 'a', sizeof longest - 1);
    longest[65] = 0;
    assert_false(kji_run_id_valid(longest));
    assert_true(kji_run_id_valid(longest + 1));
    assert_true(kji_run_id_valid("a.b_c-9"));
    assert_false(kji_run_id_valid(""));
    assert_false(kji_run_id_valid(".a"));
    assert_false(kji_run_id_valid("-a"));
    assert_false(kji_run_id_valid("a/b"));
    assert_false(kji_run_id_valid("a b"));
}

static void expect_made_id(const char *name, const char *beginning)
{
    KJI_CLEANUP(kji_freep) char *id = kji_make_run_id(name);
    assert_true(kji_run_id_valid(id));
    assert_int_equal(strlen(id), strlen(beginning) + 6);
    assert_memory_equal(id, beginning, strlen(beginning));
}

static void test_made_up_ids(void **state)
{
    (void)state;
    expect_made_id("train.v2", "train.v2-");
    expect_made_id("my run (2)", "my-run-2-");
    expect_made_id("digits 学習", "digits-");
    expect_made_id("学習", "run-");
    expect_made_id("-c", "c-");
    expect_made_id("-", "run-");
    expect_made_id("..", "run-");
    expect_made_id("", "run-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime_places_in_their_order),
        cmocka_unit_test(test_listing_names_only_what_exists),
        cmocka_unit_test(test_state_places_in_their_order),
        cmocka_unit_test(test_run_ids),
        cmocka_unit_test(test_made_up_ids),
    };
    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
