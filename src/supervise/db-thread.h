/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The study and its trials live on one thread of their own: the event loop posts jobs and takes the
 * answers, and never waits for the database. A locked database is waited for here, with growing
 * pauses; the loop is told, and the programs go on meanwhile. Jobs are carried out in order.
 */
#ifndef KJI_DB_THREAD_H
#define KJI_DB_THREAD_H

#include "param-spec.h"

#include <stdbool.h>

enum kji_db_kind {
    KJI_DB_ASK,    /* claim or create a trial, draw its parameters, make its folder */
    KJI_DB_REPORT, /* store points, ask the pruner after each */
    KJI_DB_TELL,   /* store the end state */
    KJI_DB_BUSY    /* an answer without a job: the database is locked, `err` says more */
};

enum kji_db_retry {
    KJI_RETRY_NO,
    KJI_RETRY_ONCE, /* enqueue the parameters again, unless this trial is itself such a repeat */
    KJI_RETRY       /* enqueue the parameters again */
};

typedef struct kji_db_point {
    int64_t step;
    double value;
    bool taken; /* out: the first of its step */
} kji_db_point;

/* In: what the poster fills. Out: what the thread fills. Whoever takes the answer frees it. */
typedef struct kji_db_job {
    struct kji_db_job *next;
    int kind;
    void *owner; /* untouched by the thread */
    /* out, all kinds */
    int result; /* 0 or a KJ_E code that no waiting will heal */
    kj_error err;
    uint64_t n_finished; /* trials of the study in an end state, repeated ones once; ASK and TELL */
    /* in for REPORT and TELL, out for ASK. The job owns it, but for REPORT. A TELL that succeeded
     * has freed it and left NULL. */
    kj_trial *trial;
    int64_t number;
    /* out, ASK */
    bool none;      /* enough trials are finished or running */
    bool no_folder; /* there was no room for the trial's folder, as `err` says; its parameters wait
                       to be tried again */
    int dir_fd;
    int lock_fd;
    char **values;     /* one text for each parameter, in their order */
    char *params_json; /* one object */
    /* REPORT */
    kji_db_point *points;
    size_t n_points;
    bool decide;
    bool cut; /* out, with the decision: */
    int64_t cut_step;
    double cut_value;
    double cut_threshold;
    char *rule;
    char *reason;
    /* in, TELL; out `state` and `error` where a command ended it */
    int state; /* enum kj_trial_state */
    int retry; /* enum kji_db_retry */
    double value;
    char *error;      /* NULL or what becomes kajitori:error */
    char *run_id;     /* whose journal may tell how a person ended it, NULL: do not look */
    char *stopped_by; /* out, who ended it so; NULL when nobody did */
} kji_db_job;

typedef struct kji_db kji_db;

typedef struct kji_db_options {
    kj_study *study; /* for the thread alone until kji_db_stop */
    const kji_param_spec *params;
    size_t n_params;
    const char *trials_dir; /* the name, for messages */
    int trials_fd;
    uint64_t n_trials;            /* 0 = no end */
    uint64_t n_open;              /* handles of trials that exist already and will be told */
    void (*wake)(void *userdata); /* called in the thread when an answer is there */
    void *userdata;
} kji_db_options;

int kji_db_start(const kji_db_options *options, kji_db **ret_db, kj_error *err);

/* Stops waiting for a locked database, joins the thread, frees jobs that were not answered.
 * Answers that were not taken are freed too. */
void kji_db_stop(kji_db *db);

kji_db_job *kji_db_job_new(int kind, void *owner);
void kji_db_job_free(kji_db_job *job);

void kji_db_post(kji_db *db, kji_db_job *job);

/* From now on no trial is claimed: ASK is answered with `none`. */
void kji_db_claim_no_more(kji_db *db);

/* From now on a locked database is an error, not waited for. */
void kji_db_give_up(kji_db *db);

/* The oldest answer, NULL when there is none. */
kji_db_job *kji_db_take(kji_db *db);

/* Trials in an end state; one whose parameters were enqueued again does not count. Not while a
 * thread is running on this study. */
int kji_db_count_finished(kj_study *study, uint64_t *ret_n, kj_error *err);

#endif
