/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders and files that come, go, move and are linked, in great numbers, and with too few
 * descriptors, watches and rights. The two calls of inotify go through this file, so that it can
 * have them refused.
 */
#include "event-dir.h"
#include "event-make.h"
#include "live-fixture.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int watches_left = INT32_MAX; /* then the system has no more */
static bool no_inotify;

int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
    if (watches_left <= 0) {
        errno = ENOSPC;
        return -1;
    }
    watches_left--;
    return (int)syscall(SYS_inotify_add_watch, fd, path, mask);
}

int inotify_init1(int flags)
{
    if (no_inotify) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_inotify_init1, flags);
}

static char told[400];
static int n_told;

static void keep_log(void *userdata, int level, const char *message)
{
    (void)userdata;
    if (level > KJ_LOG_WARNING)
        return;
    snprintf(told, sizeof told, "%s", message);
    n_told++;
}

static void begin_log(void)
{
    n_told = 0;
    kj_log_set(keep_log, NULL);
}

/* A file with one scalar: as many bytes, so that many files cost little. */
static void make_small(const char *name, float value)
{
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_make_scalar(&bytes, 1, 1000, "loss", value);
    kji_make_file(live_path(name), &bytes);
    kji_strbuf_done(&bytes);
}

static void close_all(kj_events *events, kji_rows *got)
{
    kj_events_close(events);
    kji_rows_done(got);
}

static void test_runs_by_path_and_files_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {
        "events.out.tfevents.9.h",   "a-b/events.out.tfevents.1.h", "a/events.out.tfevents.10.h",
        "a/events.out.tfevents.9.h", "a/b/events.out.tfevents.1.h", "a0/events.out.tfevents.1.h"};
    enum { N = sizeof names / sizeof *names };
    kji_rows got = {0};
    mkdir(live_path("logs"), 0700);
    kj_events *events = live_follow_by_inotify("logs");
    for (int round = 0; round < 2; round++) { /* found by listing, then told by events */
        for (int k = N - 1; k >= 0; k--) {
            char name[100];
            snprintf(name, sizeof name, "logs/%s", names[k]);
            make_small(name, (float)k);
        }
        assert_int_equal(kji_rows_drain(events, &got), N);
        static const int right[N] = {0, 2, 3, 1, 4, 5}; /* a, a-b, a/b, a0 by bytes */
        for (size_t k = 0; k < N; k++)
            assert_true(got.rows[round * N + k].value == right[k]);
    }
    close_all(events, &got);
}

/* All files of a run are followed, also those that are older than others, or empty as yet. */
static void test_older_files_grow_too(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/events.out.tfevents.2.h", 0, 400);
    live_append("a/events.out.tfevents.3.h", 0, 0);
    live_append("a/events.out.tfevents.4.h", 0, live_base_size);
    kj_events *events = live_follow_by_inotify("a");
    kji_rows_drain(events, &got);
    assert_in_range(got.n, live_base_rows.n + 1, 2 * live_base_rows.n - 1);
    live_append("a/events.out.tfevents.2.h", 400, live_base_size);
    kji_rows_await(events, &got, 2 * live_base_rows.n);
    live_append("a/events.out.tfevents.3.h", 0, live_base_size);
    kji_rows_await(events, &got, 3 * live_base_rows.n);
    live_append("a/events.out.tfevents.1.h", 0, live_base_size); /* new, with an older name */
    kji_rows_await(events, &got, 4 * live_base_rows.n);
    close_all(events, &got);
}

static int count_present(void *userdata, const kj_file_info *file)
{
    *(int *)userdata += file->present != 0;
    assert_true(file->quiet_ms >= 0);
    return 0;
}

static int n_present(kj_events *events)
{
    int n = 0;
    assert_int_equal(kj_events_list_files(events, count_present, &n), 0);
    return n;
}

static void test_deleted_file_comes_back(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    live_append("a/" LIVE_NAME, 0, 400);
    make_small("a/events.out.tfevents.2.h", 7);
    kj_events *events = live_follow_by_inotify("a");
    kji_rows_drain(events, &got);
    size_t n = got.n;
    assert_int_equal(unlink(live_path("a/" LIVE_NAME)), 0);
    assert_int_equal(kji_rows_drain(events, &got), 0);
    assert_int_equal(n_present(events), 1);
    live_append("a/" LIVE_NAME, 0, live_base_size); /* longer, but the same */
    kji_rows_await(events, &got, live_base_rows.n + 1);
    assert_true(got.rows[n].step == live_base_rows.rows[n - 1].step);
    assert_int_equal(n_present(events), 2);
    close_all(events, &got);
}

