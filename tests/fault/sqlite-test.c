/* SPDX-License-Identifier: Apache-2.0 */
/* What only a file can do: be locked, foreign, damaged, and shared by processes that die. */
#include "rng.h"
#include "storage.h"

#include "kji-test.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static kj_error err = KJ_ERROR_INIT;
static char dir[64], path[96], url[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/kji-sqlite-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a.db", dir);
    snprintf(url, sizeof url, "sqlite:///%s", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    chmod(dir, 0700);
    kji_test_remove_tree(dir);
    return 0;
}

static kj_storage *open_storage(void)
{
    kj_storage *storage = NULL;
    if (kj_storage_open(url, &storage, &err) < 0)
        fail_msg("%s", err.message);
    return storage;
}

static int try_open(const char *where)
{
    kj_storage *storage = NULL;
    int r = kj_storage_open(where, &storage, &err);
    kj_storage_close(storage);
    return r;
}

static int take_text(void *userdata, int n, char **columns, char **names)
{
    (void)n, (void)names;
    snprintf(userdata, 200, "%s", columns[0] ? columns[0] : "NULL");
    return 0;
}

/* One statement of somebody else's; the first column of its last row, or "". */
static const char *sql(const char *statement)
{
    static char answer[200];
    sqlite3 *db;
    answer[0] = 0;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_exec(db, statement, take_text, answer, NULL) != SQLITE_OK)
        fail_msg("%s: %s", statement, sqlite3_errmsg(db));
    sqlite3_close(db);
    return answer;
}

static void test_a_new_file_is_optunas(void **state)
{
    (void)state;
    kj_storage_close(open_storage());
    assert_string_equal(sql("SELECT version_num FROM alembic_version"), "v3.2.0.a");
    assert_string_equal(sql("SELECT COUNT(*) FROM alembic_version"), "1");
    assert_string_equal(sql("SELECT version_info_id || ' ' || schema_version || ' ' || "
                            "library_version FROM version_info"),
                        "1 12 kajitori " KJI_VERSION);
    assert_string_equal(sql("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'"), "15");
    assert_string_equal(sql("SELECT COUNT(*) FROM sqlite_master WHERE type = 'index' AND name IN "
                            "('ix_studies_study_name', 'ix_trials_study_id')"),
                        "2");
    assert_string_equal(sql("PRAGMA journal_mode"), "wal");
    kj_storage_close(open_storage());
    assert_string_equal(sql("SELECT COUNT(*) FROM version_info"), "1");
}

static void test_an_existing_file_keeps_its_mode(void **state)
{
    (void)state;
    sql("CREATE TABLE something (x)");
    kj_storage_close(open_storage());
    assert_string_equal(sql("PRAGMA journal_mode"), "delete");
    assert_string_equal(sql("SELECT version_num FROM alembic_version"), "v3.2.0.a");
}

static void test_what_optuna_would_stamp(void **state)
{
    (void)state;
    kj_storage_close(open_storage());
    sql("DELETE FROM alembic_version");
    sql("DROP TABLE trial_heartbeats");
    kj_storage_close(open_storage());
    assert_string_equal(sql("SELECT version_num FROM alembic_version"), "v3.2.0.a");
    assert_string_equal(sql("SELECT COUNT(*) FROM trial_heartbeats"), "0");
    sql("DELETE FROM version_info");
    kj_storage_close(open_storage());
    assert_string_equal(sql("SELECT schema_version FROM version_info"), "12");
}

static void test_other_revisions_are_refused(void **state)
{
    (void)state;
    kj_storage_close(open_storage());
    sql("UPDATE alembic_version SET version_num = 'v2.6.0.a'");
    assert_int_equal(try_open(url), KJ_EREVISION);
    assert_non_null(strstr(err.message, "has schema revision v2.6.0.a, older than v3.2.0.a: "
                                        "`optuna storage upgrade --storage sqlite:///"));
    sql("UPDATE alembic_version SET version_num = 'v9.9.9.z'");
    assert_int_equal(try_open(url), KJ_EREVISION);
    assert_non_null(strstr(err.message, "schema revision v9.9.9.z, which this version of kajitori "
                                        "does not know (it knows v3.2.0.a)"));
    sql("INSERT INTO alembic_version VALUES ('v3.2.0.a')");
    assert_int_equal(try_open(url), KJ_EREVISION);
    assert_non_null(strstr(err.message, "alembic_version has 2 rows, not one"));
    sql("DROP TABLE alembic_version");
    sql("UPDATE version_info SET schema_version = 11");
    assert_int_equal(try_open(url), KJ_EREVISION);
    assert_non_null(strstr(err.message, "v0.9.0.a"));
    sql("DROP TABLE version_info"); /* and nothing was written meanwhile */
    assert_int_equal(try_open(url), KJ_EREVISION);
    assert_non_null(strstr(err.message, "has a table \"studies\" that is not Optuna's"));
}

