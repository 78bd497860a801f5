/* SPDX-License-Identifier: Apache-2.0 */
/* The newest value of each reported metric. The run's lock is held. */
#ifndef KJI_METRICS_H
#define KJI_METRICS_H

#include <kajitori/error.h>

#include <json-c/json.h>

enum { KJI_METRICS_MAX = 1024, KJI_TAG_MAX = 512 };

typedef struct kji_metric {
    char *tag; /* stays where it is while the table lives */
    int64_t step;
    int64_t epoch; /* -1 before the first */
    double value;
    double wall_time;
} kji_metric;

typedef struct kji_metrics {
    kji_metric *item;
    size_t n;
    size_t capacity;
    uint16_t *slot; /* hash table of indices + 1, twice the maximum */
} kji_metrics;

void kji_metrics_done(kji_metrics *metrics);

/* KJ_ERANGE for one tag too many. *ret_metric is valid until the next call. */
int kji_metrics_put(kji_metrics *metrics, const char *tag, int64_t step, int64_t epoch,
                    double value, const kji_metric **ret_metric, kj_error *err);

/* As status has them, in the order of their first report. */
struct json_object *kji_metrics_describe(const kji_metrics *metrics);

#endif
