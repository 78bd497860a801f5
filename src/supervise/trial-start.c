/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a claimed trial to a running shim: the values go into the templates, the shim gets the
 * trial's folder and its lock, the program the trial's variables.
 */
#include "worker.h"

#include "clock.h"
#include "errors.h"
#include "mem.h"
#include "strbuf.h"
#include "template.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

extern char **environ;

/* Bindings of {trial}, {study} and the parameters; the caller frees the array and *ret_trial. */
static kji_binding *make_bindings(const kji_tune_config *config, int64_t number, char **values,
                                  char **ret_trial, size_t *ret_n)
{
    kji_binding *bindings = calloc(config->n_params + 2, sizeof *bindings);
    char *trial = kji_format("%" PRId64, number);
    if (!bindings || !trial) {
        free(bindings);
        free(trial);
        return NULL;
    }
    size_t n = 0;
    bindings[n++] = (kji_binding){"trial", trial};
    bindings[n++] = (kji_binding){"study", config->study_name};
    for (size_t k = 0; k < config->n_params; k++)
        bindings[n++] = (kji_binding){config->params[k].name, values[k]};
    *ret_trial = trial;
    *ret_n = n;
    return bindings;
}

static void free_argv(char **argv)
{
    for (size_t k = 0; argv && argv[k]; k++)
        free(argv[k]);
    free(argv);
}

/* The command of this trial. */
static char **expand_command(const kji_tune_config *config, const kji_binding *bindings,
                             size_t n_bindings, kj_error *err)
{
    char **argv = calloc(config->n_command + 1, sizeof *argv);
    if (!argv) {
        kji_fail_memory(err);
        return NULL;
    }
    for (size_t k = 0; k < config->n_command; k++)
        if (kji_template_expand(config->command[k], bindings, n_bindings, &argv[k], err) < 0) {
            free_argv(argv);
            return NULL;
        }
    return argv;
}

static char *params_text(const kji_tune_config *config, char **values)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    for (size_t k = 0; k < config->n_params; k++)
        kji_strbuf_printf(&text, "%s%s=%s", k ? " " : "", config->params[k].name, values[k]);
    return kji_strbuf_take(&text);
}

/* STUDY-NUMBER-xxxxxx: valid as a run's id, and not that of the same number in another folder. */
static void make_run_id(const kji_tune_config *config, int64_t number, char run_id[65])
{
    KJI_CLEANUP(kji_freep) char *full = realpath(config->trials_dir, NULL);
    const char *where = full ? full : config->trials_dir;
    size_t hash = kji_hash(where, strlen(where));
    int used = snprintf(run_id, 65, "%.32s-%" PRId64 "-%06zx", config->study_name, number,
                        hash & 0xffffff);
    for (int k = 0; k < used && k < 64; k++)
        if (!isalnum((unsigned char)run_id[k]) && !memchr("._-", run_id[k], 3))
            run_id[k] = '_';
    if (run_id[0] == '.' || run_id[0] == '-')
        run_id[0] = '_';
}

static bool is_variable(const char *entry, const char *name)
{
    size_t size = strlen(name);
    return strncmp(entry, name, size) == 0 && entry[size] == '=';
}

static const char *const own_variables[] = {"KAJITORI_STUDY", "KAJITORI_TRIAL", "KAJITORI_RUN_ID",
                                            "PYTHONUNBUFFERED"};

static bool is_own_variable(const char *entry)
{
    for (size_t k = 0; k < sizeof own_variables / sizeof *own_variables; k++)
        if (is_variable(entry, own_variables[k]))
            return true;
    return false;
}

/* Our environment with the trial's variables; free the first `*ret_n_own` texts and the array. */
static char **make_environment(const kji_trial_run *run, size_t *ret_n_own)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 5, sizeof *env);
    if (!env)
        return NULL;
    size_t used = 0;
    env[used++] = kji_format("KAJITORI_STUDY=%s", run->worker->config->study_name);
    env[used++] = kji_format("KAJITORI_TRIAL=%" PRId64, run->number);
    env[used++] = kji_format("KAJITORI_RUN_ID=%s", run->record.run_id);
    env[used++] = strdup("PYTHONUNBUFFERED=1");
    *ret_n_own = used;
    for (size_t k = 0; k < n; k++)
        if (!is_own_variable(environ[k]))
            env[used++] = environ[k];
    return env;
}

static void on_shim_exit(uv_process_t *process, int64_t status, int term_signal)
{
    kji_trial_run *run = process->data;
    run->shim_pid = 0;
    run->shim_status = term_signal ? 128 + term_signal : status;
    kji_trial_run_event(run, KJI_EVENT_ENDED);
}

