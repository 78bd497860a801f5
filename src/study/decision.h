/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KJI_DECISION_H
#define KJI_DECISION_H

#include <stdint.h>

enum { KJI_REASON_TEXT = 240 };

/* What a pruner answers about one trial; kj_decision is its public face. */
typedef struct kji_decision {
    int32_t prune;
    const char *rule; /* the pruner's name, static */
    char reason[KJI_REASON_TEXT];
    int64_t step; /* -1: nothing was reported */
    double value; /* NaN: nothing was compared */
    double threshold;
    uint64_t n_peers;
    const int64_t *peers; /* borrowed from the history, valid until it changes */
} kji_decision;

#endif
