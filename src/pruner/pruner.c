/* SPDX-License-Identifier: Apache-2.0 */
#include "pruner.h"

#include "errors.h"
#include "mem.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const kji_pruner_ops *const registry[] = {
#define KJI_PRUNER_ROW(name) &kji_pruner_##name,
    KJI_PRUNER_MAP(KJI_PRUNER_ROW)
#undef KJI_PRUNER_ROW
};

enum { N_PRUNERS = sizeof registry / sizeof *registry };

struct kji_pruner {
    const kji_pruner_ops *ops;
    void *instance;
};

const kji_pruner_ops *kji_pruner_at(size_t index)
{
    return index < N_PRUNERS ? registry[index] : NULL;
}

static int unknown_name(const char *name, kj_error *err)
{
    const char *known[N_PRUNERS];
    for (size_t k = 0; k < N_PRUNERS; k++)
        known[k] = registry[k]->name;
    return kji_fail_unknown(err, KJ_EARG, "pruner", name, known, N_PRUNERS);
}

static int set_up(kji_pruner *pruner, const char *options, kj_error *err)
{
    const kji_pruner_ops *ops = pruner->ops;
    assert(ops->size == sizeof *ops && ops->name && ops->help && ops->decide);
    pruner->instance = calloc(1, ops->instance_size ? ops->instance_size : 1);
    if (!pruner->instance)
        return kji_fail_memory(err);
    char who[80];
    snprintf(who, sizeof who, "pruner %s", ops->name);
    int r = kji_options_parse(ops->options, ops->n_options, who, options, pruner->instance, err);
    return r < 0 || !ops->init ? r : ops->init(pruner->instance, err);
}

int kji_pruner_new(const char *name, const char *options, kji_pruner **ret_pruner, kj_error *err)
{
    const kji_pruner_ops *ops = name ? NULL : registry[0];
    for (size_t k = 0; !ops && k < N_PRUNERS; k++)
        if (strcmp(name, registry[k]->name) == 0)
            ops = registry[k];
    if (!ops)
        return unknown_name(name, err);
    kji_pruner *pruner = calloc(1, sizeof *pruner);
    if (!pruner)
        return kji_fail_memory(err);
    pruner->ops = ops;
    int r = set_up(pruner, options, err);
    if (r < 0)
        kji_pruner_free(pruner);
    else
        *ret_pruner = pruner;
    return r;
}

void kji_pruner_free(kji_pruner *pruner)
{
    if (!pruner)
        return;
    free(pruner->instance);
    free(pruner);
}

int kji_pruner_decide(const kji_pruner *pruner, const kji_history *history, const kji_trial *trial,
                      kji_decision *ret_decision, kj_error *err)
{
    *ret_decision =
        (kji_decision){.rule = pruner->ops->name, .step = -1, .value = NAN, .threshold = NAN};
    return pruner->ops->decide(pruner->instance, history, trial, ret_decision, err);
}
