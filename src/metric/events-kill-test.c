/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader is killed with SIGKILL at random moments while a writer appends, and started again. It
 * stores what it got together with its cursor, so that both or neither are there: afterwards each
 * point must have been stored once, in its order. 30 kills; 300 with KAJITORI_SOAK.
 */
#include "event-make.h"
#include "files.h"
#include "mem.h"
#include "rng.h"

#include "kji-test.h"

#include <kajitori/events.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { POINTS = 42000, WRITES = 3000, FILES = 4, VALUES = 3, PORTION = 50, STORE_LIMIT = 16 << 20 };

/* The writer: POINTS values, VALUES in an event, in FILES files, some bytes at a time: as many
 * times as there are bytes in `go`, at its end without a limit. */
static void write_all_of_it(int go)
{
    char byte;
    static const char *const tags[VALUES] = {"a", "b", "c"};
    kji_rng rng;
    kji_rng_seed(&rng, 9);
    for (int at = 0; at < POINTS; at += PORTION * VALUES) {
        kji_strbuf bytes = KJI_STRBUF_INIT, part = KJI_STRBUF_INIT;
        for (int k = at; k < at + PORTION * VALUES; k += VALUES) {
            const float values[VALUES] = {(float)k, (float)k + 1, (float)k + 2};
            kji_make_scalars(&bytes, k, 1.0, tags, values, VALUES);
        }
        KJI_CLEANUP(kji_freep)
        char *path = kji_format("%s/logs/%d/events.out.tfevents.1.h", kji_test_top,
                                at / (PORTION * VALUES) % FILES);
        while (bytes.size) {
            if (read(go, &byte, 1) < 0)
                _exit(1);
            size_t size = 1 + kji_rng_uint32(&rng) % 700;
            size = size < bytes.size ? size : bytes.size;
            kji_strbuf_add(&part, bytes.text, size);
            kji_make_file(path, &part);
            kji_strbuf_consume(&bytes, size);
        }
        kji_strbuf_done(&bytes);
        kji_strbuf_done(&part);
    }
}

/* The store: one line with the cursor, then one line a point; replaced as a whole. */
static void store(int dir_fd, kj_events *events, const kji_strbuf *points)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    char *cursor;
    if (kj_events_get_cursor(events, &cursor, NULL, NULL) < 0)
        _exit(3);
    kji_strbuf_puts(&text, cursor);
    kji_strbuf_putc(&text, '\n');
    kji_strbuf_add(&text, points->text, points->size);
    if (text.failed || kji_write_file_atomic(dir_fd, "store", text.text, text.size, NULL) < 0)
        _exit(4);
    kji_strbuf_done(&text);
    kj_free(cursor);
}

static int take_point(void *userdata, const kj_point *point)
{
    kji_strbuf_printf(userdata, "%s %s %lld %.17g\n", point->run, point->tag,
                      (long long)point->step, point->value);
    return (int)point->value % 7 == 0; /* also within an event */
}

/* The reader: never returns. Writes a byte to `ready` when it has stored something. */
static void follow(int ready)
{
    KJI_CLEANUP(kji_freep) char *spec = kji_format("events:%s/logs", kji_test_top);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    kji_strbuf points = KJI_STRBUF_INIT;
    char *stored = NULL;
    int dir_fd = open(kji_test_top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kji_read_file(dir_fd, "store", STORE_LIMIT, &stored, NULL, NULL) == 0) {
        char *end = strchr(stored, '\n');
        *end = 0;
        options.cursor = stored;
        kji_strbuf_puts(&points, end + 1);
    }
    kj_events *events;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_open(spec, &options, &events, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        _exit(2);
    }
    for (;;) {
        for (int k = 0; k < 40; k++)
            if (kj_events_step(events, k ? 0 : -1, take_point, &points, NULL) < 0)
                _exit(5);
        store(dir_fd, events, &points);
        if (write(ready, "", 1) != 1)
            _exit(6);
    }
}

static pid_t start(int ready)
{
    pid_t child = fork();
    if (child == 0)
        follow(ready);
    assert_true(child > 0);
    return child;
}

/* The points of the store by run and tag: each value once, ascending. */
static size_t check_store(void)
{
    double last[FILES][VALUES];
    size_t n = 0;
    char *text;
    KJI_CLEANUP(kji_freep) char *path = kji_format("%s/store", kji_test_top);
    for (int k = 0; k < FILES * VALUES; k++)
        last[k / VALUES][k % VALUES] = k / VALUES * PORTION * VALUES + k % VALUES - VALUES;
    if (kji_read_file(AT_FDCWD, path, STORE_LIMIT, &text, NULL, NULL) < 0)
        return 0;
    for (char *line = strchr(text, '\n') + 1; *line; line = strchr(line, '\n') + 1, n++) {
        int run;
        char tag;
        long long step;
        double value;
        assert_int_equal(sscanf(line, "%d %c %lld %lf", &run, &tag, &step, &value), 4);
        assert_true(value == (double)(step + tag - 'a'));
        assert_int_equal(step / (PORTION * VALUES) % FILES, run);
        double *before = &last[run][tag - 'a'];
        if (value != *before + VALUES && value != *before + VALUES + (FILES - 1) * PORTION * VALUES)
            fail_msg("%g comes after %g in run %d, tag %c", value, *before, run, tag);
        *before = value;
    }
    free(text);
    return n;
}

static void test_killed_again_and_again(void **state)
{
    (void)state;
    const char *soak = getenv("KAJITORI_SOAK");
    int kills = soak && *soak ? 300 : 30, ready[2], go[2];
    char byte, bytes[WRITES] = {0};
    kji_rng rng;
    kji_rng_seed_randomly(&rng, NULL);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t writer = fork();
    if (writer == 0) {
        close(go[1]);
        write_all_of_it(go[0]);
        _exit(0);
    }
    for (int k = 0; k < kills; k++) {
        assert_int_equal(write(go[1], bytes, (size_t)(WRITES / kills)), WRITES / kills);
        pid_t reader = start(ready[1]);
        struct pollfd wait = {.fd = ready[0], .events = POLLIN};
        poll(&wait, 1, (int)(kji_rng_uint32(&rng) % 30)); /* before or after it stored something */
        kill(reader, SIGKILL);
        int status;
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_true(WIFSIGNALED(status));
        while (poll(&wait, 1, 0) > 0 && read(ready[0], &byte, 1) == 1)
            continue;
        check_store();
    }
    int status;
    close(go[1]);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    pid_t reader = start(ready[1]);
    while (check_store() < POINTS)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(check_store(), POINTS);
    kill(reader, SIGKILL);
    waitpid(reader, &status, 0);
    close(go[0]);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_TOP_TEST(test_killed_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
