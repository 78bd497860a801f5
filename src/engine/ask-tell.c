/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one trial: suggest, report, should_prune, tell.
 *
 * Reports are buffered in the handle and go out with whatever is stored next, in one transaction:
 * a cut with the reports that led to it, an end with the last ones. The pruner sees the buffered
 * ones too, so a decision needs nothing to be written first.
 */
#include "engine.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"

#include <math.h>
#include <string.h>

int kji_trial_handle_new(kj_study *study, kji_trial *stored, kj_trial **ret_trial, kj_error *err)
{
    kj_trial *trial = calloc(1, sizeof *trial);
    if (!trial) {
        kji_trial_free(stored);
        return kji_fail_memory(err);
    }
    trial->study = study;
    trial->stored = stored;
    const char *fixed = kji_attributes_get(&stored->system, "fixed_params");
    if (fixed && !(trial->fixed_params = strdup(fixed))) {
        kj_trial_free(trial);
        return kji_fail_memory(err);
    }
    *ret_trial = trial;
    return 0;
}

void kj_trial_free(kj_trial *trial)
{
    if (!trial)
        return;
    kji_trial_free(trial->stored);
    free(trial->pending);
    free(trial->fixed_params);
    free(trial->peers);
    free(trial);
}

int64_t kj_trial_get_number(const kj_trial *trial)
{
    return trial->stored->number;
}

/* Stores `changes` together with what is buffered. */
static int store(kj_trial *trial, kji_changes *changes, kj_error *err)
{
    kj_storage *storage = trial->study->storage;
    changes->reports = trial->pending;
    changes->n_reports = trial->n_pending;
    int r = storage->ops->change_trial(storage->self, trial->study->id, trial->stored->id, changes,
                                       err);
    if (r < 0)
        return r;
    trial->n_pending = 0;
    return 0;
}

static const kji_param *find_known(const kj_study *study, const char *name)
{
    for (size_t k = 0; k < study->n_space; k++)
        if (strcmp(study->space[k].name, name) == 0)
            return &study->space[k];
    return NULL;
}

/* Remembers that the study has `name`; a failure only costs a query later. */
static void remember(kj_study *study, const char *name, const kji_distribution *distribution)
{
    char *copy = strdup(name);
    if (!copy || !kji_reserve(&study->space, &study->space_capacity, study->n_space + 1,
                              sizeof *study->space)) {
        free(copy);
        return;
    }
    study->space[study->n_space++] = (kji_param){copy, 0, kji_distribution_ref(distribution)};
}

/* 1 and the value that an enqueued trial has been given, 0 when it was not. */
static int find_fixed(const kj_trial *trial, const char *name, const kji_distribution *distribution,
                      double *ret_internal, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *fixed = NULL;
    struct json_object *member;
    kj_value value;
    if (!trial->fixed_params)
        return 0;
    int r = kji_json_parse(trial->fixed_params, strlen(trial->fixed_params), &fixed, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "fixed_params of trial %lld",
                               (long long)trial->stored->number);
    if (!json_object_is_type(fixed, json_type_object) ||
        !json_object_object_get_ex(fixed, name, &member))
        return 0;
    if (!kji_json_get_value(member, &value))
        return kji_fail(err, KJ_EARG, "its enqueued value is not a single value");
    r = kji_distribution_to_internal(distribution, &value, ret_internal, err);
    if (r < 0)
        return r;
    if (!kji_distribution_contains(distribution, *ret_internal))
        kji_log(KJ_LOG_WARNING, "trial %lld: the enqueued value of \"%s\" is out of its range",
                (long long)trial->stored->number, name);
    return 1;
}

static int choose(kj_trial *trial, const char *name, const kji_distribution *distribution,
                  double *ret_internal, kj_error *err)
{
    int r = find_fixed(trial, name, distribution, ret_internal, err);
    if (r != 0)
        return r < 0 ? r : 0;
    if (kji_distribution_is_single(distribution)) {
        *ret_internal = kji_distribution_first(distribution);
        return 0;
    }
    return kji_sampler_sample(trial->study->sampler, trial->study->history, trial->stored, name,
                              distribution, ret_internal, err);
}

