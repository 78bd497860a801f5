/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers, copying tools and network disks at work while we follow: whatever they do on the way, in
 * the end the file holds all of the base file, and each of its points has been delivered once. And
 * writers that are killed at any moment: what they left whole is delivered once. 30 kills; 300 with
 * KAJITORI_SOAK.
 */
#include "event-make.h"
#include "files.h"
#include "live-fixture.h"
#include "mem.h"
#include "rng.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char file_name[] = "a/" LIVE_NAME, other_name[] = "a/.copy";

/* The end of the record that begins at `at`. */
static size_t record_end(const char *bytes, size_t at)
{
    uint64_t size;
    memcpy(&size, bytes + at, sizeof size);
    return at + (size_t)size + 16;
}

static size_t up_to_base(size_t size)
{
    return size < live_base_size ? size : live_base_size;
}

static void append_in_pieces(size_t from, size_t size)
{
    for (size_t k = from; k < live_base_size; k += size, sched_yield())
        live_append(file_name, k, up_to_base(k + size));
}

static void replace(size_t size)
{
    live_put(other_name, 0, size, O_TRUNC);
    assert_int_equal(rename(live_path(other_name), live_path(file_name)), 0);
    sched_yield();
}

static void drip(size_t split)
{
    (void)split;
    append_in_pieces(0, 1);
}

static void whole_records(size_t split)
{
    (void)split;
    for (size_t at = 0, end; at < live_base_size; at = end) {
        end = record_end(live_base, at);
        live_append(file_name, at, end);
    }
}

static void torn_at_pages(size_t split)
{
    append_in_pieces(0, split / 7 + 1);
}

/* The file is as long as it will be, but its blocks come in any order, as over NFS. */
static void blocks_out_of_order(size_t split)
{
    size_t block = split / 5 + 2;
    live_put(file_name, 0, 0, 0);
    int fd = open(live_path(file_name), O_WRONLY | O_CLOEXEC);
    for (size_t from = 0; from < live_base_size; from += block) {
        size_t to = up_to_base(from + block), middle = from + (to - from) / 2;
        assert_int_equal(ftruncate(fd, (off_t)to), 0);
        assert_true(pwrite(fd, live_base + middle, to - middle, (off_t)middle) >= 0);
        sched_yield();
        assert_true(pwrite(fd, live_base + from, middle - from, (off_t)from) >= 0);
    }
    close(fd);
}

static void replaced_by_a_longer_one(size_t split)
{
    live_append(file_name, 0, split);
    sched_yield();
    replace(live_base_size);
}

static void replaced_for_every_record(size_t split)
{
    (void)split;
    for (size_t end = record_end(live_base, 0);; end = record_end(live_base, end)) {
        replace(end);
        if (end == live_base_size)
            return;
    }
}

static void recreated(size_t split)
{
    live_append(file_name, 0, split);
    sched_yield();
    assert_int_equal(unlink(live_path(file_name)), 0);
    append_in_pieces(0, split);
}

static void truncated(size_t split)
{
    live_append(file_name, 0, live_base_size);
    sched_yield();
    assert_int_equal(truncate(live_path(file_name), (off_t)split), 0);
    sched_yield();
    append_in_pieces(split, 50);
}

static void rewritten(size_t split)
{
    live_append(file_name, 0, split);
    sched_yield();
    live_put(file_name, 0, 0, O_TRUNC);
    append_in_pieces(0, split / 3 + 1);
}

typedef struct player {
    void (*play)(size_t split);
    size_t split;
} player;

static void *player_main(void *data)
{
    const player *actor = data;
    actor->play(actor->split);
    return NULL;
}

static void play_as(void (*action)(size_t split), uint32_t flags)
{
    enum { N_SPLITS = 7 };
    for (size_t k = 1; k < N_SPLITS; k++) {
        player actor = {action, live_base_size * k / N_SPLITS};
        kji_rows got = {0};
        pthread_t thread;
        mkdir(live_path("a"), 0700);
        kj_events *events = live_follow("a", flags, flags ? 1 : 3600000);
        assert_int_equal(pthread_create(&thread, NULL, player_main, &actor), 0);
        kji_rows_await(events, &got, live_base_rows.n);
        pthread_join(thread, NULL);
        kji_rows_drain(events, &got);
        live_assert_all(&got, 1);
        kj_events_close(events);
        kji_rows_done(&got);
        kji_test_remove_tree(live_path("a"));
    }
}

static void play(void (*action)(size_t split))
{
    play_as(action, 0);
    play_as(action, KJ_EVENTS_POLL);
}

