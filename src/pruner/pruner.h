/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pruners: rules that decide, at a report, whether a trial goes on. docs/adding-a-pruner.md tells
 * how to add one.
 */
#ifndef KJI_PRUNER_H
#define KJI_PRUNER_H

#include "decision.h"
#include "history.h"
#include "options.h"

/* One rule. All of it is constant. */
typedef struct kji_pruner_ops {
    uint32_t size;
    const char *name; /* as in --pruner NAME */
    const char *help; /* one line */
    /* Size of the rule's options struct, allocated zeroed and filled from `options`; it is the
     * `self` of the slots. 0 = none. */
    size_t instance_size;
    const kji_option *options;
    size_t n_options;
    /*
     * Checks what the option table cannot say (one option against another) and computes what
     * depends on options only. KJ_EARG. NULL: nothing to check. Does not block.
     */
    int (*init)(void *self, kj_error *err);
    /*
     * Decides about `trial`, which is RUNNING and may have reports that are not stored yet.
     * Mandatory. A pure function: the same options, history and trial give the same decision; no
     * I/O, no clock, nothing kept between calls. *ret_decision is zeroed but for `rule`, step -1,
     * value and threshold NaN; fill `prune`, `reason`, and what was compared. `peers` may point
     * into the history. 0, or KJ_EMEM.
     */
    int (*decide)(const void *self, const kji_history *history, const kji_trial *trial,
                  kji_decision *ret_decision, kj_error *err);
} kji_pruner_ops;

typedef struct kji_pruner kji_pruner;

/* By name [median], with "key=value,…". KJ_EARG lists the names there are. */
int kji_pruner_new(const char *name, const char *options, kji_pruner **ret_pruner, kj_error *err);
void kji_pruner_free(kji_pruner *pruner);

int kji_pruner_decide(const kji_pruner *pruner, const kji_history *history, const kji_trial *trial,
                      kji_decision *ret_decision, kj_error *err);

/* The registry, one line for each rule: its table is kji_pruner_NAME. The first is the default. */
#define KJI_PRUNER_MAP(X) \
    X(median)             \
    X(none)

#define KJI_PRUNER_DECLARE(name) extern const kji_pruner_ops kji_pruner_##name;
KJI_PRUNER_MAP(KJI_PRUNER_DECLARE)
#undef KJI_PRUNER_DECLARE

/* NULL past its end. */
const kji_pruner_ops *kji_pruner_at(size_t index);

#endif
