/* SPDX-License-Identifier: Apache-2.0 */
/* The chosen points: one after the other as they were read, or merged; and all of them in memory.
 */
#include "events-verb.h"

#include <stdlib.h>
#include <string.h>

typedef struct taking {
    kj_events *events;
    kj_point_fn fn;
    void *userdata;
    kj_error err;
} taking;

static int take_chosen(void *userdata, const kj_point *point)
{
    taking *state = userdata;
    if (point->flags & KJ_POINT_RESTART ||
        !cli_events_wants(point->run, point->tag, point->tag_size))
        return 0;
    return state->fn(state->userdata, point);
}

/* The history of one tag of one run, if it is chosen. */
static int take_merged(void *userdata, const kj_tag_info *tag)
{
    taking *state = userdata;
    kj_columns *columns;
    if (!cli_events_wants(tag->run, tag->tag, tag->tag_size))
        return 0;
    int r = kj_events_get_history(state->events, tag->run, tag->tag, tag->tag_size,
                                  (enum kj_merge)cli_events_given.merge, &columns, &state->err);
    if (r < 0)
        return r;
    kj_point point = {.size = sizeof point,
                      .run = tag->run,
                      .tag = tag->tag,
                      .tag_size = tag->tag_size,
                      .series = tag->series};
    for (uint64_t k = 0; k < columns->n && r == 0; k++) {
        point.step = columns->step[k];
        point.wall_time = columns->wall_time[k];
        point.value = columns->value[k];
        r = state->fn(state->userdata, &point);
    }
    kj_columns_unref(columns);
    return r;
}

int cli_events_each_point(kj_events *events, kj_point_fn fn, void *userdata)
{
    taking state = {events, fn, userdata, KJ_ERROR_INIT};
    int r, status = CLI_DONE;
    if (cli_events_given.merge != KJ_MERGE_ALL) {
        status = cli_events_read_all(events);
        if (status == CLI_DONE && kj_events_list_tags(events, take_merged, &state, &state.err) < 0)
            status = cli_fail(&state.err);
        return status;
    }
    do
        r = kj_events_step(events, cli_events_wait_ms(), take_chosen, &state, &state.err);
    while (r > 0 && !ferror(stdout));
    return r < 0 ? cli_fail(&state.err) : CLI_DONE;
}

static void *grow(void *array, uint64_t n, size_t size)
{
    return cli_check_memory(reallocarray(array, n, size));
}

static void reserve(cli_points *points)
{
    if (points->n < points->capacity)
        return;
    points->capacity = points->capacity ? 2 * points->capacity : 4096;
    points->step = grow(points->step, points->capacity, sizeof *points->step);
    points->wall_time = grow(points->wall_time, points->capacity, sizeof *points->wall_time);
    points->value = grow(points->value, points->capacity, sizeof *points->value);
    points->series = grow(points->series, points->capacity, sizeof *points->series);
}

static uint32_t add_series(cli_points *points, const kj_point *point)
{
    if (points->n_series == points->series_capacity) {
        points->series_capacity = points->series_capacity ? 2 * points->series_capacity : 16;
        points->all_series =
            grow(points->all_series, points->series_capacity, sizeof *points->all_series);
    }
    cli_series *series = &points->all_series[points->n_series];
    series->run = cli_check_memory(strdup(point->run));
    series->tag = cli_check_memory(malloc(point->tag_size + 1));
    memcpy(series->tag, point->tag, point->tag_size);
    series->tag[point->tag_size] = 0;
    series->tag_size = point->tag_size;
    return points->n_series++;
}

static uint32_t series_of(cli_points *points, const kj_point *point)
{
    if (point->series >= points->index_capacity) {
        uint32_t capacity = 2 * (point->series + 1);
        points->index_of = grow(points->index_of, capacity, sizeof *points->index_of);
        memset(points->index_of + points->index_capacity, 0,
               (capacity - points->index_capacity) * sizeof *points->index_of);
        points->index_capacity = capacity;
    }
    uint32_t *index = &points->index_of[point->series];
    if (*index == 0)
        *index = add_series(points, point) + 1;
    return *index - 1;
}

static int add_point(void *userdata, const kj_point *point)
{
    cli_points *points = userdata;
    reserve(points);
    points->step[points->n] = point->step;
    points->wall_time[points->n] = point->wall_time;
    points->value[points->n] = point->value;
    points->series[points->n] = series_of(points, point);
    points->n++;
    return 0;
}

int cli_points_read(cli_points *points)
{
    kj_events *events;
    int status = cli_events_open(cli_events_given.merge ? KJ_EVENTS_KEEP : 0, NULL, &events);
    if (status != CLI_DONE)
        return status;
    status = cli_events_each_point(events, add_point, points);
    if (status == CLI_DONE)
        status = cli_events_check_found(events);
    cli_events_note_damage(events);
    kj_events_close(events);
    return status;
}

void cli_points_done(cli_points *points)
{
    for (uint32_t k = 0; k < points->n_series; k++) {
        free(points->all_series[k].run);
        free(points->all_series[k].tag);
    }
    free(points->all_series);
    free(points->index_of);
    free(points->step);
    free(points->wall_time);
    free(points->value);
    free(points->series);
    *points = (cli_points){0};
}
