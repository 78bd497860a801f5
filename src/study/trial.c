/* SPDX-License-Identifier: Apache-2.0 */
#include "trial.h"

#include "mem.h"

#include <math.h>
#include <string.h>

static const char *const state_names[] = {
    [KJ_TRIAL_RUNNING] = "RUNNING", [KJ_TRIAL_COMPLETE] = "COMPLETE", [KJ_TRIAL_PRUNED] = "PRUNED",
    [KJ_TRIAL_FAIL] = "FAIL",       [KJ_TRIAL_WAITING] = "WAITING",
};

enum { N_STATES = sizeof state_names / sizeof *state_names };

const char *kj_trial_state_name(int state)
{
    return state >= 0 && state < N_STATES ? state_names[state] : NULL;
}

int kji_trial_state_parse(const char *name)
{
    for (int k = 0; k < N_STATES; k++)
        if (strcmp(name, state_names[k]) == 0)
            return k;
    return -1;
}

kji_trial *kji_trial_new(void)
{
    kji_trial *trial = calloc(1, sizeof *trial);
    if (trial) {
        trial->number = -1;
        trial->start_us = trial->complete_us = KJI_TIME_NONE;
    }
    return trial;
}

void kji_attributes_done(kji_attributes *attributes)
{
    for (size_t k = 0; k < attributes->n; k++) {
        free(attributes->items[k].key);
        free(attributes->items[k].json);
    }
    free(attributes->items);
}

static void cut_free(kji_cut *cut)
{
    if (!cut)
        return;
    free(cut->rule);
    free(cut->reason);
    free(cut->peers);
    free(cut);
}

void kji_trial_free(kji_trial *trial)
{
    if (!trial)
        return;
    for (size_t k = 0; k < trial->n_params; k++) {
        free(trial->params[k].name);
        kji_distribution_unref(trial->params[k].distribution);
    }
    free(trial->params);
    free(trial->values);
    free(trial->reports);
    kji_attributes_done(&trial->user);
    kji_attributes_done(&trial->system);
    cut_free(trial->cut);
    free(trial);
}

bool kji_trial_set_value(kji_trial *trial, size_t objective, double value)
{
    if (!kji_reserve(&trial->values, &trial->values_capacity, objective + 1, sizeof *trial->values))
        return false;
    while (trial->n_values <= objective)
        trial->values[trial->n_values++] = NAN;
    trial->values[objective] = value;
    return true;
}

bool kji_trial_add_param(kji_trial *trial, const char *name, double internal,
                         const kji_distribution *distribution)
{
    char *copy = strdup(name);
    if (!copy || !kji_reserve(&trial->params, &trial->params_capacity, trial->n_params + 1,
                              sizeof *trial->params)) {
        free(copy);
        return false;
    }
    trial->params[trial->n_params++] =
        (kji_param){copy, internal, kji_distribution_ref(distribution)};
    return true;
}

/* Where `step` is, or would have to be put. */
static size_t find_step(const kji_trial *trial, int64_t step)
{
    return kji_lower_bound(trial->reports, trial->n_reports, sizeof *trial->reports,
                           offsetof(kji_report, step), step);
}

int kji_trial_add_report(kji_trial *trial, int64_t step, double value)
{
    size_t at = find_step(trial, step);
    if (at < trial->n_reports && trial->reports[at].step == step)
        return 0;
    if (!kji_reserve(&trial->reports, &trial->reports_capacity, trial->n_reports + 1,
                     sizeof *trial->reports))
        return KJ_EMEM;
    memmove(&trial->reports[at + 1], &trial->reports[at],
            (trial->n_reports - at) * sizeof *trial->reports);
    trial->reports[at] = (kji_report){step, value};
    trial->n_reports++;
    return 1;
}

bool kji_trial_set_cut(kji_trial *trial, const char *rule, const char *reason, int64_t step,
                       double value, double threshold, const int64_t *peers, size_t n_peers)
{
    kji_cut *cut = calloc(1, sizeof *cut);
    if (!cut)
        return false;
    *cut = (kji_cut){strdup(rule), strdup(reason), step,
                     value,        threshold,      malloc((n_peers ? n_peers : 1) * sizeof *peers),
                     n_peers};
    if (!cut->rule || !cut->reason || !cut->peers) {
        cut_free(cut);
        return false;
    }
    if (n_peers > 0)
        memcpy(cut->peers, peers, n_peers * sizeof *peers);
    cut_free(trial->cut);
    trial->cut = cut;
    return true;
}

bool kji_attributes_set(kji_attributes *attributes, const char *key, const char *json)
{
    char *json_copy = strdup(json);
    if (!json_copy)
        return false;
    for (size_t k = 0; k < attributes->n; k++) {
        if (strcmp(attributes->items[k].key, key) == 0) {
            free(attributes->items[k].json);
            attributes->items[k].json = json_copy;
            return true;
        }
    }
    char *key_copy = strdup(key);
    if (!key_copy || !kji_reserve(&attributes->items, &attributes->capacity, attributes->n + 1,
                                  sizeof *attributes->items)) {
        free(key_copy);
        free(json_copy);
        return false;
    }
    attributes->items[attributes->n++] = (kji_attribute){key_copy, json_copy};
    return true;
}

const char *kji_attributes_get(const kji_attributes *attributes, const char *key)
{
    for (size_t k = 0; k < attributes->n; k++)
        if (strcmp(attributes->items[k].key, key) == 0)
            return attributes->items[k].json;
    return NULL;
}

const kji_param *kji_trial_find_param(const kji_trial *trial, const char *name)
{
    for (size_t k = 0; k < trial->n_params; k++)
        if (strcmp(trial->params[k].name, name) == 0)
            return &trial->params[k];
    return NULL;
}

int64_t kji_trial_last_step(const kji_trial *trial)
{
    return trial->n_reports ? trial->reports[trial->n_reports - 1].step : -1;
}

static bool attributes_copy(kji_attributes *to, const kji_attributes *from)
{
    for (size_t k = 0; k < from->n; k++)
        if (!kji_attributes_set(to, from->items[k].key, from->items[k].json))
            return false;
    return true;
}

static bool copy_into(kji_trial *copy, const kji_trial *trial)
{
    copy->id = trial->id;
    copy->number = trial->number;
    copy->state = trial->state;
    copy->start_us = trial->start_us;
    copy->complete_us = trial->complete_us;
    for (size_t k = 0; k < trial->n_values; k++)
        if (!kji_trial_set_value(copy, k, trial->values[k]))
            return false;
    for (size_t k = 0; k < trial->n_params; k++) {
        const kji_param *param = &trial->params[k];
        if (!kji_trial_add_param(copy, param->name, param->internal, param->distribution))
            return false;
    }
    for (size_t k = 0; k < trial->n_reports; k++)
        if (kji_trial_add_report(copy, trial->reports[k].step, trial->reports[k].value) < 0)
            return false;
    const kji_cut *cut = trial->cut;
    if (cut && !kji_trial_set_cut(copy, cut->rule, cut->reason, cut->step, cut->value,
                                  cut->threshold, cut->peers, cut->n_peers))
        return false;
    return attributes_copy(&copy->user, &trial->user) &&
           attributes_copy(&copy->system, &trial->system);
}

kji_trial *kji_trial_copy(const kji_trial *trial)
{
    kji_trial *copy = kji_trial_new();
    if (copy && !copy_into(copy, trial)) {
        kji_trial_free(copy);
        return NULL;
    }
    return copy;
}
