/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank a launcher's environment makes of this process, and what a run does about it. */
#include "json.h"
#include "mem.h"
#include "run-fixture.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "MV2_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMIX_RANK",
                                        "PMIX_SIZE",
                                        "HOROVOD_RANK",
                                        "HOROVOD_SIZE",
                                        "KERAS_DISTRIBUTION_PROCESS_ID",
                                        "KERAS_DISTRIBUTION_NUM_PROCESSES",
                                        "JAX_PROCESS_ID",
                                        "JAX_NUM_PROCESSES",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_PTY_PORT",
                                        "SLURM_TASK_PID",
                                        "TF_CONFIG",
                                        "KAJITORI_RANK_ALONE"};

static char info[1000], warnings[2000];

static void keep_log(void *userdata, int level, const char *message)
{
    (void)userdata;
    char *to = level == KJ_LOG_INFO ? info : warnings;
    size_t room = level == KJ_LOG_INFO ? sizeof info : sizeof warnings, used = strlen(to);
    snprintf(to + used, room - used, "%s\n", message);
}

static void clear_environment(void)
{
    for (size_t k = 0; k < sizeof variables / sizeof *variables; k++)
        unsetenv(variables[k]);
}

static int set_up(void **state)
{
    clear_environment();
    *info = *warnings = 0;
    int r = fix_set_up(state);
    kj_log_set(keep_log, NULL);
    return r;
}

static int tear_down(void **state)
{
    clear_environment();
    return fix_tear_down(state);
}

