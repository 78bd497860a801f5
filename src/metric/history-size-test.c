/* SPDX-License-Identifier: Apache-2.0 */
/* The resident memory that kept points take, at its highest while they come. Not for sanitizers,
 * which keep what is freed. */
#include "event-make.h"
#include "files.h"
#include "metric-rows.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { LIMIT = 40 }; /* bytes a point */

static char top[64];

/* Of /proc/self/status, in bytes. */
static int64_t status_of(const char *key)
{
    char *text;
    long long kilobytes = -1;
    assert_int_equal(kji_read_file(AT_FDCWD, "/proc/self/status", 1 << 16, &text, NULL, NULL), 0);
    const char *at = strstr(text, key);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(key), ": %lld kB", &kilobytes), 1);
    free(text);
    return kilobytes * 1024;
}

/* `steps` points of each tag, by turns. */
static void make(int tags, int steps)
{
    char path[100], tag[20];
    kji_strbuf bytes = KJI_STRBUF_INIT;
    snprintf(path, sizeof path, "%s/events.out.tfevents.1.h", top);
    for (int step = 0; step < steps; step++) {
        for (int k = 0; k < tags; k++) {
            snprintf(tag, sizeof tag, "t%d", k);
            kji_make_scalar(&bytes, step, 1.0, tag, (float)step);
        }
        if (bytes.size > 1 << 20 || step == steps - 1)
            kji_make_file(path, &bytes);
    }
    kji_strbuf_done(&bytes);
}

/* In a process of its own, whose memory has not been used for anything else. */
static void keep_and_measure(int n_points)
{
    char spec[100];
    snprintf(spec, sizeof spec, "events:%s", top);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = KJ_EVENTS_KEEP;
    kj_events *events = NULL;
    int64_t before = status_of("VmRSS");
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), 0);
    assert_int_equal(kj_events_step(events, 0, NULL, NULL, NULL), n_points);
    int64_t grown = status_of("VmHWM") - before;
    kj_events_close(events);
    printf("# %lld bytes a point\n", (long long)(grown / n_points));
    fflush(stdout);
    _exit(grown <= (int64_t)LIMIT * n_points ? 0 : 1);
}

static void check_size(int tags, int steps)
{
    assert_non_null(strcpy(top, "/tmp/kji-size-XXXXXX"));
    assert_non_null(mkdtemp(top));
    pid_t maker = fork();
    if (maker == 0) {
        make(tags, steps);
        _exit(0);
    }
    int status;
    waitpid(maker, &status, 0);
    assert_int_equal(status, 0);
    pid_t keeper = fork();
    if (keeper == 0)
        keep_and_measure(tags * steps);
    waitpid(keeper, &status, 0);
    kji_test_remove_tree(top);
    assert_int_equal(status, 0);
}

static void test_one_tag(void **state)
{
    (void)state;
    check_size(1, 1000000);
}

static void test_ten_tags(void **state)
{
    (void)state;
    check_size(10, 100000);
}

static void test_a_thousand_tags(void **state)
{
    (void)state;
    check_size(1000, 1000);
}

/* As soon as all of them have had to grow. */
static void test_just_grown(void **state)
{
    (void)state;
    check_size(1000, 1030);
    check_size(200, 4100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tag),
        cmocka_unit_test(test_ten_tags),
        cmocka_unit_test(test_a_thousand_tags),
        cmocka_unit_test(test_just_grown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
