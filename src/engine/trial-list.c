/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a study's trials: copies, so that they outlive what happens to the study. */
#include "engine.h"

#include "errors.h"
#include "mem.h"
#include "optuna-json.h"
#include "strbuf.h"

#include <stdlib.h>

/* One trial and what its public face points to. */
typedef struct entry {
    kj_trial_info info;
    kji_trial *trial;
    kj_param_info *params;
    int64_t *steps;
    double *values;
    kj_decision cut;
    char *attributes;
    char start[KJI_TIME_TEXT];
    char complete[KJI_TIME_TEXT];
} entry;

struct kj_trial_list {
    int32_t direction;
    entry *entries;
    size_t n;
};

static char *attributes_text(const kji_attributes *attributes)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    kji_strbuf_putc(&text, '{');
    for (size_t k = 0; k < attributes->n; k++) {
        if (k > 0)
            kji_strbuf_puts(&text, ", ");
        kji_optuna_json_string(&text, attributes->items[k].key);
        kji_strbuf_puts(&text, ": ");
        kji_strbuf_puts(&text, attributes->items[k].json);
    }
    kji_strbuf_putc(&text, '}');
    return kji_strbuf_take(&text);
}

static bool allocate(entry *e)
{
    const kji_trial *t = e->trial;
    e->params = calloc(t->n_params + 1, sizeof *e->params);
    e->steps = calloc(t->n_reports + 1, sizeof *e->steps);
    e->values = calloc(t->n_reports + 1, sizeof *e->values);
    e->attributes = attributes_text(&t->user);
    return e->params && e->steps && e->values && e->attributes;
}

static int fill_arrays(entry *e, kj_error *err)
{
    const kji_trial *t = e->trial;
    for (size_t k = 0; k < t->n_params; k++) {
        const kji_param *param = &t->params[k];
        e->params[k].name = param->name;
        int r = kji_distribution_to_external(param->distribution, param->internal,
                                             &e->params[k].value, err);
        if (r < 0)
            return r;
    }
    for (size_t k = 0; k < t->n_reports; k++) {
        e->steps[k] = t->reports[k].step;
        e->values[k] = t->reports[k].value;
    }
    const kji_cut *cut = t->cut;
    if (cut)
        e->cut = (kj_decision){.size = sizeof e->cut,
                               .prune = 1,
                               .rule = cut->rule,
                               .reason = cut->reason,
                               .step = cut->step,
                               .value = cut->value,
                               .threshold = cut->threshold,
                               .n_peers = cut->n_peers,
                               .peers = cut->peers};
    return 0;
}

static int fill(entry *e, const kji_trial *trial, kj_error *err)
{
    e->trial = kji_trial_copy(trial);
    if (!e->trial || !allocate(e))
        return kji_fail_memory(err);
    int r = fill_arrays(e, err);
    if (r < 0)
        return r;
    const kji_trial *t = e->trial;
    e->info = (kj_trial_info){
        .size = sizeof e->info,
        .state = t->state,
        .number = t->number,
        .has_value = t->n_values > 0,
        .value = t->n_values > 0 ? t->values[0] : 0,
        .start = kji_time_local_text(t->start_us, e->start),
        .complete = kji_time_local_text(t->complete_us, e->complete),
        .n_params = t->n_params,
        .params = e->params,
        .n_reports = t->n_reports,
        .report_steps = e->steps,
        .report_values = e->values,
        .cut = t->cut ? &e->cut : NULL,
        .attributes_json = e->attributes,
    };
    return 0;
}

int kj_study_list_trials(kj_study *study, kj_trial_list **ret_list, kj_error *err)
{
    kji_history *history = study->history;
    int r = study->storage->ops->refresh(study->storage->self, study->id, false, history, err);
    if (r < 0)
        return r;
    kj_trial_list *list = calloc(1, sizeof *list);
    if (list)
        list->entries = calloc(history->n_trials + 1, sizeof *list->entries);
    if (!list || !list->entries) {
        free(list);
        return kji_fail_memory(err);
    }
    list->direction = study->direction;
    for (; list->n < history->n_trials; list->n++) {
        r = fill(&list->entries[list->n], history->trials[list->n], err);
        if (r < 0) {
            list->n++; /* the half-filled one is freed too */
            kj_trial_list_free(list);
            return r;
        }
    }
    *ret_list = list;
    return 0;
}

void kj_trial_list_free(kj_trial_list *list)
{
    if (!list)
        return;
    for (size_t k = 0; k < list->n; k++) {
        entry *e = &list->entries[k];
        kji_trial_free(e->trial);
        free(e->params);
        free(e->steps);
        free(e->values);
        free(e->attributes);
    }
    free(list->entries);
    free(list);
}

uint64_t kj_trial_list_size(const kj_trial_list *list)
{
    return list->n;
}

const kj_trial_info *kj_trial_list_get(const kj_trial_list *list, uint64_t index)
{
    return index < list->n ? &list->entries[index].info : NULL;
}

const kj_trial_info *kj_trial_list_best(const kj_trial_list *list)
{
    const kj_trial_info *best = NULL;
    for (size_t k = 0; k < list->n; k++) {
        const kj_trial_info *info = &list->entries[k].info;
        if (info->state != KJ_TRIAL_COMPLETE || !info->has_value)
            continue;
        if (!best || (list->direction == KJ_DIRECTION_MAXIMIZE ? info->value > best->value
                                                               : info->value < best->value))
            best = info;
    }
    return best;
}
