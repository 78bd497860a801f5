/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of several files: no line is lost, torn or counted twice, whatever happens when. */
#include "errors.h"
#include "files.h"
#include "journal-rotate.h"
#include "json.h"
#include "mem.h"

#include "kji-test.h"

#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char root[40], dir[80];
static kji_journal journal;
static double now_s;

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kji-journal-XXXXXX");
    journal = (kji_journal)KJI_JOURNAL_INIT;
    now_s = 1e9;
    if (!mkdtemp(root))
        return -1;
    snprintf(dir, sizeof dir, "%s/runs/test", root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kji_journal_done(&journal);
    kji_test_remove_tree(root);
    return 0;
}

static void open_journal(int64_t rotate_bytes, int64_t keep_bytes)
{
    kj_error err = KJ_ERROR_INIT;
    if (kji_journal_open(&journal, dir, &err) < 0)
        fail_msg("%s", err.message);
    journal.rotate_bytes = rotate_bytes;
    journal.keep_bytes = keep_bytes;
}

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static bool exists(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static int append(const char *text)
{
    struct json_object *record = json_tokener_parse(text);
    KJI_CLEANUP(kji_freep) char *line = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_journal_append(&journal, record, &line, &err);
    assert_int_equal(r != 0, *err.message != 0);
    json_object_put(record);
    return r;
}

static int append_command(int64_t seq, const char *state)
{
    KJI_CLEANUP(kji_freep)
    char *text =
        kji_format("{\"seq\": %lld, \"state\": \"%s\", \"verb\": \"tick\"}", (long long)seq, state);
    return append(text);
}

/* The lines that kj_journal_read hands over: their numbers are in order. */
typedef struct all_lines {
    int64_t n; /* of the newest line */
    int64_t n_lines;
    int64_t n_missing;
    int64_t n_continued;
    int64_t n_commands;
    int64_t removed_last;
    char trouble[200];
} all_lines;

static int read_line(void *userdata, const char *text)
{
    all_lines *reading = userdata;
    struct json_object *line = NULL, *removed;
    int64_t n, first;
    assert_int_equal(kji_json_parse(text, strlen(text), &line, NULL), 0);
    assert_true(kji_json_int(line, "n", &n));
    const char *event = kji_json_string(line, "event");
    if (event && strcmp(event, "missing") == 0) {
        assert_true(kji_json_int(line, "first", &first));
        assert_int_equal(first, reading->n + 1);
        reading->n_missing += n - first + 1;
        snprintf(reading->trouble, sizeof reading->trouble, "%s", kji_json_string(line, "text"));
    } else {
        assert_int_equal(n, reading->n + 1);
        reading->n_lines++;
        reading->n_continued += event && strcmp(event, "continued") == 0;
        reading->n_commands += !event;
    }
    if (json_object_object_get_ex(line, "removed", &removed))
        kji_json_int(removed, "last", &reading->removed_last);
    reading->n = n;
    json_object_put(line);
    return 0;
}

static all_lines read_all(void)
{
    all_lines reading = {0};
    kj_error err = KJ_ERROR_INIT;
    if (kj_journal_read(root, "test", read_line, &reading, NULL, &err) < 0)
        fail_msg("%s", err.message);
    return reading;
}

/* All lines, asked for in small parts, as a reader of the method "journal" does. */
static int64_t read_back_all(void)
{
    int64_t after = 0, missing = 0;
    for (;;) {
        struct json_object *lines;
        assert_int_equal(kji_journal_read_back(&journal, after, 7, 1 << 20, &lines, NULL), 0);
        size_t n = json_object_array_length(lines);
        for (size_t k = 0; k < n; k++) {
            struct json_object *line = json_object_array_get_idx(lines, k);
            int64_t number, first;
            assert_true(kji_json_int(line, "n", &number));
            if (kji_json_int(line, "first", &first))
                missing += number - first + 1;
            else
                first = number;
            assert_int_equal(first, after + 1);
            after = number;
        }
        json_object_put(lines);
        if (n == 0)
            break;
    }
    assert_int_equal(after, journal.last);
    return missing;
}

static void test_lines_go_on_over_files(void **state)
{
    (void)state;
    open_journal(2000, 1 << 30);
    for (int64_t seq = 1; seq <= 500; seq++) {
        assert_int_equal(append_command(seq, "accepted"), 0);
        assert_int_equal(append_command(seq, "done"), 0);
    }
    assert_true(journal.n_older > 20);
    assert_true(exists("journal-000000000001.jsonl"));
    all_lines all = read_all();
    assert_int_equal(all.n, journal.last);
    assert_int_equal(all.n_lines, journal.last);
    assert_int_equal(all.n_commands, 1000);
    assert_int_equal(all.n_continued, journal.n_older);
    assert_int_equal(read_back_all(), 0);
    int64_t last = journal.last;
    kji_journal_done(&journal);
    open_journal(2000, 1 << 30);
    assert_int_equal(journal.last, last);
    assert_int_equal(journal.pending.last_seq, 500);
    assert_int_equal(journal.pending.n, 0);
    assert_int_equal(append_command(501, "done"), 0);
    assert_int_equal(read_all().n, last + 1);
    assert_int_equal(read_back_all(), 0);
}

static void test_the_oldest_files_go(void **state)
{
    (void)state;
    open_journal(2000, 10000);
    int64_t bytes = 0;
    for (int64_t seq = 1; seq <= 1000; seq++)
        assert_int_equal(append_command(seq, "done"), 0);
    for (size_t k = 0; k < journal.n_older; k++)
        bytes += journal.older[k].size;
    assert_true(bytes <= 10000 && bytes > 5000);
    assert_false(exists("journal-000000000001.jsonl"));
    all_lines all = read_all();
    assert_int_equal(all.n, journal.last);
    assert_int_equal(all.n_missing, journal.older[0].first - 1);
    assert_int_equal(all.removed_last, journal.older[0].first - 1);
    assert_int_equal(read_back_all(), journal.older[0].first - 1);
}

static void test_the_newest_file_knows_what_waits(void **state)
{
    (void)state;
    open_journal(2000, 5000);
    append_command(1, "accepted");
    append_command(2, "accepted");
    append_command(2, "scheduled");
    append_command(3, "accepted");
    append_command(3, "applied");
    for (int64_t seq = 4; seq <= 300; seq++)
        assert_int_equal(append_command(seq, "done"), 0);
    append_command(2, "expired");
    kji_journal_done(&journal);
    open_journal(2000, 5000);
    assert_int_equal(journal.pending.n_old, 2);
    assert_non_null(kji_pending_find(&journal.pending, 1));
    assert_non_null(kji_pending_find(&journal.pending, 3));
    assert_non_null(strstr(kji_pending_find(&journal.pending, 3)->line, "applied"));
    for (int64_t seq = 301; seq <= 600; seq++) /* this run dies, too */
        append_command(seq, "done");
    append_command(601, "accepted");
    kji_journal_done(&journal);
    open_journal(2000, 5000);
    assert_int_equal(journal.pending.n_old, 3);
    append("{\"seq\": 602, \"state\": \"rejected\", \"recovered\": 1}");
    assert_int_equal(journal.pending.n_old, 3);
    append("{\"seq\": 603, \"state\": \"accepted\", \"recovered\": 1}");
    assert_int_equal(journal.pending.n_old, 2);
    append("{\"event\": \"run_ended\", \"last_seq\": 603}");
    kji_journal_done(&journal);
    open_journal(2000, 5000);
    assert_int_equal(journal.pending.n_old, 0);
    assert_int_equal(journal.pending.last_seq, 603);
}

static void test_many_that_wait_are_listed_in_several_lines(void **state)
{
    (void)state;
    enum { WAITING = 5000 };
    open_journal(1 << 30, 1 << 30);
    for (int64_t seq = 1; seq <= WAITING; seq++)
        append_command(seq, "accepted");
    journal.rotate_bytes = 1000;
    append_command(WAITING + 1, "done");
    all_lines all = read_all();
    assert_true(all.n_continued > 3);
    assert_int_equal(all.n_lines, all.n);
    kji_journal_done(&journal);
    open_journal(1 << 20, 1 << 30);
    assert_int_equal(journal.pending.n_old, WAITING);
}

static void test_where_many_wait_not_each_line_begins_a_file(void **state)
{
    (void)state;
    enum { WAITING = 500, MORE = 1000 };
    open_journal(1 << 20, 1 << 30);
    for (int64_t seq = 1; seq <= WAITING; seq++)
        append_command(seq, "accepted");
    journal.rotate_bytes = 1000;
    for (int64_t seq = WAITING + 1; seq <= WAITING + MORE; seq++)
        append_command(seq, "done");
    assert_in_range(journal.n_older, 2, 10);
    assert_int_equal(read_all().n_lines, journal.last);
}

static void test_a_second_command_with_the_id_closes_the_first(void **state)
{
    (void)state;
    open_journal(1 << 20, 1 << 30);
    append("{\"seq\": 1, \"state\": \"accepted\", \"command_id\": \"x\"}");
    kji_journal_done(&journal);
    open_journal(1 << 20, 1 << 30);
    assert_int_equal(journal.pending.n_old, 1);
    append("{\"seq\": 2, \"state\": \"done\", \"dry_run\": true, \"command_id\": \"x\"}");
    assert_int_equal(journal.pending.n_old, 1);
    append("{\"seq\": 3, \"state\": \"accepted\", \"command_id\": \"x\"}");
    assert_int_equal(journal.pending.n_old, 0);
    assert_int_equal(journal.pending.n, 1);
}

static double told_time(void)
{
    return now_s;
}

static void test_a_clock_that_is_set_back_changes_no_order(void **state)
{
    (void)state;
    open_journal(1000, 1 << 30);
    journal.wall_time = told_time;
    for (int64_t seq = 1; seq <= 100; seq++) {
        now_s -= 3600;
        append_command(seq, "done");
    }
    assert_int_equal(read_all().n_lines, journal.last); /* checks the numbers */
    struct json_object *lines;
    assert_int_equal(kji_journal_read_back(&journal, journal.last - 1, 1, 1000, &lines, NULL), 0);
    double time;
    assert_true(kji_json_get_double(
        json_object_object_get(json_object_array_get_idx(lines, 0), "time"), &time));
    assert_true(time == now_s);
    json_object_put(lines);
}

static void test_a_missing_or_damaged_file_is_said(void **state)
{
    (void)state;
    open_journal(1000, 1 << 30);
    for (int64_t seq = 1; seq <= 100; seq++)
        append_command(seq, "done");
    assert_true(journal.n_older >= 5);
    char name[KJI_JOURNAL_NAME_MAX];
    kji_journal_part_name(journal.older[1].first, name);
    int64_t gone = journal.older[2].first - journal.older[1].first;
    assert_int_equal(unlink(path_of(name)), 0);
    all_lines all = read_all();
    assert_int_equal(all.n, journal.last);
    assert_int_equal(all.n_missing, gone);
    assert_int_equal(read_back_all(), gone);
    kji_journal_part_name(journal.older[3].first, name);
    assert_int_equal(truncate(path_of(name), 300),
                     0); /* the rest of a line, and others, are gone */
    all = read_all();
    assert_int_equal(all.n, journal.last);
    assert_true(all.n_missing > gone);
    assert_int_equal(unlink(path_of(name)), 0);
    assert_int_equal(mkdir(path_of(name), 0700), 0); /* cannot be read */
    all = read_all();
    assert_int_equal(all.n, journal.last);
    assert_non_null(strstr(all.trouble, name));
}

static void test_a_death_between_two_names(void **state)
{
    (void)state;
    open_journal(1 << 20, 1 << 30);
    append_command(1, "accepted");
    append_command(2, "done");
    kji_journal_done(&journal);
    char old[200];
    strcpy(old, path_of(KJI_JOURNAL_NAME));
    assert_int_equal(link(old, path_of("journal-000000000001.jsonl")), 0);
    assert_int_equal(read_all().n_lines, 2); /* not twice */
    open_journal(1 << 20, 1 << 30);
    assert_false(exists("journal-000000000001.jsonl"));
    assert_int_equal(journal.last, 2);
    kji_journal_done(&journal);
    assert_int_equal(rename(old, path_of("journal-000000000001.jsonl")), 0); /* without links */
    assert_int_equal(read_all().n_lines, 2);
    open_journal(1 << 20, 1 << 30);
    assert_int_equal(journal.last, 3); /* `continued` */
    assert_int_equal(journal.pending.n_old, 1);
    assert_int_equal(journal.pending.last_seq, 2);
    assert_int_equal(read_all().n_lines, 3);
}

static bool is_locked(void)
{
    KJI_CLEANUP(kji_closep) int fd = open(path_of(KJI_JOURNAL_NAME), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static void test_the_lock_goes_along(void **state)
{
    (void)state;
    kji_journal second;
    open_journal(500, 1 << 30);
    for (int64_t seq = 1; seq <= 30; seq++) {
        append_command(seq, "done");
        assert_true(is_locked());
    }
    assert_int_equal(kji_journal_open(&second, dir, NULL), KJ_EBUSY);
    kji_journal_done(&journal);
    assert_false(is_locked());
}

/* A child appends pairs of lines, and new files begin all the time, until it is killed. */
static pid_t start_writer(int64_t seq)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    open_journal(1500, 1 << 30);
    for (;; seq++) {
        append_command(seq, "accepted");
        append_command(seq, "done");
    }
}

static void wait_for_growth(int64_t size)
{
    struct stat st;
    char path[200];
    strcpy(path, path_of(KJI_JOURNAL_NAME));
    for (int64_t n = 0; n < 2; sched_yield()) { /* two looks at different files, or a grown one */
        if (stat(path, &st) == 0 && st.st_size != size) {
            size = st.st_size;
            n++;
        }
    }
}

static void test_killed_at_any_moment(void **state)
{
    (void)state;
    int64_t lines = 0;
    unsigned seed = 1;
    for (int k = 0; k < 100; k++) {
        int status;
        pid_t child = start_writer(lines + 1);
        wait_for_growth(-1);
        usleep((useconds_t)(rand_r(&seed) % 3000)); /* the moment is any */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        all_lines all = read_all(); /* checks each number and each line */
        assert_int_equal(all.n_missing, 0);
        assert_true(all.n >= lines);
        open_journal(1500, 1 << 30);
        assert_int_equal(journal.last - all.n, journal.last > all.n); /* at most `continued` */
        assert_true(journal.pending.n_old <= 1);
        append("{\"event\": \"run_ended\"}");
        lines = journal.last;
        kji_journal_done(&journal);
    }
    assert_true(exists("journal-000000000001.jsonl"));
}

static int count_older(void)
{
    KJI_CLEANUP(kji_freep) int64_t *numbers = NULL;
    size_t n = 0;
    KJI_CLEANUP(kji_closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(kji_journal_list_parts(fd, &numbers, &n, NULL), 0);
    return (int)n;
}

/* In a child, since its limit stays: what it may write ends in the middle of a line. */
static void test_a_limit_of_file_sizes_ends_nobody(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 3000, .rlim_max = RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        open_journal(1 << 20, 1 << 30);
        for (int64_t seq = 1; seq <= 200; seq++)
            append_command(seq, "done");
        _exit(journal.failed ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(count_older() > 3);
    assert_int_equal(read_all().n_commands, 200);
}

static void test_a_full_disk_loses_no_line_that_was_there(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("tmpfs", root, "tmpfs", 0, "size=64k,mode=0700") < 0)
        skip();
    int r = 0;
    int64_t seq = 0;
    open_journal(5000, 1 << 30);
    while ((r = append_command(++seq, "done")) == 0)
        assert_true(seq < 5000);
    assert_int_equal(r, KJ_EIO);
    assert_true(journal.failed);
    assert_int_equal(append_command(seq + 1, "done"), 0); /* said once */
    all_lines all = read_all();
    assert_int_equal(all.n_missing, 0);
    assert_int_equal(all.n_commands, seq - 1);
    kji_journal_done(&journal);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
}

static void test_a_new_file_that_cannot_be_begun_is_said_and_survived(void **state)
{
    (void)state;
    open_journal(1000, 1 << 30);
    append_command(1, "done");
    assert_int_equal(mkdir(path_of(".journal.new"), 0700), 0);
    int n_said = 0;
    for (int64_t seq = 2; seq <= 40; seq++) {
        int r = append_command(seq, "done");
        assert_true(r == 0 || r == 1);
        n_said += r;
    }
    assert_in_range(n_said, 1, 4); /* once for each 1000 bytes */
    assert_int_equal(read_all().n_commands, 40);
    assert_int_equal(rmdir(path_of(".journal.new")), 0);
    for (int64_t seq = 41; seq <= 80; seq++)
        assert_int_equal(append_command(seq, "done"), 0);
    assert_true(journal.n_older > 0);
    assert_int_equal(read_all().n_commands, 80);
}

static void test_a_journal_that_is_deleted_goes_on_anew(void **state)
{
    (void)state;
    open_journal(1 << 20, 1 << 30);
    append_command(1, "accepted");
    append_command(2, "done");
    kji_test_remove_tree(root);
    journal.looked_ms = -1000000;
    assert_int_equal(append_command(3, "done"), 1);
    all_lines all = read_all();
    assert_int_equal(all.n, 4);
    assert_int_equal(all.n_missing, 2);
    assert_int_equal(all.removed_last, 2);
    assert_true(is_locked());
    assert_int_equal(append_command(4, "done"), 0);
    kji_journal_done(&journal);
    open_journal(1 << 20, 1 << 30);
    assert_int_equal(journal.pending.n_old, 1); /* command 1, although its line is gone */
}

static int stop_at_third(void *userdata, const char *text)
{
    (void)text;
    return ++*(int *)userdata == 3;
}

static void test_reading_ends_when_it_is_told_to(void **state)
{
    (void)state;
    int n = 0;
    open_journal(200, 1 << 30);
    for (int64_t seq = 1; seq <= 20; seq++)
        append_command(seq, "done");
    assert_int_equal(kj_journal_read(root, "test", stop_at_third, &n, NULL, NULL), 0);
    assert_int_equal(n, 3);
}

static void test_run_json_of_a_past_run(void **state)
{
    (void)state;
    char *json = NULL, *id = NULL;
    kj_error err = KJ_ERROR_INIT;
    open_journal(1 << 20, 1 << 30);
    assert_int_equal(kj_past_run_load(root, "te", &json, &id, &err), KJ_EDATA);
    assert_non_null(strstr(err.message, "no run.json"));
    assert_int_equal(kji_write_file_atomic(journal.dir_fd, "run.json", "[1]", 3, NULL), 0);
    assert_int_equal(kj_past_run_load(root, "te", &json, &id, &err), KJ_EDATA);
    assert_int_equal(kji_write_file_atomic(journal.dir_fd, "run.json", "{\"id\":1}", 8, NULL), 0);
    assert_int_equal(kj_past_run_load(root, "te", &json, &id, &err), 0);
    assert_string_equal(json, "{\"id\":1}");
    assert_string_equal(id, "test");
    kj_free(json);
    kj_free(id);
    assert_int_equal(kj_past_run_load(root, "x", &json, &id, &err), KJ_ENORUN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_lines_go_on_over_files),
        TEST(test_the_oldest_files_go),
        TEST(test_the_newest_file_knows_what_waits),
        TEST(test_many_that_wait_are_listed_in_several_lines),
        TEST(test_where_many_wait_not_each_line_begins_a_file),
        TEST(test_a_second_command_with_the_id_closes_the_first),
        TEST(test_a_clock_that_is_set_back_changes_no_order),
        TEST(test_a_missing_or_damaged_file_is_said),
        TEST(test_a_death_between_two_names),
        TEST(test_the_lock_goes_along),
        TEST(test_killed_at_any_moment),
        TEST(test_a_limit_of_file_sizes_ends_nobody),
        TEST(test_a_full_disk_loses_no_line_that_was_there),
        TEST(test_a_new_file_that_cannot_be_begun_is_said_and_survived),
        TEST(test_a_journal_that_is_deleted_goes_on_anew),
        TEST(test_reading_ends_when_it_is_told_to),
        TEST(test_run_json_of_a_past_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