static void test_what_is_no_database(void **state)
{
    (void)state;
    char other[256];
    FILE *file = fopen(path, "w");
    for (int k = 0; k < 200; k++)
        fputs("This is a text, not a database.\n", file);
    fclose(file);
    assert_int_equal(try_open(url), KJ_EDATABASE);
    assert_non_null(strstr(err.message, "a.db is not an SQLite database"));
    snprintf(other, sizeof other, "sqlite:///%s/missing/a.db", dir);
    assert_int_equal(try_open(other), KJ_EIO);
    assert_non_null(strstr(err.message, "does its folder exist"));
    snprintf(other, sizeof other, "sqlite:///%s", dir);
    assert_int_equal(try_open(other), KJ_EIO);
}

/* In a child without root's rights, for whom nothing would be read-only. */
static void test_a_read_only_file(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    int status;
    kj_storage_close(open_storage());
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(dir, 0555), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && seteuid(NOBODY) < 0)
            _exit(2);
        bool right = try_open(url) == KJ_EPERM && strstr(err.message, "a.db is read-only");
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_locked_file(void **state)
{
    (void)state;
    sqlite3 *db;
    char hasty[160];
    kj_storage_close(open_storage());
    snprintf(hasty, sizeof hasty, "%s?timeout=0.05", url);
    kj_storage *storage = NULL;
    assert_int_equal(kj_storage_open(hasty, &storage, &err), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = "s";
    options.flags = KJ_STUDY_CREATE;
    assert_int_equal(kj_study_open(storage, &options, &study, &err), KJ_EBUSY);
    assert_non_null(strstr(err.message, "a.db is locked by another process, for more than 50 ms"));
    sqlite3_close(db);
    assert_int_equal(kj_study_open(storage, &options, &study, &err), 0);
    kj_study_close(study);
    kj_storage_close(storage);
}

static void test_bad_rows_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *damage, *message;
    } cases[] = {
        {"UPDATE trials SET state = 'running'", "table trials, trial_id 1: the state is not one"},
        {"UPDATE trials SET number = NULL", "table trials, trial_id 1: there is no number"},
        {"UPDATE trials SET datetime_start = 1700000000", "a time is not YYYY-MM-DD"},
        {"UPDATE trial_values SET value_type = 'NAN'", "table trial_values, trial_id 1"},
        {"UPDATE trial_values SET value = NULL", "value and value_type do not fit"},
        {"UPDATE trial_intermediate_values SET intermediate_value_type = 'INF_POS'",
         "table trial_intermediate_values, trial_id 1"},
        {"UPDATE trial_params SET distribution_json = 'x'", "table trial_params, trial_id 1"},
        {"UPDATE trial_params SET distribution_json = NULL", "table trial_params, trial_id 1"},
        {"UPDATE trial_params SET param_value = 'high'", "param_value is not a number"},
        {"UPDATE trial_user_attributes SET value_json = NULL", "key or value_json is missing"},
        {"UPDATE kajitori_decisions SET peers = '{'", "table kajitori_decisions, trial_id 1"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kj_storage *storage = open_storage();
        kj_study *study = NULL;
        kj_study_options options = KJ_STUDY_OPTIONS_INIT;
        options.name = "s";
        options.flags = KJ_STUDY_CREATE;
        options.pruner_options = "n_startup_trials=0";
        assert_int_equal(kj_study_open(storage, &options, &study, &err), 0);
        sql("INSERT INTO trials (trial_id, number, study_id, state) VALUES (1, 0, 1, 'COMPLETE');"
            "INSERT INTO trial_values VALUES (1, 1, 0, 1.5, 'FINITE');"
            "INSERT INTO trial_intermediate_values VALUES (1, 1, 0, 1, 'FINITE');"
            "INSERT INTO trial_params VALUES (1, 1, 'x', 1, '{\"type\": \"int\", \"low\": 0, "
            "\"high\": 2}');"
            "INSERT INTO trial_user_attributes VALUES (1, 1, 'k', '1');"
            "INSERT INTO kajitori_decisions VALUES (1, 1, 0, 'median', 1, 1, NULL, '[]', 'r', "
            "'2026-01-01 00:00:00')");
        sql(cases[k].damage);
        kj_trial_list *list = NULL;
        assert_int_equal(kj_study_list_trials(study, &list, &err), KJ_EDATA);
        if (!strstr(err.message, cases[k].message))
            fail_msg("%s: %s", cases[k].damage, err.message);
        kj_study_close(study);
        kj_storage_close(storage);
        unlink(path);
        char side[128];
        snprintf(side, sizeof side, "%s-wal", path);
        unlink(side);
        snprintf(side, sizeof side, "%s-shm", path);
        unlink(side);
    }
}