/* Another handle of the same trial has drawn it first: that is its value. */
static int adopt_param(kj_trial *trial, const char *name, const kji_distribution *wanted,
                       kj_error *err)
{
    kj_study *study = trial->study;
    kji_trial *stored = NULL;
    int r = study->storage->ops->read_trial(study->storage->self, study->id, trial->stored->number,
                                            &stored, err);
    if (r < 0)
        return r;
    const kji_param *param = r == 1 ? kji_trial_find_param(stored, name) : NULL;
    if (!param)
        r = kji_fail(err, KJ_ENOENT, "trial %lld is gone", (long long)trial->stored->number);
    else
        r = kji_distribution_check_compatible(name, param->distribution, wanted, err);
    if (r >= 0 && !kji_trial_add_param(trial->stored, name, param->internal, param->distribution))
        r = kji_fail_memory(err);
    kji_trial_free(stored);
    return r;
}

static int add_param(kj_trial *trial, const char *name, const kji_distribution *distribution,
                     kj_error *err)
{
    const kji_param *known = find_known(trial->study, name);
    double internal = 0;
    int r =
        known ? kji_distribution_check_compatible(name, known->distribution, distribution, err) : 0;
    if (r < 0)
        return r;
    r = choose(trial, name, distribution, &internal, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "parameter \"%s\"", name);
    kji_changes changes = {
        .param_name = name,
        .param_internal = internal,
        .param_distribution = distribution,
        .param_is_known = known != NULL,
    };
    kj_error failure = KJ_ERROR_INIT;
    r = store(trial, &changes, &failure);
    if (r == KJ_EEXIST)
        return adopt_param(trial, name, distribution, err);
    if (r < 0)
        return kji_forward(err, &failure);
    if (!known)
        remember(trial->study, name, distribution);
    return kji_trial_add_param(trial->stored, name, internal, distribution) ? 0
                                                                            : kji_fail_memory(err);
}

static int check_running(const kj_trial *trial, kj_error *err)
{
    return trial->stored->state == KJ_TRIAL_RUNNING
               ? 0
               : kji_storage_refuse_state(trial->stored->number, trial->stored->state, false, err);
}

static int suggest(kj_trial *trial, const char *name, const kji_distribution *wanted,
                   kj_value *ret_value, kj_error *err)
{
    const kji_param *param = kji_trial_find_param(trial->stored, name);
    int r = param ? kji_distribution_check_compatible(name, param->distribution, wanted, err)
                  : check_running(trial, err);
    if (r >= 0 && !param)
        r = add_param(trial, name, wanted, err);
    if (r < 0)
        return r;
    param = kji_trial_find_param(trial->stored, name);
    return kji_distribution_to_external(param->distribution, param->internal, ret_value, err);
}

/* Ranges that may stand in a study, but that nothing can be drawn from. */
static int check_drawable(const kj_distribution *d, kj_error *err)
{
    if (d->kind != KJ_DISTRIBUTION_FLOAT || isfinite(d->high - d->low))
        return 0;
    char low[KJI_DOUBLE_TEXT], high[KJI_DOUBLE_TEXT];
    return kji_fail(err, KJ_EARG, "the range must be finite; it is %s to %s",
                    kji_double_text(d->low, low), kji_double_text(d->high, high));
}

int kj_trial_suggest(kj_trial *trial, const char *name, const kj_distribution *distribution,
                     kj_value *ret_value, kj_error *err)
{
    int r = kji_check_name(name, "the parameter's name", err);
    if (r < 0)
        return r;
    if (!distribution)
        return kji_fail(err, KJ_EARG, "parameter \"%s\": the distribution is missing", name);
    kji_distribution *wanted;
    r = kji_check_size(distribution->size, sizeof *distribution, "kj_distribution", err);
    if (r >= 0)
        r = check_drawable(distribution, err);
    if (r >= 0)
        r = kji_distribution_new(distribution, &wanted, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "parameter \"%s\"", name);
    r = suggest(trial, name, wanted, ret_value, err);
    kji_distribution_unref(wanted);
    return r;
}

int kj_trial_report(kj_trial *trial, int64_t step, double value, kj_error *err)
{
    int r = check_running(trial, err);
    if (r < 0)
        return r;
    if (step < 0)
        return kji_fail(err, KJ_EARG, "step %lld is refused: steps begin at 0", (long long)step);
    if (!kji_reserve(&trial->pending, &trial->pending_capacity, trial->n_pending + 1,
                     sizeof *trial->pending))
        return kji_fail_memory(err);
    r = kji_trial_add_report(trial->stored, step, value);
    if (r < 0)
        return kji_fail_memory(err);
    if (r == 0)
        return 1;
    trial->pending[trial->n_pending++] = (kji_report){step, value};
    return 0;
}