/* "NAME=VALUE NAME=VALUE": the environment that a launcher makes. */
static void launch_by(const char *environment)
{
    char text[400];
    clear_environment();
    snprintf(text, sizeof text, "%s", environment);
    for (char *save, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
}

static void expect_rank(const char *environment, int64_t rank, int64_t world_size,
                        const char *launcher)
{
    kji_ranks ranks;
    kj_error note = KJ_ERROR_INIT;
    launch_by(environment);
    kji_ranks_find(&ranks, &note);
    if (ranks.rank != rank || ranks.world_size != world_size ||
        strcmp(ranks.launcher, launcher) != 0 || *note.message)
        fail_msg("%s: rank %lld of %lld by \"%s\", note \"%s\"", environment, (long long)ranks.rank,
                 (long long)ranks.world_size, ranks.launcher, note.message);
}

static void test_each_launcher(void **state)
{
    (void)state;
    expect_rank("", 0, 1, "");
    expect_rank("RANK=2 WORLD_SIZE=4", 2, 4, "RANK and WORLD_SIZE");
    expect_rank("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, "Open MPI");
    expect_rank("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", 1, 2, "MVAPICH");
    expect_rank("PMI_RANK=7 PMI_SIZE=8", 7, 8, "PMI");
    expect_rank("PMIX_RANK=0 PMIX_SIZE=3", 0, 3, "PMIx");
    expect_rank("HOROVOD_RANK=1 HOROVOD_SIZE=2", 1, 2, "Horovod");
    expect_rank("KERAS_DISTRIBUTION_PROCESS_ID=1 KERAS_DISTRIBUTION_NUM_PROCESSES=2", 1, 2,
                "Keras distribution");
    expect_rank("JAX_PROCESS_ID=3 JAX_NUM_PROCESSES=4", 3, 4, "JAX");
    expect_rank("SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_STEP_ID=0", 5, 6, "Slurm");
}

static void test_the_nearest_launcher_counts(void **state)
{
    (void)state;
    expect_rank("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=3 RANK=5 WORLD_SIZE=16", 5, 16,
                "RANK and WORLD_SIZE");
    expect_rank("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=3 RANK=0 WORLD_SIZE=1", 0, 1,
                "RANK and WORLD_SIZE");
}

static void test_slurm_counts_inside_a_step_only(void **state)
{
    (void)state;
    expect_rank("SLURM_PROCID=0 SLURM_NTASKS=8", 0, 1, "");
    expect_rank("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=4294967290", 0, 1, "");
    expect_rank("SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0", 1, 2,
                "Slurm");
}

/* srun -n8 --pty bash: one shell, in which a training of one process is started. */
static void test_slurm_shell_of_several_tasks(void **state)
{
    (void)state;
    char task[300];
    const char step[] = "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_ID=0";
    snprintf(task, sizeof task, "%s SLURM_PTY_PORT=34889 SLURM_TASK_PID=1", step);
    expect_rank(task, 0, 1, "");
    snprintf(task, sizeof task, "%s SLURM_PTY_PORT=34889 SLURM_TASK_PID=1 RANK=1 WORLD_SIZE=2",
             step);
    expect_rank(task, 1, 2, "RANK and WORLD_SIZE");
    snprintf(task, sizeof task, "%s SLURM_PTY_PORT=34889 SLURM_TASK_PID=%ld", step,
             (long)getpgrp());
    expect_rank(task, 0, 8, "Slurm");
    snprintf(task, sizeof task, "%s SLURM_TASK_PID=1", step); /* a script of the step starts it */
    expect_rank(task, 0, 8, "Slurm");
}

static void test_half_a_pair_is_no_launcher(void **state)
{
    (void)state;
    expect_rank("RANK=3", 0, 1, "");
    expect_rank("WORLD_SIZE=4", 0, 1, "");
    expect_rank("RANK= WORLD_SIZE=4", 0, 1, "");
}

static void expect_note(const char *environment, const char *part)
{
    kji_ranks ranks;
    kj_error note = KJ_ERROR_INIT;
    launch_by(environment);
    kji_ranks_find(&ranks, &note);
    assert_int_equal(ranks.rank, 0);
    assert_int_equal(ranks.world_size, 1);
    if (!strstr(note.message, part))
        fail_msg("%s: \"%s\" has no \"%s\"", environment, note.message, part);
}

static void test_malformed_ones_are_one_note(void **state)
{
    (void)state;
    expect_note("RANK=4 WORLD_SIZE=4", "RANK=\"4\" with WORLD_SIZE=\"4\"");
    expect_note("RANK=-1 WORLD_SIZE=4", "RANK=\"-1\"");
    expect_note("RANK=A WORLD_SIZE=4", "RANK=\"A\"");
    expect_note("RANK=0 WORLD_SIZE=0", "WORLD_SIZE=\"0\"");
    expect_note("PMI_RANK=1 PMI_SIZE=99999999999999999999", "PMI_SIZE");
    expect_note("TF_CONFIG={", "TF_CONFIG is not used");
    launch_by("RANK=x WORLD_SIZE=y PMI_RANK=1 PMI_SIZE=2");
    kji_ranks ranks;
    kj_error note = KJ_ERROR_INIT;
    kji_ranks_find(&ranks, &note);
    assert_int_equal(ranks.rank, 1);
    assert_non_null(strstr(note.message, "RANK=\"x\""));
}

static int parse(const char *text, kji_ranks *ranks, kj_error *err)
{
    *ranks = (kji_ranks)KJI_RANKS_INIT;
    return kji_ranks_parse_tf_config(text, strlen(text), ranks, err);
}

static void expect_task(const char *cluster, const char *task, int64_t rank, int64_t world_size)
{
    kji_ranks ranks;
    kj_error err = KJ_ERROR_INIT;
    KJI_CLEANUP(kji_freep) char *text = kji_format("{\"cluster\":%s,\"task\":%s}", cluster, task);
    if (parse(text, &ranks, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    if (ranks.rank != rank || ranks.world_size != world_size)
        fail_msg("%s: rank %lld of %lld", text, (long long)ranks.rank, (long long)ranks.world_size);
}

static void test_tasks_of_a_tf_config(void **state)
{
    (void)state;
    const char *workers = "{\"worker\":[\"a:1\",\"b:1\",\"c:1\"]}";
    expect_task(workers, "{\"type\":\"worker\",\"index\":0}", 0, 3);
    expect_task(workers, "{\"type\":\"worker\",\"index\":\"2\"}", 2, 3);
    const char *cluster =
        "{\"ps\":[\"p:1\"],\"worker\":[\"a:1\",\"b:1\"],\"chief\":[\"c:1\"],\"other\":[]}";
    expect_task(cluster, "{\"type\":\"chief\",\"index\":0}", 0, 4);
    expect_task(cluster, "{\"type\":\"worker\",\"index\":1}", 2, 4);
    expect_task(cluster, "{\"type\":\"ps\",\"index\":0}", 3, 4);
    expect_task(cluster, "{\"type\":\"evaluator\",\"index\":0}", 4, 5);
    expect_task("{\"worker\":{\"1\":\"b:1\"}}", "{\"type\":\"worker\",\"index\":1}", 1, 2);
    expect_task("{\"chief\":[\"c:1\"]}", "{\"type\":\"chief\",\"index\":0}", 0, 1);
    expect_task("{}", "{}", 0, 1);
    expect_task("{\"worker\":[\"a:1\"]}", "null", 0, 1);
}

static void expect_refused(const char *text, const char *part)
{
    kji_ranks ranks;
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(parse(text, &ranks, &err), KJ_EDATA);
    assert_int_equal(ranks.world_size, 1);
    if (!strstr(err.message, part))
        fail_msg("%s: %s", text, err.message);
}

static void test_malformed_tf_configs(void **state)
{
    (void)state;
    expect_refused("[]", "no JSON object");
    expect_refused("null", "no JSON object");
    expect_refused("{\"cluster\":[]}", "\"cluster\"");
    expect_refused("{\"cluster\":{\"worker\":3}}", "\"worker\"");
    expect_refused("{\"cluster\":{\"worker\":{\"-1\":\"a\"}}}", "\"worker\"");
    expect_refused("{\"cluster\":{\"worker\":{\"16777215\":\"a\"},\"ps\":[1,2]}}", "\"ps\"");
    expect_refused("{\"cluster\":{\"worker\":[1,2]}}", "no \"task\"");
    expect_refused("{\"cluster\":{\"worker\":[1,2]},\"task\":{\"type\":\"worker\",\"index\":2}}",
                   "no task \"worker\" 2");
    expect_refused("{\"cluster\":{\"worker\":[1,2]},\"task\":{\"type\":\"worker\",\"index\":-1}}",
                   "no \"task\"");
    expect_refused("{\"cluster\":{\"worker\":[1,2]},\"task\":{\"type\":\"chief\",\"index\":0}}",
                   "no task \"chief\" 0");
}

static const char *const for_all[] = {
    "stop",  "stop at=step:1000", "stop dry_run=yes", "set lr=0.5", "abort",     "prune",
    "pause", "pause level=leave", "extend epochs=1",  "evaluate",   "checkpoint"};

static void test_rank_0_refuses_what_all_would_have_to_do(void **state)
{
    (void)state;
    launch_by("RANK=0 WORLD_SIZE=4");
    fix_open(NULL, 0);
    kj_run_declare(fix.run, KJ_CAN_ABORT | KJ_CAN_LEAVE);
    int fd = fix_connect();
    for (size_t k = 0; k < sizeof for_all / sizeof *for_all; k++)
        fix_expect_rejected(fd, for_all[k], "this is rank 0 of 4 (by RANK and WORLD_SIZE)");
    fix_expect_rejected(fd, "stop", "KAJITORI_RANK_ALONE=1");
    struct json_object *error = fix_command(fd, "set nonsense=1");
    assert_null(strstr(fix_text(error, "message"), "may still register"));
    json_object_put(error);
    for (int64_t step = 0; step < 5; step++)
        assert_int_equal(kj_run_begin_step(fix.run, step), 0);
    assert_false(kj_run_should_stop(fix.run));
    assert_true(fix.lr == 0.1);
    close(fd);
    assert_non_null(strstr(info, "rank 0 of 4"));
    assert_string_equal(warnings, "");
}

static void test_rank_0_answers_the_rest(void **state)
{
    (void)state;
    launch_by("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2");
    fix_open(NULL, 0);
    int fd = fix_connect();
    fix_expect_state(fd, "ping", "done");
    fix_expect_state(fd, "params", "done");
    fix_expect_state(fd, "get lr", "done");
    fix_expect_state(fd, "note hello", "done");
    fix_expect_state(fd, "tick n=2", "accepted");
    kj_run_poll(fix.run);
    assert_int_equal(fix.tick_sum, 2);
    struct json_object *record = fix_command(fd, "status"), *status, *verb, *list;
    assert_true(json_object_object_get_ex(record, "result", &status));
    assert_int_equal(fix_int(status, "rank"), 0);
    assert_int_equal(fix_int(status, "world_size"), 2);
    json_object_put(record);
    record = fix_command(fd, "help stop");
    assert_true(json_object_object_get_ex(record, "result", &status));
    assert_true(json_object_object_get_ex(status, "verbs", &list));
    verb = json_object_array_get_idx(list, 0);
    assert_non_null(strstr(fix_text(verb, "why_not"), "rank 0 of 2 (by Open MPI)"));
    json_object_put(record);
    close(fd);
}

static void test_a_stop_by_the_fifo_is_rejected_in_the_journal(void **state)
{
    (void)state;
    launch_by("RANK=0 WORLD_SIZE=2");
    fix_open(fix.fifo, 0);
    fix_write(fix.fifo, "stop\n");
    fix_wait_seq(1);
    assert_int_equal(kj_run_begin_step(fix.run, 0), 0);
    struct json_object *journal = fix_journal(), *started, *run;
    assert_string_equal(fix_text(fix_last_record(journal, 1), "state"), "rejected");
    started = fix_find_event(journal, "run_started");
    assert_true(json_object_object_get_ex(started, "run", &run));
    assert_int_equal(fix_int(run, "rank"), 0);
    assert_int_equal(fix_int(run, "world_size"), 2);
    json_object_put(journal);
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    for (struct dirent *item; folder && (item = readdir(folder));)
        n += *item->d_name != '.';
    if (folder)
        closedir(folder);
    return n;
}

static void test_the_other_ranks_are_quiet(void **state)
{
    (void)state;
    launch_by("RANK=1 WORLD_SIZE=2");
    fix_open(fix.fifo, KJ_RUN_STRICT);
    assert_int_equal(kj_run_rank(fix.run), 1);
    assert_int_equal(kj_run_world_size(fix.run), 2);
    assert_int_equal(kj_run_rank_alone(fix.run), 0);
    assert_string_equal(kj_run_dir(fix.run), "");
    assert_int_equal(count_entries(fix.root), 0);
    assert_int_equal(kj_run_begin_step(fix.run, 0), 0);
    assert_int_equal(kj_run_report(fix.run, "loss", 0, 1, NULL), 0);
    assert_int_equal(kj_run_end_epoch(fix.run, 0), 0);
    fix_close();
    assert_string_equal(info, "kajitori: rank 1 of 2 has no doors: ask rank 0\n");
    assert_string_equal(warnings, "");
}

static void expect_a_stop_works(void)
{
    int fd = fix_connect();
    fix_expect_state(fd, "stop", "accepted");
    assert_int_equal(kj_run_poll(fix.run), KJ_RUN_STOP);
    close(fd);
    fix_close();
    assert_string_equal(info, "");
}

static void test_each_rank_alone(void **state)
{
    (void)state;
    launch_by("RANK=1 WORLD_SIZE=2");
    fix_open(NULL, KJ_RUN_RANK_ALONE);
    assert_int_equal(kj_run_rank(fix.run), 1);
    assert_int_equal(kj_run_rank_alone(fix.run), 1);
    expect_a_stop_works();
    launch_by("RANK=1 WORLD_SIZE=2 KAJITORI_RANK_ALONE=1");
    fix_open(NULL, 0);
    expect_a_stop_works();
    launch_by("RANK=1 WORLD_SIZE=2 KAJITORI_RANK_ALONE=0");
    fix_open(NULL, 0);
    assert_string_equal(kj_run_dir(fix.run), "");
}

static void test_a_world_of_one_is_as_without(void **state)
{
    (void)state;
    launch_by("RANK=0 WORLD_SIZE=1");
    fix_open(NULL, 0);
    expect_a_stop_works();
}

static int open_as(int64_t rank, int64_t world_size, kj_error *err)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    options.run_id = "test";
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.rank = rank;
    options.world_size = world_size;
    return kj_run_open(&options, &fix.run, err);
}

static void test_the_program_s_own_word_counts(void **state)
{
    kj_error err = KJ_ERROR_INIT;
    (void)state;
    launch_by("RANK=0 WORLD_SIZE=1");
    assert_int_equal(open_as(2, 3, &err), 0);
    assert_int_equal(kj_run_rank(fix.run), 2);
    assert_int_equal(kj_run_world_size(fix.run), 3);
    assert_int_equal(kj_run_rank_alone(fix.run), 0);
    kj_run_close(fix.run);
    fix.run = NULL;
    assert_int_equal(open_as(3, 3, &err), KJ_EARG);
    assert_string_equal(err.message, "rank 3 of 3: expected 0 <= rank < world_size <= 16777216");
    assert_int_equal(open_as(1, 0, &err), KJ_EARG);
    assert_int_equal(open_as(0, -1, &err), KJ_EARG);
}

static void test_a_malformed_launcher_is_one_warning(void **state)
{
    (void)state;
    launch_by("RANK=9 WORLD_SIZE=4");
    fix_open(NULL, 0);
    assert_non_null(strstr(warnings, "RANK=\"9\" with WORLD_SIZE=\"4\" is no rank"));
    expect_a_stop_works();
}

static int n_handled;

static void handle(int number)
{
    (void)number;
    n_handled++;
}

static void test_signals_of_refused_verbs_stay_as_they_were(void **state)
{
    (void)state;
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    options.run_id = "test";
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    options.signals = "TERM,USR1=note hello,USR2=pause";
    launch_by("RANK=0 WORLD_SIZE=2");
    n_handled = 0;
    signal(SIGTERM, handle);
    assert_int_equal(kj_run_open(&options, &fix.run, &err), 0);
    raise(SIGTERM);
    assert_int_equal(n_handled, 1);
    raise(SIGUSR1);
    fix_wait_seq(1);
    assert_int_equal(kj_run_poll(fix.run), 0);
    signal(SIGTERM, SIG_DFL);
    assert_non_null(strstr(warnings, "SIGTERM stays as it was: this is rank 0 of 2"));
    assert_null(strstr(strchr(warnings, '\n') + 1, "stays"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_launcher),
        TEST(test_the_nearest_launcher_counts),
        TEST(test_slurm_counts_inside_a_step_only),
        TEST(test_slurm_shell_of_several_tasks),
        TEST(test_half_a_pair_is_no_launcher),
        TEST(test_malformed_ones_are_one_note),
        TEST(test_tasks_of_a_tf_config),
        TEST(test_malformed_tf_configs),
        TEST(test_rank_0_refuses_what_all_would_have_to_do),
        TEST(test_rank_0_answers_the_rest),
        TEST(test_a_stop_by_the_fifo_is_rejected_in_the_journal),
        TEST(test_the_other_ranks_are_quiet),
        TEST(test_each_rank_alone),
        TEST(test_a_world_of_one_is_as_without),
        TEST(test_the_program_s_own_word_counts),
        TEST(test_a_malformed_launcher_is_one_warning),
        TEST(test_signals_of_refused_verbs_stay_as_they_were),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
