/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trial's process, driven by the table in trial-fsm.c: this file turns what happens (the shim
 * ends, a timer fires, a person interrupts) into events, and actions into signals, timers and jobs.
 *
 * The shim is signalled, never the program: only the shim knows whether the program's pid is still
 * its own.
 */
#include "worker.h"

#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"
#include "template.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

enum { WATCH_MS = 100 };

extern char **environ;

/* ---- handles ---- */

static void on_closed(uv_handle_t *handle)
{
    kji_trial_run_closed(handle->data);
}

static void run_free(kji_trial_run *run)
{
    kji_closep(&run->dir_fd);
    kj_trial_free(run->trial);
    free(run->params_json);
    free(run->metric);
    free(run->run_name);
    free(run->points);
    free(run->cut_reason);
    free(run->start_error);
    free(run);
}

void kji_trial_run_closed(kji_trial_run *run)
{
    if (--run->n_open == 0 && run->released)
        run_free(run);
}

static void unlink_run(kji_trial_run *run)
{
    for (kji_trial_run **at = &run->worker->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            run->worker->n_runs--;
            return;
        }
}

void kji_trial_run_release(kji_trial_run *run)
{
    if (run->released)
        return;
    unlink_run(run);
    run->n_open++; /* keeps it until all is asked to close */
    run->released = true;
    kji_trial_metric_close(run);
    uv_close((uv_handle_t *)&run->grace, on_closed);
    uv_close((uv_handle_t *)&run->watch, on_closed);
    if (run->has_process)
        uv_close((uv_handle_t *)&run->process, on_closed);
    kji_trial_run_closed(run);
}

static kji_trial_run *run_new(kji_worker *worker, int64_t number, kj_error *err)
{
    kji_trial_run *run = calloc(1, sizeof *run);
    if (!run) {
        kji_fail_memory(err);
        return NULL;
    }
    run->worker = worker;
    run->number = number;
    run->dir_fd = -1;
    run->deferred = -1;
    run->last_step = -1;
    uv_timer_init(&worker->loop, &run->grace);
    uv_timer_init(&worker->loop, &run->watch);
    run->grace.data = run->watch.data = run;
    run->n_open = 2;
    kji_trial_run **tail = &worker->runs;
    while (*tail)
        tail = &(*tail)->next;
    *tail = run;
    worker->n_runs++;
    return run;
}

/* ---- what is put into the templates ---- */

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

/* The command of this trial, with room for `before` entries in front. */
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

/* ---- starting ---- */

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

static int spawn(kji_trial_run *run, char **argv, int lock_fd, kj_error *err)
{
    const kji_tune_config *config = run->worker->config;
    KJI_CLEANUP(kji_freep)
    char *dir = kji_format("%s/%" PRId64, config->trials_dir, run->number);
    size_t n_own = 0;
    char **env = make_environment(run, &n_own);
    char **full = calloc(config->n_command + 4, sizeof *full);
    int r = KJ_EMEM;
    if (dir && env && full) {
        full[0] = config->shim;
        full[1] = dir;
        full[2] = (char *)"3";
        memcpy(full + 3, argv, config->n_command * sizeof *full);
        uv_stdio_container_t stdio[4] = {{.flags = UV_IGNORE},
                                         {.flags = UV_IGNORE},
                                         {.flags = UV_IGNORE},
                                         {.flags = UV_INHERIT_FD, .data.fd = lock_fd}};
        uv_process_options_t options = {.exit_cb = on_shim_exit,
                                        .file = config->shim,
                                        .args = full,
                                        .env = env,
                                        .flags = UV_PROCESS_DETACHED,
                                        .stdio_count = 4,
                                        .stdio = stdio};
        run->process.data = run;
        run->has_process = true; /* also a failed spawn leaves a handle to close */
        run->n_open++;
        r = uv_spawn(&run->worker->loop, &run->process, &options);
        if (r < 0)
            r = kji_fail_native(err, KJ_EIO, "uv", r, "cannot start %s: %s", config->shim,
                                uv_strerror(r));
    } else {
        kji_fail_memory(err);
    }
    for (size_t k = 0; env && k < n_own; k++)
        free(env[k]);
    free(env);
    free(full);
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
    kji_trial_run *run = run_new(worker, job->number, err);
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

/* ---- adopting ---- */

/* Looks after a shim that is not our child. */
static void on_watch(uv_timer_t *timer)
{
    kji_trial_run *run = timer->data;
    pid_t pid;
    bool alive = kji_trial_dir_is_alive(run->dir_fd);
    if (run->stage == KJI_STAGE_STARTING && kji_trial_dir_read_shim(run->dir_fd, &pid, NULL) >= 0) {
        run->shim_pid = pid;
        kji_trial_run_event(run, KJI_EVENT_READY);
    }
    if (!alive) {
        run->shim_pid = 0;
        uv_timer_stop(timer);
        kji_trial_run_event(run, KJI_EVENT_ENDED);
    }
}

static char *params_to_json(const kj_trial_info *info)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *params = json_object_new_object();
    for (uint64_t k = 0; k < info->n_params; k++)
        json_object_object_add(params, info->params[k].name,
                               kji_json_new_value(&info->params[k].value));
    return kji_json_text(params);
}

