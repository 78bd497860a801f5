/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registered parameters. The table is read by the helper thread under the run's lock; getters
 * and setters are called by the training thread, without it.
 */
#ifndef KJI_PARAMS_H
#define KJI_PARAMS_H

#include "domain.h"

#include <kajitori/run.h>

enum { KJI_PARAMS_MAX = 1024 };

typedef struct kji_param {
    char *name;
    char *unit; /* NULL: none */
    char *help;
    kji_domain domain;
    bool read_only;
    int32_t effect;
    int (*get)(void *userdata, kj_value *ret_value, kj_error *err);
    int (*set)(void *userdata, const kj_value *value, kj_error *err);
    void *userdata;
    kj_value value; /* last known; a string is the table's own */
    int64_t step;   /* when it was read */
    bool stale;     /* somebody asked for it to be read anew */
    bool warned;    /* the last reading failed, and this was said */
} kji_param;

typedef struct kji_params {
    kji_param **item; /* addresses stay valid while the table grows */
    size_t n;
    size_t capacity;
} kji_params;

void kji_params_done(kji_params *params);

/* A copy of `from` with nothing read yet, checked. */
int kji_param_new(const kj_param *from, kji_param **ret_param, kj_error *err);
void kji_param_free(kji_param *param);

/* Takes over `param`. KJ_EEXIST, KJ_ERANGE when there are too many; then it stays the caller's. */
int kji_params_add(kji_params *params, kji_param *param, kj_error *err);

kji_param *kji_params_find(const kji_params *params, const char *name);
/* KJ_EREJECTED with the nearest name and the list. */
int kji_params_fail_unknown(const kji_params *params, const char *name, kj_error *err);

/* What the getter says, as a copy of the library's own (kji_value_done). No lock held. */
int kji_param_read(const kji_param *param, kj_value *ret_value, kj_error *err);
/* Puts a value that was read into the table. Takes it over. */
void kji_param_store(kji_param *param, kj_value *value, int64_t step);

void kji_value_done(kj_value *value);

/* A value that a getter gave; what is not UTF-8 in it is replaced. */
struct json_object *kji_value_json(const kj_value *value);
/* The last known value as it may be shown: secrets masked. */
struct json_object *kji_param_shown(const kji_param *param);
/* The protocol's object of one parameter. */
struct json_object *kji_param_describe(const kji_param *param);

/* Checks the arguments of `set`, and replaces each by its value of the right type. */
int kji_params_check_set(const kji_params *params, struct json_object *args, kj_error *err);

#endif
