/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of a trial. In this order: a cut trial is PRUNED whatever its program did then; one
 * that the worker stopped is FAIL and its parameters wait again; one whose end nobody saw is FAIL
 * ("lost") and is repeated once; then the program's own exit and its values decide.
 */
#include "worker.h"

#include "errors.h"
#include "mem.h"
#include "number.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { SHIM_FAILED = 125 }; /* shim-main.c */

static char *last_line(kji_trial_run *run)
{
    KJI_CLEANUP(kji_freep) char *line = kji_trial_dir_output_end(run->dir_fd, 1, 400);
    if (!line || !*line)
        return strdup("it printed nothing");
    return kji_format("its last line: %s", line);
}

static char *describe_failure(kji_trial_run *run, const kji_trial_exit *ended)
{
    if (ended->native)
        return kji_format("%s: cannot be started: %s%s", run->worker->config->command[0],
                          strerror(ended->native),
                          ended->native == ENOENT ? " (it, or what runs it)" : "");
    KJI_CLEANUP(kji_freep) char *line = last_line(run);
    if (!line)
        return NULL;
    if (ended->signal)
        return kji_format("signal %d (%s); %s", ended->signal, strsignal(ended->signal), line);
    return kji_format("exit status %d; %s", ended->exit_code, line);
}

/* The program ended by itself. */
static void judge_exit(kji_trial_run *run, const kji_trial_exit *ended, kji_db_job *job)
{
    job->state = KJ_TRIAL_FAIL;
    if (ended->exit_code != 0)
        job->error = describe_failure(run, ended);
    else if (run->n_values == 0)
        job->error = kji_trial_metric_why_none(run);
    else if (isnan(run->last_value))
        job->error = strdup("its last value is not a number (nan)");
    else
        job->state = KJ_TRIAL_COMPLETE;
    job->value = run->last_value;
    job->run_id = strdup(run->record.run_id);
}

/* The folder took no more, so it will take no other trial's files either. */
static void judge_unwritten(kji_trial_run *run, kji_db_job *job)
{
    kj_error why = KJ_ERROR_INIT;
    kji_fail(&why, KJ_EIO, "its shim could not write into %s/%lld%s",
             run->worker->config->trials_dir, (long long)run->number,
             kji_trial_dir_is_gone(run->dir_fd) ? ", which was removed" : " (disk full?)");
    job->error = kji_format("%s; its parameters wait to be tried again", why.message);
    job->retry = KJI_RETRY_ONCE;
    kji_fail_prefix(&why, KJ_EIO, "trial %lld", (long long)run->number);
    kji_worker_start_no_more(run->worker, &why);
}

static void judge_lost(kji_trial_run *run, kji_db_job *job)
{
    job->state = KJ_TRIAL_FAIL;
    if (run->shim_status == SHIM_FAILED) {
        judge_unwritten(run, job);
        return;
    }
    int killed = kji_trial_dir_sweep(run->record.run_id);
    job->retry = KJI_RETRY_ONCE;
    job->error = killed ? kji_format("lost: its shim was killed; %d of its processes were left and "
                                     "were ended; its parameters wait to be tried again",
                                     killed)
                        : strdup("lost: nobody saw how it ended; its parameters wait to be tried "
                                 "again");
}

int kji_trial_outcome(kji_trial_run *run, kji_db_job *job, kj_error *err)
{
    kji_trial_exit ended = {0};
    int seen = run->start_error ? KJ_ENOENT : kji_trial_dir_read_exit(run->dir_fd, &ended, NULL);
    job->number = run->number;
    job->state = KJ_TRIAL_FAIL;
    if (run->cut) {
        job->state = KJ_TRIAL_PRUNED;
        if (seen < 0)
            kji_trial_dir_sweep(run->record.run_id);
    } else if (run->interrupted) {
        job->retry = KJI_RETRY;
        job->error = strdup("interrupted; its parameters wait to be tried again");
        if (seen < 0)
            kji_trial_dir_sweep(run->record.run_id);
    } else if (run->start_error) {
        job->error = strdup(run->start_error);
        job->retry = run->no_room ? KJI_RETRY : KJI_RETRY_NO;
    } else if (seen < 0) {
        judge_lost(run, job);
    } else {
        judge_exit(run, &ended, job);
    }
    if (job->state == KJ_TRIAL_FAIL && !job->error)
        return kji_fail_memory(err);
    job->params_json = strdup(run->params_json);
    return job->params_json ? 0 : kji_fail_memory(err);
}