static void test_file_renamed(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= KJ_EVENTS_POLL; flags += KJ_EVENTS_POLL) {
        kji_rows got = {0};
        mkdir(live_path("a"), 0700);
        live_put("a/events.out.tfevents.5.h", 0, 400, O_TRUNC);
        kj_events *events = live_follow("a", flags, flags ? 1 : 3600000);
        kji_rows_drain(events, &got);
        assert_int_equal(
            rename(live_path("a/events.out.tfevents.5.h"), live_path("a/events.out.tfevents.1.h")),
            0);
        live_append("a/events.out.tfevents.1.h", 400, live_base_size);
        kji_rows_await(events, &got, live_base_rows.n);
        live_assert_all(&got, 1);
        assert_int_equal(n_present(events), 1);
        close_all(events, &got);
        kji_test_remove_tree(live_path("a"));
    }
}

/* The folder is away for a moment, as when a disk is mounted anew. */
static void test_transient_outage(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("logs"), 0700);
    mkdir(live_path("logs/a"), 0700);
    live_append("logs/a/" LIVE_NAME, 0, 400);
    kj_events *events = live_follow_by_inotify("logs");
    kji_rows_drain(events, &got);
    assert_int_equal(rename(live_path("logs"), live_path("away")), 0);
    assert_int_equal(kji_rows_drain(events, &got), 0);
    live_append("away/a/" LIVE_NAME, 400, 500);
    assert_int_equal(kji_rows_drain(events, &got), 0);
    assert_int_equal(rename(live_path("away"), live_path("logs")), 0);
    live_append("logs/a/" LIVE_NAME, 500, live_base_size);
    kji_rows_await(events, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    close_all(events, &got);
}

/* Another folder under the same name, so fast that nobody saw it gone. */
static void test_folder_swapped(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("logs"), 0700);
    make_small("logs/a/events.out.tfevents.1.h", 1);
    make_small("other/events.out.tfevents.2.h", 2);
    kj_events *events = live_follow_by_inotify("logs");
    kji_rows_drain(events, &got);
    assert_int_equal(rename(live_path("logs/a"), live_path("gone")), 0);
    assert_int_equal(rename(live_path("other"), live_path("logs/a")), 0);
    kji_rows_await(events, &got, 2);
    make_small("logs/a/events.out.tfevents.2.h", 3);
    kji_rows_await(events, &got, 3);
    make_small("gone/events.out.tfevents.1.h", 4);
    assert_int_equal(kji_rows_drain(events, &got), 0);
    assert_int_equal(n_present(events), 1);
    close_all(events, &got);
}

/* The folder that was named is a link, which leads elsewhere later: only a look tells. */
static void test_root_is_a_link(void **state)
{
    (void)state;
    kji_rows got = {0};
    make_small("v1/a/events.out.tfevents.1.h", 1);
    make_small("v2/a/events.out.tfevents.2.h", 2);
    assert_int_equal(symlink("v1", live_path("logs")), 0);
    kj_events *events = live_follow("logs", 0, 1);
    kji_rows_drain(events, &got);
    assert_int_equal(symlink("v2", live_path("next")), 0);
    assert_int_equal(rename(live_path("next"), live_path("logs")), 0);
    kji_rows_await(events, &got, 2);
    assert_string_equal(got.rows[1].run, "a");
    close_all(events, &got);
}

static void test_links_to_files(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("a"), 0700);
    mkdir(live_path("elsewhere"), 0700);
    assert_int_equal(symlink("../elsewhere/x", live_path("a/" LIVE_NAME)), 0); /* to nothing yet */
    assert_int_equal(symlink("loop.tfevents.1", live_path("a/loop.tfevents.1")), 0);
    kj_events *events = live_follow("a", 0, 1);
    kji_rows_drain(events, &got);
    live_append("elsewhere/x", 0, 400);
    kji_rows_await(events, &got, 1);
    live_append("elsewhere/x", 400, live_base_size);
    kji_rows_await(events, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    close_all(events, &got);
}