/* The trial was cut by the worker before us, which did not live to see its end. */
static void adopt_cut(kji_trial_run *run, const kj_decision *cut)
{
    run->cut = true;
    run->cut_reason = strdup(cut->reason ? cut->reason : "");
    kji_trial_run_event(run, KJI_EVENT_STOP);
}

int kji_trial_run_adopt(kji_worker *worker, kj_trial *trial, const kj_trial_info *info, int dir_fd,
                        kj_error *err)
{
    kji_trial_run *run = run_new(worker, info->number, err);
    if (!run) {
        kj_trial_free(trial);
        kji_closep(&dir_fd);
        return KJ_EMEM;
    }
    run->stage = KJI_STAGE_STARTING;
    run->adopted = true;
    run->trial = trial;
    run->dir_fd = dir_fd;
    run->params_json = params_to_json(info);
    if (!run->params_json)
        return kji_fail_memory(err);
    /* Without trial.json it died before it started anything. */
    kj_error why = KJ_ERROR_INIT;
    if (kji_trial_dir_read_record(dir_fd, &run->record, &run->metric, &why) >= 0 &&
        (kji_trial_metric_open(run, false, &why) < 0 || kji_trial_metric_follow(run, &why) < 0))
        kji_worker_warn(worker, run->number, "%s", why.message);
    if (kji_trial_dir_is_alive(dir_fd))
        kji_worker_emit(worker, KJ_TUNE_TRIAL_ADOPTED, run->number, "");
    if (info->cut)
        adopt_cut(run, info->cut);
    uv_timer_start(&run->watch, on_watch, 0, WATCH_MS);
    return 0;
}

/* ---- events and actions ---- */

static void on_grace(uv_timer_t *timer)
{
    kji_trial_run_event(timer->data, KJI_EVENT_GRACE);
}

/* SIGTERM goes on to the program's group, SIGUSR1 kills all of it (shim-main.c). */
static void signal_shim(kji_trial_run *run, int signal_number, const char *name)
{
    if (run->shim_pid > 0)
        kill(run->shim_pid, signal_number);
    kji_worker_emit(run->worker, KJ_TUNE_STOPPING, run->number, name);
}

static void drain(kji_trial_run *run)
{
    uv_timer_stop(&run->grace);
    uv_timer_stop(&run->watch);
    if (!run->interrupted)
        kji_trial_metric_read_rest(run);
    if (!run->reporting)
        kji_trial_run_event(run, KJI_EVENT_DRAINED);
}

