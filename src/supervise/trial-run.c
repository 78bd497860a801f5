/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trial's process, driven by the table in trial-fsm.c: this file turns what happens (the shim
 * ends, a timer fires, a person interrupts) into events, and actions into signals, timers and jobs.
 *
 * The shim is signalled, never the program: only the shim knows whether the program's pid is still
 * its own.
 */
#include "worker.h"

#include "errors.h"
#include "json.h"
#include "mem.h"

#include <signal.h>
#include <string.h>

enum { WATCH_MS = 100 };

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
    free(run->cut_rule);
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

kji_trial_run *kji_trial_run_new(kji_worker *worker, int64_t number, kj_error *err)
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
    run->cut_rule = cut->rule ? strdup(cut->rule) : NULL;
    run->cut_value = cut->value;
    run->cut_threshold = cut->threshold;
    run->cut_reason = strdup(cut->reason ? cut->reason : "");
    kji_trial_run_event(run, KJI_EVENT_STOP);
}

int kji_trial_run_adopt(kji_worker *worker, kj_trial *trial, const kj_trial_info *info, int dir_fd,
                        kj_error *err)
{
    kji_trial_run *run = kji_trial_run_new(worker, info->number, err);
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
        run->cut_rule = kji_take(&job->rule);
        run->cut_value = job->cut_value;
        run->cut_threshold = job->cut_threshold;
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
