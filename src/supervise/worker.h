/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: one event loop, `jobs` slots, a kji_trial_run in each. What is shared between
 * worker.c, adopt.c and the trial-*.c.
 */
#ifndef KJI_WORKER_H
#define KJI_WORKER_H

#include "db-thread.h"
#include "param-spec.h"
#include "trial-dir.h"
#include "trial-fsm.h"

#include <kajitori/events.h>
#include <kajitori/tune.h>

#include <stdatomic.h>
#include <uv.h>

enum { KJI_ID_TEXT = 17 };

/* What kj_tune_open checked and keeps. */
typedef struct kji_tune_config {
    char *study_name;
    char *metric; /* template */
    char **command;
    size_t n_command;
    kji_param_spec *params;
    size_t n_params;
    uint64_t n_trials;
    uint32_t jobs;
    uint32_t grace_ms;
    char *trials_dir;
    int trials_fd;
    char folder_id[KJI_ID_TEXT]; /* every trial that is claimed for this folder bears it */
    int worker_lock;
    char *shim;
    kj_tune_event_fn on_event;
    void *userdata;
} kji_tune_config;

typedef struct kji_worker kji_worker;
typedef struct kji_trial_run kji_trial_run;

struct kji_worker {
    const kji_tune_config *config;
    kj_study *study;
    uv_loop_t loop;
    uv_async_t answers;
    uv_poll_t interrupt;
    kji_db *db;
    kji_trial_run *runs;
    uint64_t n_runs;
    uint64_t n_asking;
    uint64_t n_finished;
    int level;      /* how often we were interrupted */
    bool no_more;   /* enough trials are finished or running, as the database says */
    bool finishing; /* the loop is ending */
    kj_error fatal; /* what ended it early, code 0 when nothing did */
    const atomic_int *interrupts;
    int interrupt_fd; /* an eventfd, written at each interrupt */
    /* whether the program works at all */
    uint64_t
        n_failed_first; /* ended trials of this call, while all failed before their first value */
    bool works;
    kj_error hopeless; /* why nothing more is started, code 0 when nothing speaks against it */
    bool said_busy;
};

struct kji_trial_run {
    kji_trial_run *next;
    kji_worker *worker;
    int64_t number;
    kj_trial *trial; /* for the database thread; NULL once it was told */
    enum kji_trial_stage stage;
    bool adopted;
    int dir_fd;
    kji_trial_record record;
    char *params_json;
    char *metric; /* the spec, expanded */
    pid_t shim_pid;
    int deferred; /* enum kji_trial_event, or -1 */

    /* libuv; n_open counts what must be closed or come back before this is freed */
    uv_process_t process;
    uv_timer_t grace;
    uv_timer_t watch; /* adopted trials: looks whether the shim lives */
    uv_poll_t readable;
    bool has_process, has_readable;
    int n_open;
    bool released;

    /* the metric */
    kj_events *source;
    char *run_name;       /* of the first point; points of other runs are not ours */
    kji_db_point *points; /* not yet handed to the database */
    size_t n_points, points_capacity;
    size_t n_read;    /* in this call of the source */
    bool drop_points; /* what is read now was there before the trial */
    bool reporting;   /* a REPORT is on its way */
    bool has_rest;    /* it has ended, and more is to be read than was */
    uint64_t n_values;
    int64_t last_step;
    double last_value;
    bool said_other_run, said_negative;

    /* why it ends */
    bool cut;
    char *cut_rule; /* NULL: not known */
    double cut_value;
    double cut_threshold;
    char *cut_reason;
    bool interrupted;
    char *start_error; /* the program could not be started */
    bool no_room;      /* because its folder could not be written, or no shim could be made */
    int64_t shim_status;
};

/* A trial that the database thread has claimed: starts its program. Takes what `job` holds. A
 * program that cannot be started is a trial that fails, not an error. */
int kji_trial_run_start(kji_worker *worker, kji_db_job *job, kj_error *err);

/* In the worker's list, with nothing running yet. NULL when memory is gone. */
kji_trial_run *kji_trial_run_new(kji_worker *worker, int64_t number, kj_error *err);

/* A trial found RUNNING that was claimed for this folder. Takes over trial and dir_fd, which is -1
 * when the worker died before it could make the trial's folder. */
int kji_trial_run_adopt(kji_worker *worker, kj_trial *trial, const kj_trial_info *info, int dir_fd,
                        kj_error *err);

void kji_trial_run_event(kji_trial_run *run, enum kji_trial_event event);
/* Ends it by the ladder, or at once, because the worker was interrupted. */
void kji_trial_run_interrupt(kji_trial_run *run, bool at_once);
void kji_trial_run_reported(kji_trial_run *run, kji_db_job *job);

/* Closes what it has; it is freed by the loop. The program, if it runs, goes on under its shim. */
void kji_trial_run_release(kji_trial_run *run);
/* One of its handles was closed or one of its requests came back. */
void kji_trial_run_closed(kji_trial_run *run);

int kji_trial_metric_open(kji_trial_run *run, bool drop_old, kj_error *err);
/* Follows it from now on. */
int kji_trial_metric_follow(kji_trial_run *run, kj_error *err);
/* Reads what there is now, at most a batch, unless a batch waits already. Reads no further when a
 * report is on its way and a batch waits; call it again when the report comes back. */
void kji_trial_metric_read(kji_trial_run *run);
/* Nothing more will be written: reads up to the end, or until a batch waits (`has_rest`). */
void kji_trial_metric_read_rest(kji_trial_run *run);
/* Hands points to the database thread, unless some are on their way. */
void kji_trial_metric_feed(kji_trial_run *run);
void kji_trial_metric_close(kji_trial_run *run);
/* Why there is no value: the tags that exist, or that no line matched; for free. */
char *kji_trial_metric_why_none(kji_trial_run *run);

/* Fills the TELL of a trial whose program has ended. */
int kji_trial_outcome(kji_trial_run *run, kji_db_job *job, kj_error *err);

/* Asks the program's run to stop, on a thread of libuv's pool; KJI_EVENT_CHANNEL_FAILED comes when
 * that fails. */
void kji_channel_stop(kji_trial_run *run);

/* Takes over the RUNNING trials that have a folder here. Before the loop and the thread run. */
int kji_adopt(kji_worker *worker, kj_error *err);

int kji_worker_run(const kji_tune_config *config, kj_study *study, const atomic_int *interrupts,
                   int interrupt_fd, kj_error *err);
void kji_worker_emit(kji_worker *worker, int kind, int64_t trial, const char *text);
void kji_worker_emit_event(kji_worker *worker, kj_tune_event *event);
void kji_worker_warn(kji_worker *worker, int64_t trial, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Because of what `err` says nothing more is started; those that run go on to their end. */
void kji_worker_start_no_more(kji_worker *worker, const kj_error *err);
/* Ends the loop because of what `err` says; programs go on under their shims. */
void kji_worker_fatal(kji_worker *worker, const kj_error *err);
/* A trial has ended and is stored. */
void kji_worker_ended(kji_worker *worker, kji_trial_run *run, const kji_db_job *job);

#endif
