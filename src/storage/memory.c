/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Studies that live as long as the storage: for tests, for benchmarks, for a search whose trials
 * nobody needs afterwards. Trials are kept in plain arrays, their index is id and number; readers
 * get copies, so that a history behaves as it does over a database.
 */
#include "storage.h"

#include "errors.h"
#include "mem.h"

#include <string.h>

typedef struct memory_study {
    char *name;
    int32_t direction;
    kji_trial **trials;
    size_t n_trials, capacity;
    size_t next_waiting; /* no trial below is WAITING */
    kji_attributes facts;
} memory_study;

typedef struct memory_storage {
    memory_study *studies;
    size_t n, capacity;
} memory_storage;

static int memory_open(void *self, const char *where, kj_error *err)
{
    (void)self;
    if (*where != 0)
        return kji_fail(err, KJ_EARG, "\"memory:%s\" is not a storage: it must be memory:", where);
    return 0;
}

static void memory_close(void *self)
{
    memory_storage *s = self;
    for (size_t k = 0; k < s->n; k++) {
        memory_study *study = &s->studies[k];
        for (size_t t = 0; t < study->n_trials; t++)
            kji_trial_free(study->trials[t]);
        free(study->trials);
        free(study->name);
        kji_attributes_done(&study->facts);
    }
    free(s->studies);
}

static int memory_find_study(void *self, const char *name, kji_study_row *ret_row, kj_error *err)
{
    (void)err;
    memory_storage *s = self;
    for (size_t k = 0; k < s->n; k++) {
        if (strcmp(s->studies[k].name, name) == 0) {
            *ret_row = (kji_study_row){(int64_t)k, s->studies[k].direction, 1};
            return 1;
        }
    }
    return 0;
}

static int memory_create_study(void *self, const char *name, int direction, int64_t *ret_id,
                               kj_error *err)
{
    memory_storage *s = self;
    kji_study_row row;
    if (memory_find_study(self, name, &row, err) == 1)
        return kji_fail(err, KJ_EEXIST, "there is a study \"%s\" already", name);
    char *copy = strdup(name);
    if (!copy || !kji_reserve(&s->studies, &s->capacity, s->n + 1, sizeof *s->studies)) {
        free(copy);
        return kji_fail_memory(err);
    }
    s->studies[s->n] = (memory_study){.name = copy, .direction = direction};
    *ret_id = (int64_t)s->n++;
    return 0;
}

static int memory_list_studies(void *self, kji_name_fn fn, void *userdata, kj_error *err)
{
    (void)err;
    memory_storage *s = self;
    for (size_t k = 0; k < s->n; k++)
        if (fn(userdata, s->studies[k].name) != 0)
            break;
    return 0;
}

static memory_study *get_study(void *self, int64_t id)
{
    return &((memory_storage *)self)->studies[id];
}

static int memory_get_fact(void *self, int64_t study_id, const char *key, char **ret_json,
                           kj_error *err)
{
    const char *json = kji_attributes_get(&get_study(self, study_id)->facts, key);
    if (!json)
        return 0;
    char *copy = strdup(json);
    if (!copy)
        return kji_fail_memory(err);
    *ret_json = copy;
    return 1;
}

static int memory_set_fact(void *self, int64_t study_id, const char *key, const char *json,
                           kj_error *err)
{
    return kji_attributes_set(&get_study(self, study_id)->facts, key, json) ? 0
                                                                            : kji_fail_memory(err);
}

static int memory_add_fact(void *self, int64_t study_id, const char *key, const char *json,
                           char **ret_json, kj_error *err)
{
    int r = memory_get_fact(self, study_id, key, ret_json, err);
    return r != 0 ? r : memory_set_fact(self, study_id, key, json, err);
}

