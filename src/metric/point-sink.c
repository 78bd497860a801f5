/* SPDX-License-Identifier: Apache-2.0 */
#include "point-sink.h"

#include "event-wire.h"

#include <math.h>

static int call(kji_sink *sink, const kji_origin *origin, uint32_t flags, uint32_t series,
                const char *tag, size_t tag_size, double value)
{
    const kj_point point = {.size = sizeof point,
                            .flags = flags,
                            .run = origin->run->name,
                            .tag = tag,
                            .tag_size = tag_size,
                            .step = origin->step,
                            .wall_time = origin->wall_time,
                            .value = value,
                            .file = origin->file,
                            .record = origin->record,
                            .generation = origin->generation,
                            .dtype = origin->dtype,
                            .series = series};
    return sink->fn(sink->userdata, &point) != 0;
}

static int put(const kji_sink *sink, const kji_origin *origin, uint32_t flags, uint32_t series,
               double value)
{
    kji_columns *block = sink->block;
    block->series[block->seen.n] = series;
    block->flags[block->seen.n] = flags;
    kji_columns_put(block, origin->step, origin->wall_time, value);
    return block->seen.n >= sink->block_limit;
}

static bool describe(kji_tag *tag, const kji_value *value)
{
    kji_metadata metadata;
    return !kji_metadata_read(value, &metadata) || kji_tag_describe(tag, &metadata) == 0;
}

int kji_sink_scalar(kji_sink *sink, const kji_origin *origin, const char *tag, size_t tag_size,
                    double value)
{
    kji_tag *known;
    int r = kji_tag_table_tag(sink->tags, origin->run, tag, tag_size, &known);
    if (r < 0)
        return r;
    if (r > 0 && origin->described && !known->plugin && !describe(known, origin->described))
        return KJ_EMEM;
    bool selected = r > 0 && kji_tag_table_selects(sink->tags, known);
    if (selected && sink->keep) {
        if (!kji_series_history_prepare(&known->history, &origin->run->restarts))
            return KJ_EMEM;
        kji_series_history_add(&known->history, origin->step, origin->wall_time, value);
    }
    sink->stats->points++;
    sink->stats->kinds[KJ_EVENT_SCALAR]++;
    origin->run->started = true;
    if (r > 0) {
        kji_tag_count(known, origin->step, value);
        known->dtype = origin->dtype;
    }
    if (!selected)
        return 0;
    sink->delivered++;
    if (sink->block)
        return put(sink, origin, 0, known->series, value);
    return sink->fn ? call(sink, origin, 0, known->series, known->name, known->size, value) : 0;
}

int kji_sink_restart(kji_sink *sink, const kji_origin *origin)
{
    if (!kji_tag_table_wants_run(sink->tags, origin->run))
        return 0;
    if (sink->keep && !kji_restarts_add(&origin->run->restarts, origin->step))
        return KJ_EMEM;
    sink->delivered++;
    if (sink->block)
        return put(sink, origin, KJ_POINT_RESTART, UINT32_MAX, NAN);
    return sink->fn ? call(sink, origin, KJ_POINT_RESTART, UINT32_MAX, "", 0, NAN) : 0;
}