static void test_link_to_a_folder_that_comes_later(void **state)
{
    (void)state;
    kji_rows got = {0};
    mkdir(live_path("logs"), 0700);
    kj_events *events = live_follow_by_inotify("logs");
    kji_rows_drain(events, &got);
    make_small("elsewhere/events.out.tfevents.1.h", 1);
    assert_int_equal(symlink("../elsewhere", live_path("logs/latest")), 0);
    kji_rows_await(events, &got, 1);
    assert_string_equal(got.rows[0].run, "latest");
    make_small("elsewhere/events.out.tfevents.1.h", 2); /* its folder is watched */
    kji_rows_await(events, &got, 2);
    assert_int_equal(symlink("latest", live_path("logs/again")), 0);
    assert_int_equal(kji_rows_drain(events, &got), 0);
    close_all(events, &got);
}

static int is_unreadable(void *userdata, const kj_damage *damage)
{
    const char *end = strrchr(damage->file, '/');
    return damage->kind == KJ_DAMAGE_UNREADABLE && !damage->skipped &&
           strcmp(damage->run, "closed") == 0 && strcmp(end, userdata) == 0;
}

/* In a child, which gives its rights up. 0, or what went wrong. */
static int follow_without_rights(void)
{
    static char folder[] = "/closed", file[] = "/events.out.tfevents.2.h";
    kji_rows got = {0};
    chmod(live_path("logs/closed"), 0);
    kj_events *events = live_follow("logs", 0, 1);
    begin_log();
    kji_rows_drain(events, &got);
    kji_rows_drain(events, &got);
    if (got.n != 1 || n_told != 1 || !strstr(told, "closed: Permission denied; tried again later"))
        return 1;
    if (kj_events_list_damage(events, is_unreadable, folder) != 1)
        return 3;
    chmod(live_path("logs/closed"), 0700);
    kji_rows_await(events, &got, 2);
    int fd = open(live_path("logs/closed/events.out.tfevents.2.h"), O_WRONLY | O_CREAT, 0);
    kji_rows_drain(events, &got); /* a file that may not be read */
    if (fd < 0 || n_told != 2 || !strstr(told, "events.out.tfevents.2.h: Permission denied"))
        return 2;
    if (kj_events_list_damage(events, is_unreadable, folder) != 0 ||
        kj_events_list_damage(events, is_unreadable, file) != 1)
        return 4;
    close_all(events, &got);
    return 0;
}