static void test_drip(void **state)
{
    (void)state;
    play(drip);
}

static void test_whole_records(void **state)
{
    (void)state;
    play(whole_records);
}

static void test_torn_at_pages(void **state)
{
    (void)state;
    play(torn_at_pages);
}

static void test_blocks_out_of_order(void **state)
{
    (void)state;
    play(blocks_out_of_order);
}

static void test_replaced_by_a_longer_one(void **state)
{
    (void)state;
    play(replaced_by_a_longer_one);
}

static void test_replaced_for_every_record(void **state)
{
    (void)state;
    play(replaced_for_every_record);
}

static void test_recreated(void **state)
{
    (void)state;
    play(recreated);
}

static void test_truncated(void **state)
{
    (void)state;
    play(truncated);
}

static void test_rewritten(void **state)
{
    (void)state;
    play(rewritten);
}

/* A writer with a buffer of its own, so that what it leaves may end anywhere. Never returns; says
 * in `written` how many bytes it has written so far. */
static void write_until_killed(const char *path, uint64_t seed, size_t *written)
{
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_rng rng;
    kji_rng_seed(&rng, seed);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (int64_t step = 0; fd >= 0;) {
        for (; bytes.size < 300; step++)
            kji_make_scalar(&bytes, step, 1000, "loss", (float)step);
        size_t size = 1 + kji_rng_uint32(&rng) % 300;
        if (write(fd, bytes.text, size) != (ssize_t)size)
            break;
        kji_strbuf_consume(&bytes, size);
        __atomic_store_n(written, *written + size, __ATOMIC_RELEASE);
    }
    _exit(1);
}

/* How many points the file holds that are whole. */
static size_t n_whole(const char *path)
{
    char *bytes;
    size_t size, n = 0;
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 30, &bytes, &size, NULL), 0);
    for (size_t at = 0; at + 12 <= size; n++) {
        size_t end = record_end(bytes, at);
        if (end > size)
            break;
        at = end;
    }
    free(bytes);
    return n;
}

static int check_next(void *userdata, const kj_point *point)
{
    int64_t *next = userdata; /* per file, which the run's name tells */
    int64_t *step = &next[atoi(point->run)];
    if (point->step != *step || point->value != (double)*step)
        fail_msg("step %lld in run %s, expected %lld", (long long)point->step, point->run,
                 (long long)*step);
    ++*step;
    return 0;
}

static void test_writers_killed(void **state)
{
    (void)state;
    enum { MAX_KILLS = 300 };
    static int64_t next[MAX_KILLS];
    const char *soak = getenv("KAJITORI_SOAK");
    int kills = soak && *soak ? MAX_KILLS : 30, status;
    size_t *written =
        mmap(NULL, sizeof *written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kji_rng rng;
    kji_rng_seed(&rng, 5);
    memset(next, 0, sizeof next);
    kj_events *events = live_follow_by_inotify("logs");
    for (int k = 0; k < kills; k++) {
        char name[100];
        snprintf(name, sizeof name, "logs/%d", k);
        mkdir(live_path("logs"), 0700);
        mkdir(live_path(name), 0700);
        snprintf(name, sizeof name, "logs/%d/" LIVE_NAME, k);
        size_t until = kji_rng_uint32(&rng) % 30000;
        *written = 0;
        pid_t child = fork();
        if (child == 0)
            write_until_killed(live_path(name), (uint64_t)k, written);
        while (__atomic_load_n(written, __ATOMIC_ACQUIRE) < until)
            assert_true(kj_events_step(events, 0, check_next, next, NULL) >= 0);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        while (kj_events_step(events, 0, check_next, next, NULL) > 0)
            continue;
        size_t n = access(live_path(name), F_OK) == 0 ? n_whole(live_path(name)) : 0;
        assert_int_equal(next[k], n);
    }
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    assert_int_equal(stats.skipped_bytes, 0);
    kj_events_close(events);
    munmap(written, sizeof *written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIVE_TEST(test_drip),
        LIVE_TEST(test_whole_records),
        LIVE_TEST(test_torn_at_pages),
        LIVE_TEST(test_blocks_out_of_order),
        LIVE_TEST(test_replaced_by_a_longer_one),
        LIVE_TEST(test_replaced_for_every_record),
        LIVE_TEST(test_recreated),
        LIVE_TEST(test_truncated),
        LIVE_TEST(test_rewritten),
        LIVE_TEST(test_writers_killed),
    };
    return cmocka_run_group_tests(tests, live_load, live_drop);
}
