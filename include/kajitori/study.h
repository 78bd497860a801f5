/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Studies: search spaces, trials, samplers, pruners, storages, in Optuna's formats and with
 * Optuna's rules (docs/studies.md).
 *
 *     kj_storage_open("sqlite:///kajitori.db", &storage, &err);
 *     kj_study_open(storage, &options, &study, &err);
 *     while (...) {
 *         kj_study_ask(study, &trial, &err);
 *         kj_trial_suggest(trial, "lr", &lr_distribution, &lr, &err);
 *         for (step = 0; ...; step++) {
 *             kj_trial_report(trial, step, loss, &err);
 *             if (kj_trial_should_prune(trial, &decision, &err) == 1) ...
 *         }
 *         kj_study_tell(study, trial, KJ_TRIAL_COMPLETE, &loss, 1, &err);
 *         kj_trial_free(trial);
 *     }
 *
 * A storage, its studies and their trials are for one thread at a time, and must not be used across
 * fork. Trials are freed before their study is closed, studies before their storage. Several
 * storages on one database are independent, in one process or many.
 */
#ifndef KAJITORI_STUDY_H
#define KAJITORI_STUDY_H

#include <kajitori/error.h>
#include <kajitori/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_storage kj_storage;
typedef struct kj_study kj_study;
typedef struct kj_trial kj_trial;

/* Optuna's numbers. */
enum kj_direction {
    KJ_DIRECTION_NOT_SET = 0,
    KJ_DIRECTION_MINIMIZE = 1,
    KJ_DIRECTION_MAXIMIZE = 2
};

enum kj_trial_state {
    KJ_TRIAL_RUNNING = 0,
    KJ_TRIAL_COMPLETE = 1,
    KJ_TRIAL_PRUNED = 2,
    KJ_TRIAL_FAIL = 3,
    KJ_TRIAL_WAITING = 4
};

/* "RUNNING", ...; NULL for a number that is none. */
KJ_API const char *kj_trial_state_name(int state);

enum kj_distribution_kind {
    KJ_DISTRIBUTION_FLOAT = 1,
    KJ_DISTRIBUTION_INT = 2,
    KJ_DISTRIBUTION_CATEGORICAL = 3
};

/*
 * Where a hyperparameter may lie. Float: [low, high], `step` 0 = continuous. Int: [int_low,
 * int_high] by int_step (0 = 1). `log`: uniform in the logarithm, not together with a step.
 * Categorical: one of n_choices values.
 */
typedef struct kj_distribution {
    uint32_t size; /* sizeof(kj_distribution) of the caller */
    int32_t kind;  /* enum kj_distribution_kind */
    int32_t log;
    int32_t reserved;
    double low;
    double high;
    double step;
    int64_t int_low;
    int64_t int_high;
    int64_t int_step;
    const kj_value *choices;
    uint64_t n_choices;
} kj_distribution;

#define KJ_DISTRIBUTION_INIT                                        \
    {                                                               \
        sizeof(kj_distribution), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0 \
    }

/*
 * Opens, and creates when missing, the storage at `url`: "sqlite:///PATH" (three slashes: relative
 * to the working folder, four: absolute), "memory:". KJ_EARG, KJ_EREVISION for a schema this
 * version does not know, KJ_EBUSY when another process holds it locked for too long, KJ_EDATABASE.
 */
KJ_API int kj_storage_open(const char *url, kj_storage **ret_storage, kj_error *err);
KJ_API void kj_storage_close(kj_storage *storage);

enum kj_study_flag {
    KJ_STUDY_CREATE = 1, /* create it when it does not exist */
    KJ_STUDY_LOAD = 2    /* use it when it exists; both: either way */
};