/* kajitori-shim DIR LOCK-FD PROGRAM ARGUMENT…; free the array only. */
static char **make_shim_argv(const kji_tune_config *config, char *dir, char **argv)
{
    char **full = calloc(config->n_command + 4, sizeof *full);
    if (full) {
        full[0] = config->shim;
        full[1] = dir;
        full[2] = (char *)"3";
        memcpy(full + 3, argv, config->n_command * sizeof *full);
    }
    return full;
}

static int spawn_shim(kji_trial_run *run, char **argv, char **env, int lock_fd, kj_error *err)
{
    uv_stdio_container_t stdio[4] = {{.flags = UV_IGNORE},
                                     {.flags = UV_IGNORE},
                                     {.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = lock_fd}};
    uv_process_options_t options = {.exit_cb = on_shim_exit,
                                    .file = argv[0],
                                    .args = argv,
                                    .env = env,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio_count = 4,
                                    .stdio = stdio};
    run->process.data = run;
    run->has_process = true; /* also a failed spawn leaves a handle to close */
    run->n_open++;
    int r = uv_spawn(&run->worker->loop, &run->process, &options);
    return r < 0 ? kji_fail_native(err, KJ_EIO, "uv", r, "cannot start %s: %s", argv[0],
                                   uv_strerror(r))
                 : 0;
}

static int spawn(kji_trial_run *run, char **argv, int lock_fd, kj_error *err)
{
    const kji_tune_config *config = run->worker->config;
    KJI_CLEANUP(kji_freep)
    char *dir = kji_format("%s/%" PRId64, config->trials_dir, run->number);
    size_t n_own = 0;
    KJI_CLEANUP(kji_freep) char **env = make_environment(run, &n_own);
    KJI_CLEANUP(kji_freep) char **full = make_shim_argv(config, dir, argv);
    int r = dir && env && full ? spawn_shim(run, full, env, lock_fd, err) : kji_fail_memory(err);
    for (size_t k = 0; env && k < n_own; k++)
        free(env[k]);
    return r;
}

/* What may fail for one trial: its metric, its files, its process. */
static int start_program(kji_trial_run *run, char **argv, int lock_fd, kj_error *err)
{
    make_run_id(run->worker->config, run->number, run->record.run_id);
    int r = kji_trial_metric_open(run, true, err);
    if (r < 0)
        return r;
    run->record.start_time = kji_wall_time();
    r = kji_trial_dir_write_record(run->dir_fd, &run->record, run->number,
                                   run->worker->config->study_name, run->params_json, run->metric,
                                   err);
    if (r >= 0)
        r = spawn(run, argv, lock_fd, err);
    if (r < 0) {
        run->no_room = true;
        return kji_fail_prefix(err, r, "%s/%" PRId64, run->worker->config->trials_dir, run->number);
    }
    run->shim_pid = run->process.pid;
    run->stage = KJI_STAGE_RUNNING;
    return kji_trial_metric_follow(run, err);
}

static int start_expanded(kji_trial_run *run, kji_db_job *job, kj_error *err)
{
    const kji_tune_config *config = run->worker->config;
    KJI_CLEANUP(kji_freep) char *trial = NULL;
    size_t n_bindings = 0;
    KJI_CLEANUP(kji_freep)
    kji_binding *bindings = make_bindings(config, run->number, job->values, &trial, &n_bindings);
    KJI_CLEANUP(kji_freep) char *text = params_text(config, job->values);
    if (!bindings || !text)
        return kji_fail_memory(err);
    int r = kji_template_expand(config->metric, bindings, n_bindings, &run->metric, err);
    if (r < 0)
        return r;
    char **argv = expand_command(config, bindings, n_bindings, err);
    if (!argv)
        return KJ_EMEM;
    kj_error why = KJ_ERROR_INIT;
    if (start_program(run, argv, job->lock_fd, &why) < 0) {
        run->start_error = strdup(why.message);
        if (run->no_room)
            kji_worker_start_no_more(run->worker, &why);
        if (run->stage == KJI_STAGE_STARTING)
            kji_trial_run_event(run, KJI_EVENT_ENDED);
        else
            kji_trial_run_event(run, KJI_EVENT_KILL);
    } else {
        kji_worker_emit(run->worker, KJ_TUNE_TRIAL_STARTED, run->number, text);
    }
    free_argv(argv);
    return 0;
}

int kji_trial_run_start(kji_worker *worker, kji_db_job *job, kj_error *err)
{
    kji_trial_run *run = kji_trial_run_new(worker, job->number, err);
    if (!run)
        return KJ_EMEM;
    run->stage = KJI_STAGE_STARTING;
    run->trial = kji_take(&job->trial);
    run->params_json = kji_take(&job->params_json);
    run->dir_fd = job->dir_fd;
    job->dir_fd = -1;
    if (worker->level >= 2) { /* claimed just when we were told to end */
        run->interrupted = true;
        kji_trial_run_event(run, KJI_EVENT_ENDED);
        return 0;
    }
    return start_expanded(run, job, err);
}
