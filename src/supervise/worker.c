/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop keeps `jobs` slots full: for each free one it asks the database thread for a trial,
 * until that says that enough are finished or running. It ends when nothing runs and nothing more
 * is to be started.
 *
 * A fatal error (the database is gone) ends the loop at once: programs go on under their shims, and
 * the same command line finds them again.
 */
#include "worker.h"

#include "errors.h"
#include "mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HOPELESS_AFTER = 3 };

void kji_worker_emit_event(kji_worker *worker, kj_tune_event *event)
{
    event->size = sizeof *event;
    event->n_finished = worker->n_finished;
    event->n_running = worker->n_runs;
    if (worker->config->on_event)
        worker->config->on_event(worker->config->userdata, event);
}

void kji_worker_emit(kji_worker *worker, int kind, int64_t trial, const char *text)
{
    kj_tune_event event = {.kind = kind, .trial = trial, .step = -1, .text = text};
    kji_worker_emit_event(worker, &event);
}

void kji_worker_warn(kji_worker *worker, int64_t trial, const char *format, ...)
{
    kj_error line = KJ_ERROR_INIT; /* blanks control bytes, bounds the length */
    va_list args;
    va_start(args, format);
    char text[sizeof line.message];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kji_fail(&line, KJ_EIO, "%s", text);
    kji_worker_emit(worker, KJ_TUNE_WARNING, trial, line.message);
}

static void close_loop_handles(kji_worker *worker)
{
    if (worker->finishing)
        return;
    worker->finishing = true;
    uv_close((uv_handle_t *)&worker->answers, NULL);
    uv_close((uv_handle_t *)&worker->interrupt, NULL);
}

void kji_worker_fatal(kji_worker *worker, const kj_error *err)
{
    if (!worker->fatal.code)
        worker->fatal = *err;
    close_loop_handles(worker);
    uv_stop(&worker->loop);
}

void kji_worker_start_no_more(kji_worker *worker, const kj_error *err)
{
    if (!worker->hopeless.code)
        worker->hopeless = *err;
}

static bool may_start(const kji_worker *worker)
{
    return !worker->finishing && worker->level == 0 && !worker->no_more && !worker->hopeless.code;
}

/* Asks for trials for the free slots, or ends the loop when there is nothing left to do. */
static void pump(kji_worker *worker)
{
    while (may_start(worker) && worker->n_runs + worker->n_asking < worker->config->jobs) {
        kji_db_job *job = kji_db_job_new(KJI_DB_ASK, NULL);
        if (!job) {
            kj_error err = KJ_ERROR_INIT;
            kji_fail_memory(&err);
            kji_worker_fatal(worker, &err);
            return;
        }
        worker->n_asking++;
        kji_db_post(worker->db, job);
    }
    if (worker->n_runs == 0 && worker->n_asking == 0 && !may_start(worker))
        close_loop_handles(worker);
}

static uint64_t hopeless_after(const kji_worker *worker)
{
    uint64_t n = worker->config->n_trials;
    return n > 0 && n < HOPELESS_AFTER ? n : HOPELESS_AFTER;
}

/* Gives up when all the first trials of this call failed before they had a value. */
static void judge_program(kji_worker *worker, kji_trial_run *run, const kji_db_job *job)
{
    if (run->adopted || job->retry != KJI_RETRY_NO)
        return;
    if (job->state != KJ_TRIAL_FAIL || run->n_values > 0)
        worker->works = true;
    else
        worker->n_failed_first++;
    if (worker->works || worker->hopeless.code || worker->n_failed_first < hopeless_after(worker))
        return;
    KJI_CLEANUP(kji_freep) char *output = kji_trial_dir_output_end(run->dir_fd, 6, 500);
    kji_fail(&worker->hopeless, KJ_EFAILED,
             "no trial had a value: all %" PRIu64 " failed, the last one (%" PRId64
             ") with: %.300s; the end of %s/%" PRId64 "/output.log: %s",
             worker->n_failed_first, run->number, job->error ? job->error : "",
             worker->config->trials_dir, run->number, output && *output ? output : "(empty)");
}