typedef struct kj_study_options {
    uint32_t size;
    uint32_t flags;    /* enum kj_study_flag; 0 = KJ_STUDY_LOAD */
    const char *name;  /* at most 512 characters; NULL with KJ_STUDY_CREATE: made up */
    int32_t direction; /* enum kj_direction; for a study that exists NOT_SET = whatever it has, else
                          it must agree */
    int32_t has_seed;  /* nonzero: `seed` is given; else the sampler seeds itself. In a study that
                          has trials already, the first trial's number counts as a part of it */
    uint32_t seed;
    uint32_t reserved;
    const char *sampler;         /* kj_sampler_get_info lists them [random] */
    const char *sampler_options; /* "key=value,key=value"; kj_sampler_get_option lists them */
    const char *pruner;          /* kj_pruner_get_info lists them [median] */
    const char *pruner_options;  /* "key=value,key=value"; kj_pruner_get_option lists them */
} kj_study_options;

#define KJ_STUDY_OPTIONS_INIT                                                 \
    {                                                                         \
        sizeof(kj_study_options), 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL \
    }

/* KJ_EEXIST (exists, KJ_STUDY_LOAD not set), KJ_ENOENT (lists the studies there are), KJ_EARG
 * (unknown sampler, pruner, option). */
KJ_API int kj_study_open(kj_storage *storage, const kj_study_options *options, kj_study **ret_study,
                         kj_error *err);
KJ_API void kj_study_close(kj_study *study);
KJ_API const char *kj_study_get_name(const kj_study *study);
KJ_API int kj_study_get_direction(const kj_study *study);

/* A fact of ours about the study (not visible as an Optuna attribute): any JSON text. get: 1 and
 * *ret_json for kj_free, 0 when not set. */
KJ_API int kj_study_set_fact(kj_study *study, const char *key, const char *json, kj_error *err);
KJ_API int kj_study_get_fact(kj_study *study, const char *key, char **ret_json, kj_error *err);
/* Sets it unless it is set, also by another process at the same time: 0, or 1 and *ret_json for
 * kj_free, what it is already. */
KJ_API int kj_study_add_fact(kj_study *study, const char *key, const char *json, char **ret_json,
                             kj_error *err);

/* Claims the first WAITING trial, else creates one; the trial is RUNNING afterwards. The handle is
 * freed with kj_trial_free. */
KJ_API int kj_study_ask(kj_study *study, kj_trial **ret_trial, kj_error *err);

/*
 * From now on every trial that kj_study_ask claims through this handle gets this user attribute
 * (any JSON text) in the same transaction: nobody ever sees it RUNNING without.
 */
KJ_API int kj_study_mark_claims(kj_study *study, const char *key, const char *json, kj_error *err);

/* The handle of a trial that exists, for example one that is RUNNING since before this process.
 * KJ_ENOENT. */
KJ_API int kj_study_get_trial(kj_study *study, int64_t number, kj_trial **ret_trial, kj_error *err);

/*
 * Adds a WAITING trial with the given parameters, as Optuna's enqueue_trial: `params_json` is an
 * object of name to value, NULL for none. `attributes_json`: user attributes to set on it, NULL for
 * none. KJ_EDATA: not JSON; KJ_EARG: not an object, or a parameter that is not a single value.
 */
KJ_API int kj_study_enqueue(kj_study *study, const char *params_json, const char *attributes_json,
                            int64_t *ret_number, kj_error *err);

KJ_API void kj_trial_free(kj_trial *trial);
KJ_API int64_t kj_trial_get_number(const kj_trial *trial);

/*
 * The value of hyperparameter `name`, drawn at the first call, stored, and the same afterwards. A
 * string is valid until kj_trial_free. KJ_EARG: not a distribution, or not compatible with the one
 * the study has under this name (says which).
 */
KJ_API int kj_trial_suggest(kj_trial *trial, const char *name, const kj_distribution *distribution,
                            kj_value *ret_value, kj_error *err);

/*
 * Reports an intermediate value, step >= 0. The first report of a step counts: 0 = taken, 1 = the
 * step was reported before, ignored. Buffered: stored with the next call on this
 * trial that stores anything, kj_trial_should_prune or kj_trial_flush; lost with the handle.
 */
KJ_API int kj_trial_report(kj_trial *trial, int64_t step, double value, kj_error *err);
KJ_API int kj_trial_flush(kj_trial *trial, kj_error *err);

