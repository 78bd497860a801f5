/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages: where studies and trials are kept. The rules are Optuna's: finished trials never
 * change, a report of a step that has one is ignored, numbers are 0, 1, 2, … per study.
 *
 * A storage is for one thread at a time. Several storages may be open on the same database, in one
 * process or in many; each slot is one transaction, so that it has happened wholly or not at all
 * for everybody.
 */
#ifndef KJI_STORAGE_H
#define KJI_STORAGE_H

#include "decision.h"
#include "history.h"

enum { KJI_NAME_LIMIT = 512 }; /* characters of a study name, parameter name or key */

typedef struct kji_study_row {
    int64_t id;
    int32_t direction;    /* of the first objective */
    int32_t n_objectives; /* 0 is possible in databases of others */
} kji_study_row;

/* What one transaction changes in one trial. NULL, 0 or false: not that. */
typedef struct kji_changes {
    const char *param_name; /* a new parameter */
    double param_internal;
    const kji_distribution *param_distribution;
    bool param_is_known; /* the caller knows it to be compatible with the study's */
    const kji_report *reports;
    size_t n_reports;
    const char *user_key; /* a user attribute, replaced when it is there */
    const char *user_json;
    const kji_decision *decision; /* a cut */
    bool has_state;               /* the trial ends */
    int32_t state;                /* COMPLETE, PRUNED or FAIL */
    bool has_value;
    double value; /* not NaN */
} kji_changes;

/* A WAITING trial that is to be created. */
typedef struct kji_queued {
    const char *fixed_params_json; /* system attribute "fixed_params" */
    const kji_attributes *user;    /* may be NULL */
} kji_queued;

typedef int (*kji_name_fn)(void *userdata, const char *name);

typedef struct kji_storage_ops {
    uint32_t size;
    const char *scheme;   /* of the URL, before ":" */
    const char *help;     /* how the URL looks */
    size_t instance_size; /* of the `self` of the slots, allocated zeroed */

    /* Opens what stands behind the scheme; creates it when missing. May block as all slots may,
     * for at most the busy timeout: then KJ_EBUSY. On failure `close` is called. */
    int (*open)(void *self, const char *where, kj_error *err);
    /* Releases everything; also after a failed open. */
    void (*close)(void *self);

    /* KJ_EEXIST when the name is taken. */
    int (*create_study)(void *self, const char *name, int direction, int64_t *ret_id,
                        kj_error *err);
    /* 1 and *ret_row, or 0 when there is none. */
    int (*find_study)(void *self, const char *name, kji_study_row *ret_row, kj_error *err);
    /* Names in order of creation; a nonzero return of `fn` ends it. */
    int (*list_studies)(void *self, kji_name_fn fn, void *userdata, kj_error *err);

    /* 1 and *ret_json (for free) or 0 when not set. */
    int (*get_fact)(void *self, int64_t study_id, const char *key, char **ret_json, kj_error *err);
    int (*set_fact)(void *self, int64_t study_id, const char *key, const char *json, kj_error *err);
    /* Sets it unless it is set: 0, or 1 and *ret_json (for free), what it is. */
    int (*add_fact)(void *self, int64_t study_id, const char *key, const char *json,
                    char **ret_json, kj_error *err);

    /* Turns the WAITING trial of lowest number into a RUNNING one, or creates one. No other caller
     * gets the same. `mark`, when it is not NULL, is a user attribute that the trial gets in the
     * same transaction. *ret_trial is the caller's. KJ_ENOENT when the study is gone. */
    int (*claim_trial)(void *self, int64_t study_id, const kji_attribute *mark,
                       kji_trial **ret_trial, kj_error *err);
    /* Creates a WAITING trial. */
    int (*queue_trial)(void *self, int64_t study_id, const kji_queued *queued, int64_t *ret_number,
                       kj_error *err);
    /*
     * Changes an unfinished trial: all of it or nothing. KJ_ESTATE when it is finished (or, for an
     * end, not RUNNING), KJ_ENOENT when it is gone, KJ_EARG for a parameter that is not compatible
     * with the study's, KJ_EEXIST for one that the trial has already: it keeps its value.
     */
    int (*change_trial)(void *self, int64_t study_id, int64_t trial_id, const kji_changes *changes,
                        kj_error *err);
    /* The distribution that the study has under this name: 1 and *ret (the caller's) or 0. */
    int (*find_param)(void *self, int64_t study_id, const char *name, kji_distribution **ret,
                      kj_error *err);
    /* 1 and the whole trial, which is the caller's; 0 when the study has no such number. */
    int (*read_trial)(void *self, int64_t study_id, int64_t number, kji_trial **ret_trial,
                      kj_error *err);
    /*
     * Brings `history`, which belongs to this study and storage, up to date: new trials, and those
     * that were not finished when it was last read. With `finished_only`, trials that are still
     * unfinished keep the contents of the last full reading (none for new ones). One snapshot:
     * what other processes commit meanwhile is wholly in it or not at all.
     */
    int (*refresh)(void *self, int64_t study_id, bool finished_only, kji_history *history,
                   kj_error *err);
} kji_storage_ops;

struct kj_storage {
    const kji_storage_ops *ops;
    void *self;
    char *url;
};

/* The one wording for all storages: KJ_EEXIST, KJ_ESTATE. */
int kji_storage_refuse_param(const char *name, kj_error *err);
int kji_storage_refuse_state(int64_t number, int state, bool was_to_end, kj_error *err);

/* The registry, one line for each storage: its table is kji_storage_NAME. */
#define KJI_STORAGE_MAP(X) \
    X(sqlite)              \
    X(memory)

#define KJI_STORAGE_DECLARE(name) extern const kji_storage_ops kji_storage_##name;
KJI_STORAGE_MAP(KJI_STORAGE_DECLARE)
#undef KJI_STORAGE_DECLARE

/* NULL past its end. */
const kji_storage_ops *kji_storage_at(size_t index);

#endif
