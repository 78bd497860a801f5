/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"

#include <string.h>

enum { N_SLOTS = 2 * KJI_METRICS_MAX };

void kji_metrics_done(kji_metrics *metrics)
{
    for (size_t k = 0; k < metrics->n; k++)
        free(metrics->item[k].tag);
    free(metrics->item);
    free(metrics->slot);
    *metrics = (kji_metrics){0};
}

/* The slot of `tag`: its index + 1, or 0 where it would go. */
static uint16_t *find_slot(const kji_metrics *metrics, const char *tag)
{
    size_t at = kji_hash(tag, strlen(tag)) % N_SLOTS;
    while (metrics->slot[at] && strcmp(metrics->item[metrics->slot[at] - 1].tag, tag) != 0)
        at = (at + 1) % N_SLOTS;
    return &metrics->slot[at];
}

static int add(kji_metrics *metrics, const char *tag, uint16_t *slot, kj_error *err)
{
    if (metrics->n == KJI_METRICS_MAX)
        return kji_fail(err, KJ_ERANGE, "more than %d metrics in one run", KJI_METRICS_MAX);
    if (!kji_reserve(&metrics->item, &metrics->capacity, metrics->n + 1, sizeof *metrics->item))
        return kji_fail_memory(err);
    char *copy = strdup(tag);
    if (!copy)
        return kji_fail_memory(err);
    metrics->item[metrics->n++] = (kji_metric){.tag = copy};
    *slot = (uint16_t)metrics->n;
    return 0;
}

int kji_metrics_put(kji_metrics *metrics, const char *tag, int64_t step, int64_t epoch,
                    double value, const kji_metric **ret_metric, kj_error *err)
{
    if (!metrics->slot)
        metrics->slot = calloc(N_SLOTS, sizeof *metrics->slot);
    if (!metrics->slot)
        return kji_fail_memory(err);
    uint16_t *slot = find_slot(metrics, tag);
    if (!*slot) {
        int r = add(metrics, tag, slot, err);
        if (r < 0)
            return r;
    }
    kji_metric *metric = &metrics->item[*slot - 1];
    metric->step = step;
    metric->epoch = epoch;
    metric->value = value;
    metric->wall_time = kji_wall_time();
    *ret_metric = metric;
    return 0;
}

struct json_object *kji_metrics_describe(const kji_metrics *metrics)
{
    struct json_object *list = json_object_new_array();
    for (size_t k = 0; k < metrics->n; k++) {
        const kji_metric *metric = &metrics->item[k];
        struct json_object *object = json_object_new_object();
        json_object_object_add(object, "tag", json_object_new_string(metric->tag));
        json_object_object_add(object, "step", json_object_new_int64(metric->step));
        if (metric->epoch >= 0)
            json_object_object_add(object, "epoch", json_object_new_int64(metric->epoch));
        json_object_object_add(object, "value", kji_json_new_double(metric->value));
        json_object_object_add(object, "wall_time", kji_json_new_double(metric->wall_time));
        json_object_array_add(list, object);
    }
    return list;
}