int kj_trial_flush(kj_trial *trial, kj_error *err)
{
    kji_changes changes = {0};
    return trial->n_pending ? store(trial, &changes, err) : 0;
}

static int publish(kj_trial *trial, kj_decision *ret_decision, kj_error *err)
{
    const kji_decision *d = &trial->decision;
    if (!kji_reserve(&trial->peers, &trial->peers_capacity, d->n_peers + 1, sizeof *trial->peers))
        return kji_fail_memory(err);
    if (d->n_peers > 0)
        memcpy(trial->peers, d->peers, d->n_peers * sizeof *trial->peers);
    const kj_decision decision = {.size = sizeof decision,
                                  .prune = d->prune,
                                  .rule = d->rule,
                                  .reason = d->reason,
                                  .step = d->step,
                                  .value = d->value,
                                  .threshold = d->threshold,
                                  .n_peers = d->n_peers,
                                  .peers = trial->peers};
    kji_give_struct(ret_decision, &decision, sizeof decision);
    return 0;
}

int kj_trial_should_prune(kj_trial *trial, kj_decision *ret_decision, kj_error *err)
{
    kj_study *study = trial->study;
    kji_decision *decision = &trial->decision;
    int r = check_running(trial, err);
    if (r >= 0)
        r = study->storage->ops->refresh(study->storage->self, study->id, true, study->history,
                                         err);
    if (r >= 0)
        r = kji_pruner_decide(study->pruner, study->history, trial->stored, decision, err);
    if (r < 0)
        return r;
    kji_changes changes = {.decision = decision->prune ? decision : NULL};
    if (trial->n_pending > 0 || changes.decision)
        r = store(trial, &changes, err);
    if (r >= 0 && ret_decision)
        r = publish(trial, ret_decision, err);
    return r < 0 ? r : decision->prune;
}

int kj_trial_set_attribute(kj_trial *trial, const char *key, const char *json, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    int r = kji_check_name(key, "the attribute's key", err);
    if (r >= 0)
        r = kji_to_optuna_json(json, "the attribute", &text, err);
    if (r < 0)
        return r;
    kji_changes changes = {.user_key = key, .user_json = text};
    r = store(trial, &changes, err);
    if (r < 0)
        return r;
    return kji_attributes_set(&trial->stored->user, key, text) ? 0 : kji_fail_memory(err);
}

static int check_end(int state, const double *values, uint64_t n_values, kj_error *err)
{
    switch (state) {
    case KJ_TRIAL_COMPLETE:
        if (n_values != 1 || !values)
            return kji_fail(err, KJ_EARG, "a COMPLETE trial needs one value, not %llu",
                            (unsigned long long)n_values);
        if (isnan(values[0]))
            return kji_fail(err, KJ_EARG, "NaN is not a value of a COMPLETE trial");
        return 0;
    case KJ_TRIAL_PRUNED:
    case KJ_TRIAL_FAIL:
        if (n_values != 0)
            return kji_fail(err, KJ_EARG, "a %s trial is told without a value",
                            kj_trial_state_name(state));
        return 0;
    default:
        return kji_fail(err, KJ_EARG, "a trial ends as COMPLETE, PRUNED or FAIL, not as %s",
                        kj_trial_state_name(state) ? kj_trial_state_name(state) : "that");
    }
}

int kj_study_tell(kj_study *study, kj_trial *trial, int state, const double *values,
                  uint64_t n_values, kj_error *err)
{
    kji_trial *stored = trial->stored;
    if (trial->study != study)
        return kji_fail(err, KJ_EARG, "the trial is of another study");
    int r = check_end(state, values, n_values, err);
    if (r < 0)
        return r;
    if (stored->state != KJ_TRIAL_RUNNING)
        return kji_storage_refuse_state(stored->number, stored->state, true, err);
    kji_changes changes = {.has_state = true, .state = state};
    if (state == KJ_TRIAL_COMPLETE) {
        changes.has_value = true;
        changes.value = values[0];
    } else if (state == KJ_TRIAL_PRUNED && stored->n_reports > 0) {
        changes.value = stored->reports[stored->n_reports - 1].value;
        changes.has_value = !isnan(changes.value);
    }
    r = store(trial, &changes, err);
    if (r < 0)
        return r;
    stored->state = state;
    return 0;
}
