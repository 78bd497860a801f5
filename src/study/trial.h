/* SPDX-License-Identifier: Apache-2.0 */
/* A trial as it is stored. Everything a trial points to is its own, distributions are shared. */
#ifndef KJI_TRIAL_H
#define KJI_TRIAL_H

#include "distribution.h"
#include "time-text.h"

#include <kajitori/study.h>

#include <stdbool.h>

typedef struct kji_param {
    char *name;
    double internal;
    kji_distribution *distribution;
} kji_param;

typedef struct kji_report {
    int64_t step;
    double value;
} kji_report;

typedef struct kji_attribute {
    char *key;
    char *json;
} kji_attribute;

typedef struct kji_attributes {
    kji_attribute *items;
    size_t n, capacity;
} kji_attributes;

/* A decision that was stored. */
typedef struct kji_cut {
    char *rule;
    char *reason;
    int64_t step;
    double value;
    double threshold;
    int64_t *peers;
    size_t n_peers;
} kji_cut;

typedef struct kji_trial {
    int64_t id; /* the storage's */
    int64_t number;
    int32_t state;       /* enum kj_trial_state */
    int64_t start_us;    /* UTC, microseconds since 1970; KJI_TIME_NONE */
    int64_t complete_us; /* likewise */
    double *values;      /* one per objective; NaN where the row is missing */
    size_t n_values, values_capacity;
    kji_param *params; /* in stored order */
    size_t n_params, params_capacity;
    kji_report *reports; /* ascending by step */
    size_t n_reports, reports_capacity;
    kji_attributes user, system;
    kji_cut *cut; /* NULL: none stored */
} kji_trial;

kji_trial *kji_trial_new(void); /* NULL when memory is gone */
void kji_trial_free(kji_trial *trial);
kji_trial *kji_trial_copy(const kji_trial *trial);

static inline bool kji_trial_is_finished(const kji_trial *trial)
{
    return trial->state == KJ_TRIAL_COMPLETE || trial->state == KJ_TRIAL_PRUNED ||
           trial->state == KJ_TRIAL_FAIL;
}

/* All of these copy what they are given; false when memory is gone. */
bool kji_trial_set_value(kji_trial *trial, size_t objective, double value);
bool kji_trial_add_param(kji_trial *trial, const char *name, double internal,
                         const kji_distribution *distribution);
bool kji_trial_set_cut(kji_trial *trial, const char *rule, const char *reason, int64_t step,
                       double value, double threshold, const int64_t *peers, size_t n_peers);
bool kji_attributes_set(kji_attributes *attributes, const char *key, const char *json);
void kji_attributes_done(kji_attributes *attributes);

/* 1 = taken, 0 = the step has a value already, KJ_EMEM. */
int kji_trial_add_report(kji_trial *trial, int64_t step, double value);

/* NULL when there is none. */
const kji_param *kji_trial_find_param(const kji_trial *trial, const char *name);
const char *kji_attributes_get(const kji_attributes *attributes, const char *key);

/* -1 when nothing was reported. */
int64_t kji_trial_last_step(const kji_trial *trial);

/* KJ_TRIAL_… of "COMPLETE", …; -1 for none. */
int kji_trial_state_parse(const char *name);

#endif