static void test_what_a_trigger_refuses(void **state)
{
    (void)state;
    kj_storage *storage = open_storage();
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.flags = KJ_STUDY_CREATE;
    sql("CREATE TRIGGER no BEFORE INSERT ON studies BEGIN SELECT RAISE(ABORT, 'not today'); END");
    assert_int_equal(kj_study_open(storage, &options, &study, &err), KJ_EDATABASE);
    assert_non_null(strstr(err.message, "a.db: not today"));
    kj_storage_close(storage);
}

static int n_flushes;
static int (*flush)(sqlite3_file *, int);
static sqlite3_io_methods counting_methods[2]; /* of the database, of its log */
static sqlite3_vfs *system_vfs;

static int count_flush(sqlite3_file *file, int flags)
{
    n_flushes++;
    return flush(file, flags);
}

static int open_counting(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                         int *ret_flags)
{
    int r = system_vfs->xOpen(vfs, name, file, flags, ret_flags);
    if (r != SQLITE_OK || !file->pMethods)
        return r;
    sqlite3_io_methods *methods = &counting_methods[!(flags & SQLITE_OPEN_MAIN_DB)];
    flush = file->pMethods->xSync;
    *methods = *file->pMethods;
    methods->xSync = count_flush;
    file->pMethods = methods;
    return r;
}

static void test_what_is_told_is_flushed(void **state)
{
    (void)state;
    static const kj_distribution x = {
        .size = sizeof x, .kind = KJ_DISTRIBUTION_INT, .int_low = 0, .int_high = 9};
    system_vfs = sqlite3_vfs_find(NULL);
    sqlite3_vfs counting = *system_vfs;
    counting.zName = "counting";
    counting.xOpen = open_counting;
    assert_int_equal(sqlite3_vfs_register(&counting, 1), SQLITE_OK);
    kj_storage *storage = open_storage();
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.flags = KJ_STUDY_CREATE;
    options.pruner_options = "n_startup_trials=1";
    kj_trial *trial;
    kj_value value;
    double loss = 1;
#define FLUSHES(call) (n_flushes = 0, assert_true((call) >= 0), n_flushes)
    assert_true(FLUSHES(kj_study_open(storage, &options, &study, &err)) > 0);
    assert_true(FLUSHES(kj_study_set_fact(study, "k", "1", &err)) > 0);
    assert_true(FLUSHES(kj_study_enqueue(study, NULL, NULL, NULL, &err)) > 0);
    assert_true(FLUSHES(kj_study_ask(study, &trial, &err)) > 0);
    assert_true(FLUSHES(kj_trial_suggest(trial, "x", &x, &value, &err)) > 0);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(kj_trial_report(trial, step, 1, &err), 0);
        assert_int_equal(FLUSHES(kj_trial_should_prune(trial, NULL, &err)), 0);
    }
    assert_true(FLUSHES(kj_study_tell(study, trial, KJ_TRIAL_COMPLETE, &loss, 1, &err)) > 0);
    kj_trial_free(trial);
    assert_int_equal(kj_study_ask(study, &trial, &err), 0);
    assert_int_equal(kj_trial_report(trial, 0, 2, &err), 0);
    assert_true(FLUSHES(kj_trial_should_prune(trial, NULL, &err)) > 0); /* a cut */
    kj_trial_free(trial);
#undef FLUSHES
    kj_study_close(study);
    kj_storage_close(storage);
    assert_int_equal(sqlite3_vfs_register(system_vfs, 1), SQLITE_OK);
    assert_int_equal(sqlite3_vfs_unregister(&counting), SQLITE_OK);
}

static kj_study *join_study(kj_storage *storage)
{
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = "shared";
    options.flags = KJ_STUDY_CREATE | KJ_STUDY_LOAD;
    if (kj_study_open(storage, &options, &study, &err) < 0)
        _exit(3);
    return study;
}

/* Asks and tells; the number of every trial whose end is stored goes to `fd` afterwards. */
static void work(int fd, int n)
{
    kj_storage *storage = NULL;
    if (kj_storage_open(url, &storage, &err) < 0)
        _exit(2);
    kj_study *study = join_study(storage);
    for (int k = 0; k < n; k++) {
        kj_trial *trial;
        double value = k;
        if (kj_study_ask(study, &trial, &err) < 0)
            _exit(4);
        int64_t number = kj_trial_get_number(trial);
        if (kj_trial_report(trial, 0, k, &err) < 0 || kj_trial_report(trial, 1, k, &err) < 0 ||
            kj_study_tell(study, trial, KJ_TRIAL_COMPLETE, &value, 1, &err) < 0)
            _exit(5);
        kj_trial_free(trial);
        if (write(fd, &number, sizeof number) != sizeof number)
            _exit(6);
    }
    kj_study_close(study);
    kj_storage_close(storage);
    _exit(0);
}