static void end_text(const kji_trial_run *run, const kji_db_job *job, char *text, size_t room)
{
    if (run->cut)
        snprintf(text, room, "%s", run->cut_reason ? run->cut_reason : "");
    else if (job->error)
        snprintf(text, room, "%s", job->error);
    else if (job->stopped_by)
        snprintf(text, room, "%s by %s", job->state == KJ_TRIAL_PRUNED ? "pruned" : "stopped",
                 job->stopped_by);
    else
        *text = 0;
}

void kji_worker_ended(kji_worker *worker, kji_trial_run *run, const kji_db_job *job)
{
    char text[1000];
    end_text(run, job, text, sizeof text);
    judge_program(worker, run, job);
    kj_tune_event event = {.kind = KJ_TUNE_TRIAL_ENDED,
                           .trial = run->number,
                           .state = job->state,
                           .step = run->last_step,
                           .value = run->last_value,
                           .text = text};
    kji_trial_run_event(run, KJI_EVENT_TOLD);
    kji_trial_run_release(run);
    worker->n_finished = job->n_finished;
    worker->no_more = false; /* a trial that is to be repeated leaves room for another */
    kji_worker_emit_event(worker, &event);
}

static void on_claimed(kji_worker *worker, kji_db_job *job)
{
    worker->n_asking--;
    worker->n_finished = job->n_finished;
    if (job->no_folder) {
        kji_worker_start_no_more(worker, &job->err);
        return;
    }
    if (job->none) {
        worker->no_more = true;
        return;
    }
    kj_error err = KJ_ERROR_INIT;
    if (kji_trial_run_start(worker, job, &err) < 0)
        kji_worker_fatal(worker, &err);
}

static void note_busy(kji_worker *worker, const kji_db_job *job)
{
    if (!worker->said_busy)
        kji_worker_warn(worker, -1, "%s; waiting for it, the programs go on", job->err.message);
    worker->said_busy = true;
}

static void handle_answer(kji_worker *worker, kji_db_job *job)
{
    if (job->kind == KJI_DB_BUSY) {
        note_busy(worker, job);
        return;
    }
    worker->said_busy = false;
    if (job->result < 0 && !job->no_folder) {
        kji_worker_fatal(worker, &job->err);
        return;
    }
    switch (job->kind) {
    case KJI_DB_ASK:
        on_claimed(worker, job);
        break;
    case KJI_DB_REPORT:
        kji_trial_run_reported(job->owner, job);
        break;
    case KJI_DB_TELL:
        kji_worker_ended(worker, job->owner, job);
        break;
    }
}

static void on_answers(uv_async_t *async)
{
    kji_worker *worker = async->data;
    for (kji_db_job *job; !worker->finishing && (job = kji_db_take(worker->db));) {
        handle_answer(worker, job);
        kji_db_job_free(job);
    }
    if (!worker->finishing)
        pump(worker);
}

static void wake(void *userdata)
{
    kji_worker *worker = userdata;
    uv_async_send(&worker->answers);
}

static void interrupt_all(kji_worker *worker, bool at_once)
{
    for (kji_trial_run *run = worker->runs, *next; run; run = next) {
        next = run->next;
        kji_trial_run_interrupt(run, at_once);
    }
}

static const char stop_text[] =
    "stopping the running trials; their parameters are tried again next "
    "time (once more: kill them)";
static const char *const level_texts[] = {
    "no new trials; those that run go on to their end (once more: stop them)", stop_text,
    "killing the running trials; their parameters are tried again next time"};

static void on_level(kji_worker *worker, int level)
{
    worker->level = level;
    kji_db_claim_no_more(worker->db);
    kji_worker_emit(worker, KJ_TUNE_INTERRUPTED, -1, level_texts[level - 1]);
    if (level == 2)
        interrupt_all(worker, false);
    if (level == 3) {
        interrupt_all(worker, true);
        kji_db_give_up(worker->db);
    }
}

static void look_at_interrupts(kji_worker *worker)
{
    int level = atomic_load(worker->interrupts);
    if (level > 3)
        level = 3;
    if (level <= worker->level)
        return;
    on_level(worker, level);
    if (!worker->finishing)
        pump(worker);
}

