/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers that are killed, that write side by side, and whose disk is full. 30 kills; 300 with
 * KAJITORI_SOAK. What a writer has acknowledged is counted in memory that it shares with the test.
 */
#include "event-tail.h"
#include "event-writer-impl.h"
#include "mem.h"
#include "metric-rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[64]; /* a fresh folder for each test */

static kj_event_writer *open_in_top(uint32_t flags)
{
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    options.flags = flags;
    kj_event_writer *writer = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_event_writer_open(top, &options, &writer, &err) < 0)
        fail_msg("%s", err.message);
    return writer;
}

static int add(kj_event_writer *writer, const char *tag, int64_t step)
{
    return kj_event_writer_add_scalar(writer, tag, step, 1000.5, (double)step, NULL);
}

static void read_top(kji_rows *rows, kj_events_stats *stats)
{
    char spec[300];
    kj_events *events = NULL;
    *rows = (kji_rows){0};
    snprintf(spec, sizeof spec, "events:%s", top);
    assert_int_equal(kj_events_open(spec, NULL, &events, NULL), 0);
    kji_rows_drain(events, rows);
    *stats = (kj_events_stats)KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, stats);
    assert_int_equal(stats->skipped_bytes, 0);
    kj_events_close(events);
}

/* The offset behind the last whole record, and the size. */
static off_t whole_of(const char *path, off_t *ret_size)
{
    struct stat st;
    off_t end;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(kji_event_tail(fd, 0, st.st_size, &end, NULL), 0);
    close(fd);
    *ret_size = st.st_size;
    return end;
}

static off_t assert_whole(const char *path)
{
    off_t size, end = whole_of(path, &size);
    assert_int_equal(end, size);
    return size;
}

struct writing {
    int64_t acknowledged; /* atomic */
    char path[300];
    uint32_t flags;
    const char *text; /* written in between; NULL: none */
};

static void write_for_ever(struct writing *writing)
{
    kj_event_writer *writer = open_in_top(writing->flags);
    snprintf(writing->path, sizeof writing->path, "%s", kj_event_writer_path(writer));
    for (int64_t step = 0;; step++) {
        if (writing->text && kj_event_writer_add_text(writer, "t", step, 0, writing->text, NULL))
            _exit(1);
        if (add(writer, "loss", step) < 0)
            _exit(1);
        __atomic_store_n(&writing->acknowledged, step + 1, __ATOMIC_RELEASE);
    }
}