static pid_t start_worker(int fd, int n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        work(fd, n);
    return pid;
}

static void test_processes_share_the_numbers(void **state)
{
    (void)state;
    enum { N_WORKERS = 3, N_EACH = 40 };
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pids[N_WORKERS];
    for (int k = 0; k < N_WORKERS; k++) /* also the creation of the file is shared */
        pids[k] = start_worker(fds[1], N_EACH);
    close(fds[1]);
    char seen[N_WORKERS * N_EACH] = {0};
    int64_t number;
    while (read(fds[0], &number, sizeof number) == sizeof number) {
        assert_true(number >= 0 && number < N_WORKERS * N_EACH && !seen[number]);
        seen[number] = 1;
    }
    close(fds[0]);
    for (int k = 0; k < N_WORKERS; k++) {
        int status;
        assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
        assert_int_equal(status, 0);
    }
    for (int k = 0; k < N_WORKERS * N_EACH; k++)
        assert_true(seen[k]);
}

static void test_waiting_trials_are_claimed_once(void **state)
{
    (void)state;
    enum { N_WORKERS = 3, N_EACH = 20 };
    kj_storage *storage = open_storage();
    kj_study *study = join_study(storage);
    for (int k = 0; k < N_WORKERS * N_EACH; k++)
        assert_int_equal(kj_study_enqueue(study, NULL, NULL, NULL, &err), 0);
    kj_study_close(study);
    kj_storage_close(storage); /* nothing may be open over fork */
    test_processes_share_the_numbers(state);
}

/* What a killed worker was told to be stored is there, whole. */
static void check_told(const char *told, size_t n)
{
    kj_storage *storage = open_storage();
    kj_study *study = join_study(storage);
    kj_trial_list *list;
    assert_int_equal(kj_study_list_trials(study, &list, &err), 0);
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        const kj_trial_info *info = kj_trial_list_get(list, k);
        assert_int_equal(info->number, k);
        assert_true(info->state == KJ_TRIAL_COMPLETE || info->state == KJ_TRIAL_RUNNING);
        if (info->state == KJ_TRIAL_COMPLETE)
            assert_true(info->has_value && info->n_reports == 2);
        else /* the end and the reports that go out with it are one */
            assert_true((k >= n || !told[k]) && !info->has_value && info->n_reports == 0);
    }
    for (uint64_t k = kj_trial_list_size(list); k < n; k++)
        assert_false(told[k]);
    kj_trial_list_free(list);
    kj_study_close(study);
    kj_storage_close(storage);
    assert_string_equal(sql("PRAGMA integrity_check"), "ok");
}

/* Each kill falls a random number of trials, and a random moment more, after the start; the seed is
 * fixed. */
static void test_a_killed_writer_loses_nothing(void **state)
{
    (void)state;
    enum { N_KILLS = 60, N_EACH = 1000, MAX_TRIALS = N_KILLS * N_EACH };
    static char told[MAX_TRIALS];
    memset(told, 0, sizeof told);
    kji_rng rng;
    kji_rng_seed(&rng, 7);
    for (int round = 0; round < N_KILLS; round++) {
        int fds[2], status;
        assert_int_equal(pipe(fds), 0);
        pid_t pid = start_worker(fds[1], N_EACH);
        close(fds[1]);
        uint32_t n_before = kji_rng_uint32(&rng) % 40, spin = kji_rng_uint32(&rng) % 200000;
        int64_t number;
        for (uint32_t k = 0; k < n_before; k++)
            if (read(fds[0], &number, sizeof number) == sizeof number)
                told[number] = 1;
        for (volatile uint32_t k = 0; k < spin; k++)
            ;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        while (read(fds[0], &number, sizeof number) == sizeof number)
            told[number] = 1;
        close(fds[0]);
        check_told(told, MAX_TRIALS);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_new_file_is_optunas),
        TEST(an_existing_file_keeps_its_mode),
        TEST(what_optuna_would_stamp),
        TEST(other_revisions_are_refused),
        TEST(what_is_no_database),
        TEST(a_read_only_file),
        TEST(a_locked_file),
        TEST(bad_rows_are_named),
        TEST(what_a_trigger_refuses),
        TEST(what_is_told_is_flushed),
        TEST(processes_share_the_numbers),
        TEST(waiting_trials_are_claimed_once),
        TEST(a_killed_writer_loses_nothing),
    };
#undef TEST
    return cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
}
