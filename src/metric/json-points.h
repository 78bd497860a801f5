/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a JSON object as points. */
#ifndef KJI_JSON_POINTS_H
#define KJI_JSON_POINTS_H

#include "field-names.h"
#include "json.h"
#include "point-batch.h"

typedef struct kji_json_points {
    kji_batch *batch;
    const char *line; /* the text that the object was made of */
    size_t line_size;
    struct json_object *step, *time; /* members that are no points */
    size_t n_fields;                 /* numbers seen; those beyond KJI_MAX_FIELDS are left out */
    size_t n_refused;                /* integers that were cut to 64 bits */
    kji_strbuf path;                 /* names down to the object that is walked, with "/" */
} kji_json_points;

void kji_json_points_done(kji_json_points *points);

/* Finds step and time among the members, and sets them in batch->origin; what is not there leaves
 * it as it is. */
void kji_json_points_origin(kji_json_points *points, struct json_object *object);

/* Adds all members that are numbers, bools, or the texts "NaN", "Infinity" and "-Infinity", also of
 * objects in it (a/b), but not step and time. */
void kji_json_points_walk(kji_json_points *points, struct json_object *object);

/* One value, if it is such a number. */
void kji_json_points_add(kji_json_points *points, const char *tag, size_t tag_size,
                         struct json_object *value);

#endif
