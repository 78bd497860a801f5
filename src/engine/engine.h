/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind the public handles of a study and of one of its trials. */
#ifndef KJI_ENGINE_H
#define KJI_ENGINE_H

#include "pruner.h"
#include "sampler.h"
#include "storage.h"

struct kj_study {
    kj_storage *storage; /* the caller's */
    char *name;
    int64_t id;
    int32_t direction;
    kji_sampler *sampler;
    kji_pruner *pruner;
    kji_history *history;
    kji_param *space; /* names that are known to be in the study, `internal` unused */
    size_t n_space, space_capacity;
    bool has_asked;     /* for a trial, so that the sampler knows where the study stands */
    kji_attribute mark; /* what every claimed trial gets, key NULL: nothing */
};

struct kj_trial {
    kj_study *study;
    kji_trial *stored;   /* with what is still buffered */
    kji_report *pending; /* reports that are not in the storage yet */
    size_t n_pending, pending_capacity;
    char *fixed_params;    /* JSON object of an enqueued trial, NULL for none */
    kji_decision decision; /* the newest one, its peers in `peers` */
    int64_t *peers;
    size_t peers_capacity;
};

/* Makes a handle; takes `stored` over, also when it fails. */
int kji_trial_handle_new(kj_study *study, kji_trial *stored, kj_trial **ret_trial, kj_error *err);

/* Optuna's text of any JSON text, for free. KJ_EDATA, prefixed with `what`. */
int kji_to_optuna_json(const char *json, const char *what, char **ret_json, kj_error *err);

/* A name or key: not NULL, UTF-8, at most KJI_NAME_LIMIT characters. KJ_EARG, with `what`. */
int kji_check_name(const char *name, const char *what, kj_error *err);

#endif