/* Why a trial is cut or kept. Strings are valid until the next call on the trial. */
typedef struct kj_decision {
    uint32_t size;
    int32_t prune;        /* 1 = prune, 0 = keep */
    const char *rule;     /* "median" */
    const char *reason;   /* one line for people: "best 0.71 until step 4 is worse than the median
                             0.42 of 6 trials" */
    int64_t step;         /* the step at which it was taken, -1 when nothing was reported */
    double value;         /* what was compared, NaN when nothing was */
    double threshold;     /* with what, NaN when nothing was */
    uint64_t n_peers;     /* trials behind the threshold */
    const int64_t *peers; /* their numbers */
} kj_decision;

#define KJ_DECISION_INIT                                     \
    {                                                        \
        sizeof(kj_decision), 0, NULL, NULL, 0, 0, 0, 0, NULL \
    }

/* Asks the pruner: 1 = prune, 0 = keep. A cut is stored with its decision before this returns.
 * `ret_decision` may be NULL; else its `size` must be set. */
KJ_API int kj_trial_should_prune(kj_trial *trial, kj_decision *ret_decision, kj_error *err);

/* A user attribute, any JSON text. */
KJ_API int kj_trial_set_attribute(kj_trial *trial, const char *key, const char *json,
                                  kj_error *err);

/*
 * Ends a trial: COMPLETE with one value, PRUNED and FAIL without (PRUNED stores the last reported
 * value, as Optuna does). KJ_ESTATE when it is not RUNNING. Everything is in one transaction with
 * what was still buffered.
 */
KJ_API int kj_study_tell(kj_study *study, kj_trial *trial, int state, const double *values,
                         uint64_t n_values, kj_error *err);

typedef struct kj_trial_list kj_trial_list;

typedef struct kj_param_info {
    const char *name;
    kj_value value;
} kj_param_info;

typedef struct kj_trial_info {
    uint32_t size;
    int32_t state;
    int64_t number;
    int32_t has_value;
    int32_t reserved;
    double value;
    const char *start; /* local time, "YYYY-MM-DD HH:MM:SS", "" when NULL */
    const char *complete;
    uint64_t n_params;
    const kj_param_info *params; /* in stored order */
    uint64_t n_reports;
    const int64_t *report_steps; /* ascending */
    const double *report_values;
    const kj_decision *cut; /* the stored decision of a pruned trial, NULL when there is none */
    const char *attributes_json; /* user attributes, one object */
} kj_trial_info;

/* A snapshot of all trials by number. Later changes do not show in it. */
KJ_API int kj_study_list_trials(kj_study *study, kj_trial_list **ret_list, kj_error *err);
KJ_API void kj_trial_list_free(kj_trial_list *list);
KJ_API uint64_t kj_trial_list_size(const kj_trial_list *list);
KJ_API const kj_trial_info *kj_trial_list_get(const kj_trial_list *list, uint64_t index);
/* The COMPLETE trial with the best value in the study's direction, NULL when there is none. */
KJ_API const kj_trial_info *kj_trial_list_best(const kj_trial_list *list);

typedef struct kj_option_info {
    uint32_t size;
    int32_t type; /* enum kj_type */
    const char *key;
    const char *default_text;
    const char *help;
} kj_option_info;

#define KJ_OPTION_INFO_INIT                         \
    {                                               \
        sizeof(kj_option_info), 0, NULL, NULL, NULL \
    }

/* Names and help of what is registered: 1, or 0 when index is past the end. */
KJ_API int kj_pruner_get_info(uint64_t index, const char **ret_name, const char **ret_help);
KJ_API int kj_sampler_get_info(uint64_t index, const char **ret_name, const char **ret_help);
/* The option number `option` of pruner number `index`: 1, or 0 past the end. ret_option->size must
 * be set. */
KJ_API int kj_pruner_get_option(uint64_t index, uint64_t option, kj_option_info *ret_option);
KJ_API int kj_sampler_get_option(uint64_t index, uint64_t option, kj_option_info *ret_option);

#ifdef __cplusplus
}
#endif

#endif