static void test_unreadable_below(void **state)
{
    (void)state;
    make_small("logs/open/events.out.tfevents.1.h", 1);
    make_small("logs/closed/events.out.tfevents.1.h", 2);
    static const char *const names[] = {"",
                                        "logs",
                                        "logs/open",
                                        "logs/closed",
                                        "logs/closed/events.out.tfevents.1.h",
                                        "logs/open/events.out.tfevents.1.h"};
    for (size_t k = 0; k < sizeof names / sizeof *names && geteuid() == 0; k++)
        assert_int_equal(chown(live_path(names[k]), 65534, 65534), 0);
    pid_t child = fork();
    if (child == 0) {
        bool given_up = geteuid() != 0 || (setresgid(65534, 65534, 65534) == 0 &&
                                           setresuid(65534, 65534, 65534) == 0);
        _exit(given_up ? follow_without_rights() : 9);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void set_descriptors(rlim_t n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* In memory where that can be: 10,000 folders take a disk's file system its time. */
static int set_up_in_memory(void **state)
{
    snprintf(live_top, sizeof live_top, "/dev/shm/kj-events-XXXXXX");
    return mkdtemp(live_top) ? 0 : live_set_up(state);
}

static void test_10000_runs_with_64_descriptors(void **state)
{
    (void)state;
    enum { N = 10000 };
    char name[100];
    kji_rows got = {0};
    for (int k = 0; k < N; k++) {
        snprintf(name, sizeof name, "logs/run-%d/events.out.tfevents.1.h", k);
        make_small(name, (float)k);
    }
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    set_descriptors(64);
    kj_events *events = live_follow_by_inotify("logs");
    assert_int_equal(kji_rows_drain(events, &got), N);
    for (size_t k = 1; k < N; k++)
        assert_true(strcmp(got.rows[k - 1].run, got.rows[k].run) < 0);
    struct pollfd wait = {.fd = kj_events_get_fd(events), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
    for (int k = 0; k < N; k += 997) {
        snprintf(name, sizeof name, "logs/run-%d/events.out.tfevents.1.h", k);
        make_small(name, -1);
        assert_int_equal(poll(&wait, 1, 60000), 1);
        assert_int_equal(kji_rows_drain(events, &got), 1);
    }
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    assert_int_equal(stats.runs, N);
    assert_int_equal(stats.files, N);
    close_all(events, &got);
    set_descriptors(old.rlim_cur);
}

static void test_no_descriptor_left(void **state)
{
    (void)state;
    kji_rows got = {0};
    make_small("logs/a/events.out.tfevents.1.h", 1);
    kj_events *events = live_follow("logs", 0, 1);
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    int next = dup(0);
    close(next);
    set_descriptors((rlim_t)next); /* no folder can be opened */
    begin_log();
    assert_int_equal(kji_rows_drain(events, &got), 0);
    assert_non_null(strstr(told, "Too many open files"));
    set_descriptors(old.rlim_cur);
    kji_rows_await(events, &got, 1);
    int fd = open(live_path("logs/a/events.out.tfevents.1.h"), O_WRONLY | O_APPEND | O_CLOEXEC);
    set_descriptors((rlim_t)next); /* nor a file that grows */
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_make_scalar(&bytes, 2, 1000, "loss", 2);
    assert_int_equal(write(fd, bytes.text, bytes.size), (ssize_t)bytes.size);
    n_told = 0;
    assert_int_equal(kji_rows_drain(events, &got), 0);
    assert_int_equal(n_told, 1);
    set_descriptors(old.rlim_cur);
    kji_rows_await(events, &got, 2);
    kj_log_set(NULL, NULL);
    kji_strbuf_done(&bytes);
    close(fd);
    close_all(events, &got);
}

static void test_watches_used_up(void **state)
{
    (void)state;
    enum { N = 40 };
    char name[100];
    kji_rows got = {0};
    watches_left = N / 2;
    kj_events *events = live_follow("logs", 0, 1);
    begin_log();
    for (int round = 0; round < 3; round++) {
        if (round == 2)
            watches_left = INT32_MAX; /* others have given theirs back */
        for (int k = 0; k < N; k++) {
            snprintf(name, sizeof name, "logs/run-%d/events.out.tfevents.1.h", k);
            make_small(name, (float)round);
        }
        kji_rows_await(events, &got, (size_t)(N * (round + 1)));
    }
    kj_log_set(NULL, NULL);
    assert_int_equal(n_told, 1);
    assert_non_null(strstr(told, "max_user_watches"));
    assert_int_equal(kji_rows_drain(events, &got), 0);
    close_all(events, &got);
}

static void test_no_inotify_instance(void **state)
{
    (void)state;
    kji_rows got = {0};
    no_inotify = true;
    begin_log();
    kj_events *events = live_follow("logs", 0, 1);
    no_inotify = false;
    kj_log_set(NULL, NULL);
    assert_non_null(strstr(told, "max_user_instances"));
    kji_rows_drain(events, &got);
    mkdir(live_path("logs"), 0700);
    for (size_t k = 0; k < live_base_size; k += 100)
        live_append("logs/" LIVE_NAME, k, k + 100 < live_base_size ? k + 100 : live_base_size);
    kji_rows_await(events, &got, live_base_rows.n);
    live_assert_all(&got, 1);
    close_all(events, &got);
}

static int read_number(const char *path)
{
    char text[20] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return atoi(text);
}

/* More events than the kernel keeps: whatever has happened is found by a look at everything. */
static void test_queue_overflow(void **state)
{
    (void)state;
    int n = read_number("/proc/sys/fs/inotify/max_queued_events") + 100;
    kji_rows got = {0};
    make_small("logs/a/events.out.tfevents.1.h", 1);
    kj_events *events = live_follow_by_inotify("logs");
    kji_rows_drain(events, &got);
    int one = open(live_path("logs/one"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int other = open(live_path("logs/other"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int k = 0; k < n; k++) /* equal events that follow each other are one */
        assert_int_equal(write(k % 2 ? one : other, "x", 1), 1);
    close(one);
    close(other);
    make_small("logs/a/events.out.tfevents.1.h", 2);
    make_small("logs/b/c/events.out.tfevents.1.h", 3);
    kji_rows_await(events, &got, 3);
    assert_true(got.rows[1].value == 2 && got.rows[2].value == 3);
    make_small("logs/b/c/events.out.tfevents.1.h", 4); /* and goes on by events */
    kji_rows_await(events, &got, 4);
    close_all(events, &got);
}

typedef struct listing {
    char text[400];
    size_t size;
} listing;

static int add_file(void *userdata, const kj_file_info *file)
{
    listing *to = userdata;
    to->size +=
        (size_t)snprintf(to->text + to->size, sizeof to->text - to->size, "%s %s %llu/%llu %s%s\n",
                         file->run, strrchr(file->path, '/') + 1,
                         (unsigned long long)file->committed, (unsigned long long)file->file_size,
                         kj_damage_kind_name(file->state), file->present ? "" : " gone");
    return 0;
}

static void test_list_of_files(void **state)
{
    (void)state;
    kji_rows got = {0};
    listing files = {.size = 0};
    mkdir(live_path("a"), 0700);
    live_append("a/events.out.tfevents.2.h", 0, LIVE_FIRST_END + 10);
    live_append("a/events.out.tfevents.1.h", 0, LIVE_FIRST_END);
    mkdir(live_path("a/empty"), 0700);
    kj_events *events = live_follow_by_inotify("a");
    kji_rows_drain(events, &got);
    assert_int_equal(unlink(live_path("a/events.out.tfevents.1.h")), 0);
    kji_rows_drain(events, &got);
    assert_int_equal(kj_events_list_files(events, add_file, &files), 0);
    assert_string_equal(files.text, ". events.out.tfevents.1.h 88/88 none gone\n"
                                    ". events.out.tfevents.2.h 88/98 partial\n");
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    assert_int_equal(stats.runs, 1);
    assert_int_equal(stats.files, 1);
    assert_int_equal(stats.waiting_files, 1);
    close_all(events, &got);
}

static void update(kji_event_dir *dir)
{
    assert_int_equal(kji_event_dir_update(dir, NULL), 0);
}

static kji_event_folder *find_folder(const kji_event_dir *dir, const char *run)
{
    kji_event_folder *folder = kji_folder_table_find(&dir->table, run);
    if (folder)
        assert_ptr_equal(dir->table.folders[folder->place], folder);
    return folder;
}

/* Checkpoints that come and go do not use up the number of folders; what held files is kept. */
static void test_folders_that_went_make_room(void **state)
{
    (void)state;
    enum { MOST = 200, N = 500 };
    kji_watch watch;
    kji_event_dir dir;
    make_small("logs/b/run/" LIVE_NAME, 1);
    make_small("logs/c/gone/" LIVE_NAME, 1);
    assert_int_equal(kji_watch_init(&watch, false, NULL), 0);
    assert_int_equal(kji_event_dir_init(&dir, live_path("logs"), &watch, NULL), 0);
    dir.max_folders = MOST;
    update(&dir);
    kji_test_remove_tree(live_path("logs/c"));
    for (int k = 0; k < N; k++) {
        char names[2][100];
        for (int j = 0; j < 2; j++) {
            snprintf(names[j], sizeof names[j], "logs/%c%d%s", "ad"[k % 2], k, j ? "/below" : "");
            assert_int_equal(mkdir(live_path(names[j]), 0700), 0);
        }
        update(&dir);
        assert_non_null(find_folder(&dir, names[1] + strlen("logs/")));
        assert_int_equal(rmdir(live_path(names[1])), 0);
        if (k % 3 == 0)
            update(&dir);
        assert_int_equal(rmdir(live_path(names[0])), 0);
        update(&dir);
        assert_true(dir.table.n_folders <= MOST);
    }
    make_small("logs/a/" LIVE_NAME, 1);
    update(&dir);
    assert_int_equal(find_folder(&dir, "a")->n_files, 1);
    assert_int_equal(find_folder(&dir, "b/run")->n_files, 1);
    assert_int_equal(find_folder(&dir, "c/gone")->n_files, 1);
    assert_true(find_folder(&dir, "a")->place < find_folder(&dir, "b/run")->place);
    kji_event_dir_done(&dir);
    kji_watch_done(&watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIVE_TEST(test_runs_by_path_and_files_by_name),
        LIVE_TEST(test_older_files_grow_too),
        LIVE_TEST(test_deleted_file_comes_back),
        LIVE_TEST(test_file_renamed),
        LIVE_TEST(test_transient_outage),
        LIVE_TEST(test_folder_swapped),
        LIVE_TEST(test_root_is_a_link),
        LIVE_TEST(test_links_to_files),
        LIVE_TEST(test_link_to_a_folder_that_comes_later),
        LIVE_TEST(test_unreadable_below),
        cmocka_unit_test_setup_teardown(test_10000_runs_with_64_descriptors, set_up_in_memory,
                                        live_tear_down),
        LIVE_TEST(test_no_descriptor_left),
        LIVE_TEST(test_watches_used_up),
        LIVE_TEST(test_no_inotify_instance),
        LIVE_TEST(test_queue_overflow),
        LIVE_TEST(test_list_of_files),
        LIVE_TEST(test_folders_that_went_make_room),
    };
    return cmocka_run_group_tests(tests, live_load, live_drop);
}