/* Makes room for one more trial, and the trial, which the caller puts there. */
static int add_trial(memory_study *study, kji_trial **ret_trial, kj_error *err)
{
    kji_trial *trial = kji_trial_new();
    if (!trial ||
        !kji_reserve(&study->trials, &study->capacity, study->n_trials + 1, sizeof(kji_trial *))) {
        kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    trial->id = trial->number = (int64_t)study->n_trials;
    *ret_trial = trial;
    return 0;
}

static int memory_claim_trial(void *self, int64_t study_id, const kji_attribute *mark,
                              kji_trial **ret_trial, kj_error *err)
{
    memory_study *study = get_study(self, study_id);
    size_t at = study->next_waiting;
    while (at < study->n_trials && study->trials[at]->state != KJ_TRIAL_WAITING)
        at++;
    study->next_waiting = at;
    bool is_new = at == study->n_trials;
    kji_trial *trial = is_new ? NULL : study->trials[at];
    int r = is_new ? add_trial(study, &trial, err) : 0;
    if (r < 0)
        return r;
    bool marked = !mark || kji_attributes_set(&trial->user, mark->key, mark->json);
    kji_trial *copy = marked ? kji_trial_copy(trial) : NULL;
    if (!copy) {
        if (is_new)
            kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    if (is_new)
        study->trials[study->n_trials++] = trial;
    copy->state = trial->state = KJ_TRIAL_RUNNING;
    copy->start_us = trial->start_us = kji_time_now();
    *ret_trial = copy;
    return 0;
}

static int memory_queue_trial(void *self, int64_t study_id, const kji_queued *queued,
                              int64_t *ret_number, kj_error *err)
{
    memory_study *study = get_study(self, study_id);
    kji_trial *trial;
    int r = add_trial(study, &trial, err);
    if (r < 0)
        return r;
    trial->state = KJ_TRIAL_WAITING;
    bool good = kji_attributes_set(&trial->system, "fixed_params", queued->fixed_params_json);
    for (size_t k = 0; good && queued->user && k < queued->user->n; k++)
        good = kji_attributes_set(&trial->user, queued->user->items[k].key,
                                  queued->user->items[k].json);
    if (!good) {
        kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    study->trials[study->n_trials++] = trial;
    *ret_number = trial->number;
    return 0;
}

static int memory_find_param(void *self, int64_t study_id, const char *name, kji_distribution **ret,
                             kj_error *err)
{
    (void)err;
    memory_study *study = get_study(self, study_id);
    for (size_t k = 0; k < study->n_trials; k++) {
        const kji_param *param = kji_trial_find_param(study->trials[k], name);
        if (param) {
            *ret = kji_distribution_ref(param->distribution);
            return 1;
        }
    }
    return 0;
}

static int check_param(void *self, int64_t study_id, const kji_trial *trial,
                       const kji_changes *changes, kj_error *err)
{
    kji_distribution *old;
    if (!changes->param_name)
        return 0;
    if (kji_trial_find_param(trial, changes->param_name))
        return kji_storage_refuse_param(changes->param_name, err);
    if (changes->param_is_known)
        return 0;
    int r = memory_find_param(self, study_id, changes->param_name, &old, err);
    if (r != 1)
        return r;
    r = kji_distribution_check_compatible(changes->param_name, old, changes->param_distribution,
                                          err);
    kji_distribution_unref(old);
    return r;
}

static bool apply(kji_trial *trial, const kji_changes *c)
{
    if (c->param_name &&
        !kji_trial_add_param(trial, c->param_name, c->param_internal, c->param_distribution))
        return false;
    for (size_t k = 0; k < c->n_reports; k++)
        if (kji_trial_add_report(trial, c->reports[k].step, c->reports[k].value) < 0)
            return false;
    if (c->user_key && !kji_attributes_set(&trial->user, c->user_key, c->user_json))
        return false;
    const kji_decision *d = c->decision;
    if (d && !kji_trial_set_cut(trial, d->rule, d->reason, d->step, d->value, d->threshold,
                                d->peers, d->n_peers))
        return false;
    if (!c->has_state)
        return true;
    if (c->has_value && !kji_trial_set_value(trial, 0, c->value))
        return false;
    trial->state = c->state;
    trial->complete_us = kji_time_now();
    return true;
}

static int memory_change_trial(void *self, int64_t study_id, int64_t trial_id,
                               const kji_changes *changes, kj_error *err)
{
    memory_study *study = get_study(self, study_id);
    kji_trial *trial = study->trials[trial_id];
    if (kji_trial_is_finished(trial) || (changes->has_state && trial->state != KJ_TRIAL_RUNNING))
        return kji_storage_refuse_state(trial->number, trial->state, changes->has_state, err);
    int r = check_param(self, study_id, trial, changes, err);
    if (r < 0)
        return r;
    kji_trial *copy = kji_trial_copy(trial); /* so that a failure half way leaves the old one */
    if (!copy || !apply(copy, changes)) {
        kji_trial_free(copy);
        return kji_fail_memory(err);
    }
    study->trials[trial_id] = copy;
    kji_trial_free(trial);
    return 0;
}

static int memory_read_trial(void *self, int64_t study_id, int64_t number, kji_trial **ret_trial,
                             kj_error *err)
{
    memory_study *study = get_study(self, study_id);
    if (number < 0 || (uint64_t)number >= study->n_trials)
        return 0;
    kji_trial *copy = kji_trial_copy(study->trials[number]);
    if (!copy)
        return kji_fail_memory(err);
    *ret_trial = copy;
    return 1;
}

static int memory_refresh(void *self, int64_t study_id, bool finished_only, kji_history *history,
                          kj_error *err)
{
    memory_study *study = get_study(self, study_id);
    for (size_t k = 0; k < study->n_trials; k++) {
        const kji_trial *old = kji_history_find(history, (int64_t)k);
        const kji_trial *now = study->trials[k];
        if (old && (kji_trial_is_finished(old) || (finished_only && !kji_trial_is_finished(now))))
            continue;
        kji_trial *copy = kji_trial_copy(now);
        if (!copy)
            return kji_fail_memory(err);
        int r = kji_history_put(history, copy, err);
        if (r < 0)
            return r;
    }
    return 0;
}

const kji_storage_ops kji_storage_memory = {
    .size = sizeof(kji_storage_ops),
    .scheme = "memory",
    .help = "memory:",
    .instance_size = sizeof(memory_storage),
    .open = memory_open,
    .close = memory_close,
    .create_study = memory_create_study,
    .find_study = memory_find_study,
    .list_studies = memory_list_studies,
    .get_fact = memory_get_fact,
    .set_fact = memory_set_fact,
    .add_fact = memory_add_fact,
    .claim_trial = memory_claim_trial,
    .queue_trial = memory_queue_trial,
    .change_trial = memory_change_trial,
    .find_param = memory_find_param,
    .read_trial = memory_read_trial,
    .refresh = memory_refresh,
};
