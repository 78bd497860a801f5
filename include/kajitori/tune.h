/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune: run a program many times with sampled hyperparameters, follow its metric, prune and stop
 * it, and never lose track of it (docs/tune.md). One call of kj_tune_run is one worker: one event
 * loop, `jobs` slots, a shim process per trial.
 */
#ifndef KAJITORI_TUNE_H
#define KAJITORI_TUNE_H

#include <kajitori/error.h>
#include <kajitori/study.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_tune kj_tune;

enum kj_tune_event_kind {
    KJ_TUNE_STUDY_OPENED = 1,  /* `text`: "created" or "resumed" */
    KJ_TUNE_TRIAL_STARTED = 2, /* `text`: its parameters, "lr=0.01 units=32" */
    KJ_TUNE_TRIAL_ADOPTED = 3, /* found running, left behind by a worker that died */
    KJ_TUNE_REPORT = 4,        /* step, value */
    KJ_TUNE_CUT = 5,           /* `text`: the reason; step, value, threshold */
    KJ_TUNE_STOPPING = 6,      /* `text`: the rung of the ladder, "channel", "SIGTERM", "SIGKILL" */
    KJ_TUNE_TRIAL_ENDED = 7,   /* state, value, `text`: why, when it is not COMPLETE */
    KJ_TUNE_WARNING = 8,       /* `text` */
    KJ_TUNE_INTERRUPTED = 9,   /* `text`: what happens now */
    KJ_TUNE_FINISHED = 10
};

typedef struct kj_tune_event {
    uint32_t size;
    int32_t kind;  /* enum kj_tune_event_kind */
    int64_t trial; /* number, -1 when it is about the study */
    int32_t state; /* enum kj_trial_state */
    int32_t reserved;
    int64_t step;
    double value;
    double threshold;
    const char *text;    /* one line, "" when there is none */
    uint64_t n_finished; /* trials of the study in an end state */
    uint64_t n_running;
} kj_tune_event;

/* Called in the thread of kj_tune_run. */
typedef void (*kj_tune_event_fn)(void *userdata, const kj_tune_event *event);

typedef struct kj_tune_options {
    uint32_t size;
    int32_t direction;   /* enum kj_direction [MINIMIZE] */
    const char *storage; /* URL [sqlite:///kajitori.db] */
    const char *study;   /* name [file name of the program's script without its ending, else of the
                            program] */
    const char *const *params; /* "lr=1e-5..1e-1:log", "units=16..128:int", "opt=adam|sgd"; grammar
                                  in docs/tune.md */
    uint64_t n_params;
    const char *metric;  /* metric spec; {trial} and {study} are replaced */
    const char *sampler; /* as in kj_study_options */
    const char *sampler_options;
    const char *pruner;
    const char *pruner_options;
    const char *const *command; /* program and arguments; {name}, {trial}, {study} are replaced, {{
                                   and }} are braces */
    uint64_t n_command;
    uint64_t n_trials; /* trials of the study, those of earlier calls counted; 0 = no end */
    uint32_t jobs;     /* at most this many at once [1] */
    int32_t has_seed;
    uint32_t seed;
    uint32_t grace_ms;      /* between the rungs of the stop ladder [10000] */
    const char *trials_dir; /* where the shims keep a folder per trial [kajitori-trials/STUDY] */
    const char *shim;       /* path of kajitori-shim [found beside the program, then in libexec] */
    kj_tune_event_fn on_event; /* may be NULL */
    void *userdata;
} kj_tune_options;

/*
 * Checks everything that can be checked before anything is written or started: specs, template
 * names, storage, study, search space against the one the study has. Then creates or loads the
 * study.
 */
KJ_API int kj_tune_open(const kj_tune_options *options, kj_tune **ret_tune, kj_error *err);

/*
 * Works until n_trials are finished: 0. KJ_EINTERRUPTED after kj_tune_interrupt. KJ_EFAILED when
 * the program cannot work at all (its first three trials, or all if n_trials is less, failed before
 * they had a value): the message has the end of its output. KJ_EIO when the folder of a trial
 * cannot be written. In both cases nothing more is started, and those that run go on to their end.
 */
KJ_API int kj_tune_run(kj_tune *tune, kj_error *err);

/*
 * Asks a running kj_tune_run to end. First call: no new trials, those that run go on to their end.
 * Second: they are stopped by the ladder and enqueued again. Third: killed at once, and enqueued
 * again. Async-signal-safe; any thread.
 */
KJ_API void kj_tune_interrupt(kj_tune *tune);

/* The study, for looking at it when kj_tune_run is not running. Borrowed. */
KJ_API kj_study *kj_tune_get_study(kj_tune *tune);

KJ_API void kj_tune_close(kj_tune *tune);

#ifdef __cplusplus
}
#endif

#endif