static void tell(kji_trial_run *run)
{
    kj_error err = KJ_ERROR_INIT;
    kji_db_job *job = kji_db_job_new(KJI_DB_TELL, run);
    if (!job)
        kji_fail_memory(&err);
    else
        kji_trial_outcome(run, job, &err);
    if (err.code) {
        kji_db_job_free(job);
        kji_worker_fatal(run->worker, &err);
        return;
    }
    job->trial = kji_take(&run->trial);
    kji_db_post(run->worker->db, job);
}

static void act(kji_trial_run *run, enum kji_trial_event event, enum kji_trial_action action)
{
    uint64_t grace = run->worker->config->grace_ms;
    switch (action) {
    case KJI_ACTION_NONE:
    case KJI_ACTION_RELEASE: /* by kji_worker_ended, with what the database said */
        break;
    case KJI_ACTION_DEFER:
        run->deferred = event;
        break;
    case KJI_ACTION_RESUME:
        if (run->deferred >= 0)
            kji_trial_run_event(run, (enum kji_trial_event)run->deferred);
        break;
    case KJI_ACTION_ASK:
        uv_timer_start(&run->grace, on_grace, grace, 0);
        kji_channel_stop(run);
        break;
    case KJI_ACTION_TERM:
        uv_timer_start(&run->grace, on_grace, grace, 0);
        signal_shim(run, SIGTERM, "SIGTERM");
        break;
    case KJI_ACTION_KILL:
        uv_timer_start(&run->grace, on_grace, grace, 0);
        signal_shim(run, SIGUSR1, "SIGKILL");
        break;
    case KJI_ACTION_DRAIN:
        drain(run);
        break;
    case KJI_ACTION_TELL:
        tell(run);
        break;
    }
}

void kji_trial_run_event(kji_trial_run *run, enum kji_trial_event event)
{
    if (run->released)
        return;
    kji_transition to = kji_trial_fsm(run->stage, event);
    run->stage = (enum kji_trial_stage)to.next;
    act(run, event, (enum kji_trial_action)to.action);
}

void kji_trial_run_interrupt(kji_trial_run *run, bool at_once)
{
    if (run->stage == KJI_STAGE_DRAINING && at_once && run->has_rest)
        run->interrupted = true; /* an output too long to be read now */
    if (run->stage >= KJI_STAGE_DRAINING)
        return; /* it ended by itself */
    run->interrupted = true;
    kji_trial_run_event(run, at_once ? KJI_EVENT_KILL : KJI_EVENT_STOP);
}

/* ---- answers of the database thread ---- */

static void emit_reports(kji_trial_run *run, const kji_db_job *job)
{
    for (size_t k = 0; k < job->n_points; k++) {
        if (!job->points[k].taken)
            continue;
        kj_tune_event event = {.kind = KJ_TUNE_REPORT,
                               .trial = run->number,
                               .step = job->points[k].step,
                               .value = job->points[k].value,
                               .text = ""};
        kji_worker_emit_event(run->worker, &event);
    }
}

void kji_trial_run_reported(kji_trial_run *run, kji_db_job *job)
{
    run->reporting = false;
    emit_reports(run, job);
    if (job->cut && !run->cut) {
        run->cut = true;
        run->cut_reason = kji_take(&job->reason);
        kj_tune_event event = {.kind = KJ_TUNE_CUT,
                               .trial = run->number,
                               .step = job->cut_step,
                               .value = job->cut_value,
                               .threshold = job->cut_threshold,
                               .text = run->cut_reason};
        kji_worker_emit_event(run->worker, &event);
        kji_trial_run_event(run, KJI_EVENT_STOP);
    }
    if (run->stage != KJI_STAGE_DRAINING)
        kji_trial_metric_read(run);
    else if (run->interrupted)
        kji_trial_metric_feed(run);
    else
        kji_trial_metric_read_rest(run);
    if (!run->reporting)
        kji_trial_run_event(run, KJI_EVENT_DRAINED);
}
