/* SPDX-License-Identifier: Apache-2.0 */
#include "point-sink.h"

#include <math.h>

static int hand_over(kji_sink *sink, const kji_origin *origin, uint32_t flags, const char *tag,
                     size_t tag_size, double value)
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
                            .record = origin->record};
    if (!sink->fn)
        return 0;
    sink->delivered++;
    return sink->fn(sink->userdata, &point) != 0;
}

int kji_sink_scalar(kji_sink *sink, const kji_origin *origin, const char *tag, size_t tag_size,
                    double value)
{
    kji_tag *known;
    sink->stats->points++;
    origin->run->started = true;
    int r = kji_tag_table_tag(sink->tags, origin->run, tag, tag_size, &known);
    if (r <= 0)
        return r;
    kji_tag_count(known, origin->step, value);
    if (!kji_tag_table_selects(sink->tags, known))
        return 0;
    return hand_over(sink, origin, 0, known->name, known->size, value);
}

int kji_sink_restart(kji_sink *sink, const kji_origin *origin)
{
    return hand_over(sink, origin, KJ_POINT_RESTART, "", 0, NAN);
}
