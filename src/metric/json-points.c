/* SPDX-License-Identifier: Apache-2.0 */
#include "json-points.h"

#include <string.h>

void kji_json_points_done(kji_json_points *points)
{
    kji_strbuf_done(&points->path);
}

static bool holds(const kji_json_points *points, const char *digits)
{
    return memmem(points->line, points->line_size, digits, strlen(digits)) != NULL;
}

/* json-c cuts integers of more than 64 bits to the nearest one that fits: not what was meant,
 * unless it is written out in the line. */
static bool is_cut(const kji_json_points *points, struct json_object *json)
{
    if (json_object_get_int64(json) == INT64_MIN)
        return !holds(points, "-9223372036854775808");
    return json_object_get_uint64(json) == UINT64_MAX && !holds(points, "18446744073709551615");
}

static bool get_number(kji_json_points *points, struct json_object *json, double *ret_value)
{
    if (json_object_is_type(json, json_type_boolean)) {
        *ret_value = json_object_get_boolean(json);
        return true;
    }
    if (json_object_is_type(json, json_type_int) && is_cut(points, json)) {
        points->n_refused++;
        return false;
    }
    return kji_json_get_double(json, ret_value);
}

static bool get_step(const kji_json_points *points, struct json_object *json, int64_t *ret_step)
{
    if (json_object_is_type(json, json_type_double))
        return kji_whole_step(json_object_get_double(json), ret_step);
    if (!json_object_is_type(json, json_type_int) || is_cut(points, json) ||
        json_object_get_uint64(json) > INT64_MAX)
        return false;
    *ret_step = json_object_get_int64(json);
    return true;
}

void kji_json_points_origin(kji_json_points *points, struct json_object *object)
{
    unsigned best_step = UINT32_MAX, best_time = UINT32_MAX;
    kji_origin *origin = &points->batch->origin;
    json_object_object_foreach(object, key, member)
    {
        size_t size = strlen(key);
        unsigned step = kji_step_field(key, size), time = kji_time_field(key, size);
        if (step && step < best_step && get_step(points, member, &origin->step)) {
            best_step = step;
            points->step = member;
        }
        if (time && time < best_time && kji_json_get_double(member, &origin->wall_time)) {
            best_time = time;
            points->time = member;
        }
    }
}

void kji_json_points_add(kji_json_points *points, const char *tag, size_t tag_size,
                         struct json_object *json)
{
    double value;
    if (get_number(points, json, &value) && ++points->n_fields <= KJI_MAX_FIELDS)
        kji_batch_add(points->batch, tag, tag_size, value);
}

static void walk_member(kji_json_points *points, const char *key, struct json_object *member)
{
    size_t size = points->path.size;
    kji_strbuf_puts(&points->path, key);
    if (json_object_is_type(member, json_type_object)) {
        kji_strbuf_putc(&points->path, '/');
        kji_json_points_walk(points, member);
    } else {
        kji_json_points_add(points, points->path.text, points->path.size, member);
    }
    points->batch->failed = points->batch->failed || points->path.failed;
    points->path.size = size;
}

void kji_json_points_walk(kji_json_points *points, struct json_object *object)
{
    json_object_object_foreach(object, key, member)
    {
        if (!member || (member != points->step && member != points->time))
            walk_member(points, key, member);
    }
}