static void on_interrupt(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    kji_worker *worker = handle->data;
    uint64_t n;
    if (read(worker->interrupt_fd, &n, sizeof n) == sizeof n)
        look_at_interrupts(worker);
}

static int init_loop(kji_worker *worker, kj_error *err)
{
    int r = uv_loop_init(&worker->loop);
    if (r < 0)
        return kji_fail_native(err, KJ_EIO, "uv", r, "cannot make the event loop: %s",
                               uv_strerror(r));
    r = uv_async_init(&worker->loop, &worker->answers, on_answers);
    if (r >= 0) {
        worker->answers.data = worker;
        r = uv_poll_init(&worker->loop, &worker->interrupt, worker->interrupt_fd);
        if (r < 0) {
            uv_close((uv_handle_t *)&worker->answers, NULL);
        } else {
            worker->interrupt.data = worker;
            uv_poll_start(&worker->interrupt, UV_READABLE, on_interrupt);
        }
    }
    if (r < 0) {
        uv_run(&worker->loop, UV_RUN_DEFAULT);
        uv_loop_close(&worker->loop);
        return kji_fail_native(err, KJ_EIO, "uv", r, "cannot make the event loop: %s",
                               uv_strerror(r));
    }
    return 0;
}

static int start_thread(kji_worker *worker, kj_error *err)
{
    kji_db_options options = {.study = worker->study,
                              .params = worker->config->params,
                              .n_params = worker->config->n_params,
                              .trials_dir = worker->config->trials_dir,
                              .trials_fd = worker->config->trials_fd,
                              .n_trials = worker->config->n_trials,
                              .n_open = worker->n_runs,
                              .wake = wake,
                              .userdata = worker};
    return kji_db_start(&options, &worker->db, err);
}

/* The database thread ends first: afterwards nothing but the loop knows the trials. */
static void clean_up(kji_worker *worker)
{
    kji_db_stop(worker->db);
    worker->db = NULL;
    close_loop_handles(worker);
    while (worker->runs)
        kji_trial_run_release(worker->runs);
    while (uv_run(&worker->loop, UV_RUN_DEFAULT) != 0)
        ;
    uv_loop_close(&worker->loop);
}

static int result_of(kji_worker *worker, uint64_t n_left, kj_error *err)
{
    if (worker->fatal.code) {
        kji_fail(err, worker->fatal.code, "%s", worker->fatal.message);
        if (n_left)
            kji_fail_prefix(err, worker->fatal.code,
                            "running trials (%" PRIu64 ") go on under their shims, the same "
                            "command line takes them over",
                            n_left);
        return worker->fatal.code;
    }
    if (worker->hopeless.code)
        return kji_fail(err, worker->hopeless.code, "%s", worker->hopeless.message);
    if (worker->level > 0)
        return kji_fail(err, KJ_EINTERRUPTED,
                        "interrupted; the same command line goes on with the study");
    return 0;
}

static int run_loop(kji_worker *worker, kj_error *err)
{
    int r = kji_adopt(worker, err);
    if (r >= 0)
        r = start_thread(worker, err);
    if (r < 0)
        return r;
    look_at_interrupts(worker);
    pump(worker);
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    return 0;
}

int kji_worker_run(const kji_tune_config *config, kj_study *study, const atomic_int *interrupts,
                   int interrupt_fd, kj_error *err)
{
    kji_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return kji_fail_memory(err);
    worker->config = config;
    worker->study = study;
    worker->interrupts = interrupts;
    worker->interrupt_fd = interrupt_fd;
    worker->fatal = worker->hopeless = (kj_error)KJ_ERROR_INIT;
    int r = kji_db_count_finished(study, &worker->n_finished, err);
    if (r >= 0)
        r = init_loop(worker, err);
    if (r < 0) {
        free(worker);
        return r;
    }
    r = run_loop(worker, err);
    uint64_t n_left = worker->n_runs;
    clean_up(worker);
    if (r >= 0)
        r = result_of(worker, n_left, err);
    if (r >= 0)
        kji_worker_emit(worker, KJ_TUNE_FINISHED, -1, "");
    free(worker);
    return r;
}
