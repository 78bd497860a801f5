/* SPDX-License-Identifier: Apache-2.0 */
#include "event-deliver.h"

#include "errors.h"
#include "event-wire.h"

struct delivery {
    kji_event_file *file;
    kji_sink *sink;
    kji_origin origin;
};

static struct delivery begin(kji_event_file *file, kji_sink *sink, const kji_event *event)
{
    return (struct delivery){file,
                             sink,
                             {.run = file->run,
                              .file = file->path,
                              .record = file->mark.records,
                              .step = event->step,
                              .wall_time = event->wall_time,
                              .generation = file->mark.generation}};
}

static int deliver_scalar(struct delivery *delivery, const kji_value *value)
{
    kji_file_mark *mark = &delivery->file->mark;
    delivery->origin.dtype = value->dtype;
    delivery->origin.described = value->metadata ? value : NULL;
    int r = kji_sink_scalar(delivery->sink, &delivery->origin, value->tag, value->tag_size,
                            value->number);
    if (r < 0)
        return r;
    mark->values_done++;
    mark->points++;
    return r;
}

/* A value that is no scalar: which kind it is may stand in its metadata, or in those of an earlier
 * value. */
static int count_other(struct delivery *delivery, const kji_value *value)
{
    kji_plugin_table *plugins = &delivery->file->run->plugins;
    enum kj_event_kind plugin;
    kji_metadata metadata;
    if (kji_metadata_read(value, &metadata)) {
        plugin = kji_plugin_kind(metadata.plugin, metadata.plugin_size);
        int r = kji_plugin_table_add(plugins, value->tag, value->tag_size, plugin);
        if (r < 0)
            return r;
    } else {
        plugin = kji_plugin_table_get(plugins, value->tag, value->tag_size);
    }
    delivery->sink->stats->kinds[kji_plugin_refine(value->kind, plugin)]++;
    delivery->file->mark.values_done++;
    return 0;
}

static int deliver_summary(struct delivery *delivery, const kji_event *event, bool *ret_good)
{
    kji_value_iter iter;
    kji_value value;
    int r;
    kji_value_begin(&iter, event);
    while ((r = kji_value_next(&iter, &value)) == 1)
        continue;
    *ret_good = r == 0;
    if (r < 0)
        return 0;
    kji_value_begin(&iter, event);
    for (uint64_t k = 0; r == 0 && kji_value_next(&iter, &value) == 1; k++) {
        if (k < delivery->file->mark.values_done)
            continue;
        r = value.kind == KJ_EVENT_SCALAR ? deliver_scalar(delivery, &value)
                                          : count_other(delivery, &value);
    }
    return r;
}

/* A session that starts where there is something already starts again. */
static int deliver_start(struct delivery *delivery)
{
    kji_run *run = delivery->file->run;
    int r = run->started ? kji_sink_restart(delivery->sink, &delivery->origin) : 0;
    if (r >= 0)
        run->started = true;
    return r;
}

/* An event without a summary counts as one value. */
static int deliver_other(struct delivery *delivery, const kji_event *event)
{
    if (delivery->file->mark.values_done)
        return 0;
    int r = event->starts ? deliver_start(delivery) : 0;
    if (r < 0)
        return r;
    delivery->sink->stats->kinds[event->kind]++;
    delivery->file->mark.values_done = 1;
    return r;
}

int kji_deliver_event(kji_event_file *file, kji_sink *sink, const unsigned char *payload,
                      size_t size, bool *ret_good)
{
    kji_event event;
    kji_value value;
    *ret_good = true;
    if (kji_event_read_usual(payload, size, &event, &value)) {
        struct delivery delivery = begin(file, sink, &event);
        return file->mark.values_done ? 0 : deliver_scalar(&delivery, &value);
    }
    *ret_good = kji_event_parse(payload, size, &event);
    if (!*ret_good)
        return 0;
    struct delivery delivery = begin(file, sink, &event);
    return event.has_summary ? deliver_summary(&delivery, &event, ret_good)
                             : deliver_other(&delivery, &event);
}