/* Kills it once it has acknowledged so many, at whatever place it is then. */
static void kill_after(struct writing *writing, int64_t n)
{
    pid_t child = fork();
    if (child == 0)
        write_for_ever(writing);
    int status;
    while (__atomic_load_n(&writing->acknowledged, __ATOMIC_ACQUIRE) < n) {
        assert_int_equal(waitpid(child, &status, WNOHANG), 0);
        sched_yield();
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
}

/* The system ends a write of a killed process between two pages only. */
static void check_killed(const struct writing *writing, int64_t before, uint64_t *n_torn)
{
    kji_rows rows;
    kj_events_stats stats;
    off_t size, end = whole_of(writing->path, &size);
    assert_true(end > 0 && (end == size || size % sysconf(_SC_PAGESIZE) == 0));
    *n_torn += end < size;
    read_top(&rows, &stats);
    assert_int_equal(stats.waiting_files, *n_torn);
    int64_t n = (int64_t)rows.n - before;
    assert_true(n >= writing->acknowledged && n <= writing->acknowledged + 1);
    for (int64_t k = 0; k < n; k++)
        assert_int_equal(rows.rows[before + k].step, k);
    kji_rows_done(&rows);
}

static int n_kills(void)
{
    const char *soak = getenv("KAJITORI_SOAK");
    return soak && *soak ? 100 : 10; /* in each of three tests */
}

static struct writing *share_memory(void)
{
    void *memory = mmap(NULL, sizeof(struct writing), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void empty_top(void)
{
    kji_test_remove_tree(top);
    assert_int_equal(mkdir(top, 0700), 0);
}

static void kill_many(uint32_t flags, const char *text, int64_t most)
{
    struct writing *writing = share_memory();
    srand(1);
    for (int k = 0; k < n_kills(); k++) {
        *writing = (struct writing){.flags = flags, .text = text};
        empty_top();
        kill_after(writing, rand() % most + 1);
        uint64_t n_torn = 0;
        check_killed(writing, 0, &n_torn);
    }
    munmap(writing, sizeof *writing);
}

static void test_killed(void **state)
{
    (void)state;
    kill_many(0, NULL, 3000);
}

static void test_killed_in_large_texts(void **state)
{
    (void)state;
    char *text = malloc(300001);
    memset(text, 't', 300000);
    text[300000] = 0;
    kill_many(0, text, 20);
    free(text);
}

/* The next one goes on where that one was killed, in another file where it left a torn one. */
static void test_killed_while_sharing(void **state)
{
    (void)state;
    struct writing *writing = share_memory();
    int64_t before = 0;
    uint64_t n_torn = 0;
    srand(2);
    for (int k = 0; k < n_kills(); k++) {
        *writing = (struct writing){.flags = KJ_EVENT_WRITER_APPEND};
        kill_after(writing, rand() % 300 + 1);
        uint64_t n_files = n_torn + 1;
        check_killed(writing, before, &n_torn);
        kji_rows rows;
        kj_events_stats stats;
        read_top(&rows, &stats);
        before = (int64_t)rows.n;
        assert_int_equal(stats.files, n_files);
        kji_rows_done(&rows);
    }
    munmap(writing, sizeof *writing);
}

static void test_side_by_side(void **state)
{
    (void)state;
    enum { WRITERS = 8, RECORDS = 300 };
    pid_t child[WRITERS];
    for (int k = 0; k < WRITERS; k++) {
        child[k] = fork();
        if (child[k] != 0)
            continue;
        char tag[16];
        snprintf(tag, sizeof tag, "w%d", k);
        kj_event_writer *writer = open_in_top(KJ_EVENT_WRITER_APPEND);
        for (int64_t step = 0; step < RECORDS; step++)
            if (add(writer, tag, step) < 0)
                _exit(1);
        _exit(kj_event_writer_close(writer, NULL) < 0);
    }
    for (int k = 0; k < WRITERS; k++) {
        int status;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_int_equal(status, 0);
    }
    kji_rows rows;
    kj_events_stats stats;
    int64_t next[WRITERS] = {0};
    read_top(&rows, &stats);
    assert_int_equal(stats.files, 1);
    assert_int_equal(rows.n, WRITERS * RECORDS);
    for (size_t k = 0; k < rows.n; k++)
        assert_int_equal(next[rows.rows[k].tag[1] - '0']++, rows.rows[k].step);
    kji_rows_done(&rows);
}

static void limit_files(rlim_t size)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = size == RLIM_INFINITY ? limit.rlim_max : size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* For every limit there is a record that is cut at another of its bytes. */
static void check_limits(uint32_t flags)
{
    for (rlim_t more = 0; more < 60; more++) {
        empty_top();
        kj_event_writer *writer = open_in_top(flags);
        int64_t step = 0;
        limit_files(2000 + more);
        while (add(writer, "loss", step) == 0)
            step++;
        assert_true(step > 30);
        assert_int_equal(add(writer, "loss", 1000), KJ_EIO);
        assert_whole(kj_event_writer_path(writer));
        limit_files(RLIM_INFINITY);
        assert_int_equal(add(writer, "loss", step), 0);
        assert_int_equal(kj_event_writer_close(writer, NULL), 0);
        kji_rows rows;
        kj_events_stats stats;
        read_top(&rows, &stats);
        assert_int_equal(rows.n, step + 1);
        for (size_t k = 0; k < rows.n; k++)
            assert_int_equal(rows.rows[k].step, k);
        kji_rows_done(&rows);
    }
}

static void test_limit_of_file_sizes(void **state)
{
    (void)state;
    check_limits(0);
}

static void test_limit_of_a_shared_file(void **state)
{
    (void)state;
    check_limits(KJ_EVENT_WRITER_APPEND);
}

/* What was buffered when the disk was full is there when it is not any more. */
static void test_limit_of_a_buffered_file(void **state)
{
    (void)state;
    for (rlim_t more = 0; more < 60; more++) {
        empty_top();
        kj_event_writer *writer = open_in_top(KJ_EVENT_WRITER_BUFFER);
        int64_t step = 0;
        for (; step < 200; step++)
            assert_int_equal(add(writer, "loss", step), 0);
        limit_files(2000 + more);
        assert_int_equal(kj_event_writer_flush(writer, NULL), KJ_EIO);
        /* as many as there was room for */
        assert_true(assert_whole(kj_event_writer_path(writer)) > 1900);
        assert_int_equal(kj_event_writer_flush(writer, NULL), KJ_EIO);
        limit_files(RLIM_INFINITY);
        assert_int_equal(add(writer, "loss", step), 0);
        assert_int_equal(kj_event_writer_close(writer, NULL), 0);
        kji_rows rows;
        kj_events_stats stats;
        read_top(&rows, &stats);
        assert_int_equal(rows.n, 201);
        for (size_t k = 0; k < rows.n; k++)
            assert_int_equal(rows.rows[k].step, k);
        kji_rows_done(&rows);
    }
}

static void test_limit_that_leaves_no_room_for_a_file(void **state)
{
    (void)state;
    kj_event_writer *writer = NULL;
    limit_files(40);
    assert_int_equal(kj_event_writer_open(top, NULL, &writer, NULL), KJ_EIO);
    limit_files(RLIM_INFINITY);
    assert_null(writer);
    kji_rows rows;
    kj_events_stats stats;
    read_top(&rows, &stats);
    assert_int_equal(stats.files, 0);
    kji_rows_done(&rows);
}

static void test_full_disk(void **state)
{
    (void)state;
    if (mount("kj", top, "tmpfs", 0, "size=128k") < 0) {
        print_message("no right to mount: the limits of file sizes stand for it\n");
        return;
    }
    kj_event_writer *writer = open_in_top(0);
    char path[300], filler[400];
    int64_t step = 0;
    snprintf(path, sizeof path, "%s", kj_event_writer_path(writer));
    while (add(writer, "loss", step) == 0)
        step++;
    for (int k = 0; k < 100; k++)
        assert_int_equal(add(writer, "loss", step), KJ_EIO);
    assert_whole(path);
    assert_int_equal(kj_event_writer_close(writer, NULL), 0);
    snprintf(filler, sizeof filler, "%s.copy", path);
    assert_int_equal(rename(path, filler), 0);
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kj_event_writer_open(top, NULL, &writer, &err), KJ_EIO);
    assert_non_null(strstr(err.message, "No space"));
    kji_rows rows;
    kj_events_stats stats;
    read_top(&rows, &stats);
    assert_int_equal(rows.n, step);
    kji_rows_done(&rows);
    assert_int_equal(umount(top), 0);
}

static int make_top(void **state)
{
    (void)state;
    strcpy(top, "/tmp/kj-event-killed-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    limit_files(RLIM_INFINITY);
    kji_test_remove_tree(top);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_top, remove_top)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_killed),
        TEST(test_killed_in_large_texts),
        TEST(test_killed_while_sharing),
        TEST(test_side_by_side),
        TEST(test_limit_of_file_sizes),
        TEST(test_limit_of_a_shared_file),
        TEST(test_limit_of_a_buffered_file),
        TEST(test_limit_that_leaves_no_room_for_a_file),
        TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
