/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonl:FILE[:FIELD]. One JSON object a line. Of its members one is the step, one the time and one
 * the run, by their names; every other number is a point. An object of run, tag, step, wall_time
 * and value, as `kajitori events` prints them, is one point of that tag.
 */
#include "errors.h"
#include "json-points.h"
#include "line-file.h"
#include "mem.h"

#include <math.h>
#include <string.h>

enum { MAX_RUNS = 100000 };

static const char syntax[] = "jsonl:FILE[:FIELD]";

struct jsonl {
    kji_line_file file;
    kji_tag_table *tags;
    int64_t n_counted; /* objects so far: the step of one that gives none */
};

static int jsonl_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    return kji_spec_split_tag(rest, "file", syntax, "field", ret_where, ret_tag, err);
}

/* The run of an object; NULL when there are too many, or no memory. */
static kji_run *run_of(struct jsonl *jsonl, struct json_object *object)
{
    const char *name = kji_json_string(object, "run");
    if (!name || !*name)
        return jsonl->file.root;
    return jsonl->tags->n_runs < MAX_RUNS ? kji_tag_table_run(jsonl->tags, name) : NULL;
}

static bool is_one_of(const char *key, const char *const *names)
{
    while (*names && strcmp(*names, key) != 0)
        names++;
    return *names != NULL;
}

/* Whether it is of the form {"run","tag","step","wall_time","value"}. */
static bool is_point(struct json_object *object)
{
    static const char *const names[] = {"run", "tag", "step", "wall_time", "value", NULL};
    struct json_object *value;
    if (!kji_json_string(object, "tag") || !json_object_object_get_ex(object, "value", &value))
        return false;
    json_object_object_foreach(object, key, member)
    {
        (void)member;
        if (!is_one_of(key, names))
            return false;
    }
    return true;
}

static void use_object(struct jsonl *jsonl, struct json_object *object)
{
    kji_line_file *file = &jsonl->file;
    kji_origin *origin = &file->batch.origin;
    kji_json_points points = {.batch = &file->batch,
                              .line = file->lines.line,
                              .line_size = file->lines.size,
                              .path = KJI_STRBUF_INIT};
    int64_t counted = jsonl->n_counted++;
    origin->run = run_of(jsonl, object);
    if (!origin->run) {
        kji_line_file_reject(file, "more than %d runs", MAX_RUNS);
        return;
    }
    origin->step = counted;
    origin->wall_time = NAN;
    kji_json_points_origin(&points, object);
    if (is_point(object)) {
        struct json_object *tag = json_object_object_get(object, "tag");
        kji_json_points_add(&points, json_object_get_string(tag),
                            (size_t)json_object_get_string_len(tag),
                            json_object_object_get(object, "value"));
    } else {
        kji_json_points_walk(&points, object);
    }
    if (points.n_refused)
        kji_line_file_warn(file, "integers of more than 64 bits are left out");
    if (points.n_fields > KJI_MAX_FIELDS)
        kji_line_file_warn(file, "more than %d fields: the rest is left out", KJI_MAX_FIELDS);
    kji_json_points_done(&points);
}

static bool is_blank(const kji_lines *lines)
{
    size_t k = 0;
    while (k < lines->size && strchr(" \t\r", lines->line[k]) && lines->line[k])
        k++;
    return k == lines->size;
}

static void use_line(void *userdata)
{
    struct jsonl *jsonl = userdata;
    kji_line_file *file = &jsonl->file;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (is_blank(&file->lines))
        return;
    size_t skip = file->lines.size >= 3 && memcmp(file->lines.line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    int r = kji_json_parse(file->lines.line + skip, file->lines.size - skip, &json, &err);
    if (r == KJ_EMEM)
        file->batch.failed = true;
    else if (r < 0)
        kji_line_file_reject(file, "%s", err.message);
    else if (!json_object_is_type(json, json_type_object))
        kji_line_file_reject(file, "not a JSON object");
    else
        use_object(jsonl, json);
}

static void restart(void *userdata)
{
    struct jsonl *jsonl = userdata;
    jsonl->n_counted = 0;
}

static int jsonl_open(void *instance, const kji_source_context *context, kj_error *err)
{
    struct jsonl *jsonl = instance;
    const kji_line_user user = {use_line, restart, jsonl};
    jsonl->tags = context->tags;
    return kji_line_file_init(&jsonl->file, context->spec->where, context, KJI_CUT_PLAIN, &user,
                              err);
}

static void jsonl_close(void *instance)
{
    struct jsonl *jsonl = instance;
    kji_line_file_done(&jsonl->file);
}

static int jsonl_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct jsonl *jsonl = instance;
    return kji_line_file_step(&jsonl->file, sink, finished, err);
}

static void jsonl_count(const void *instance, kj_events_stats *stats)
{
    const struct jsonl *jsonl = instance;
    kji_line_file_count(&jsonl->file, stats);
}

/* The line in use is counted again when it is used again. */
static void jsonl_save(const void *instance, kji_strbuf *to)
{
    const struct jsonl *jsonl = instance;
    kji_cursor_open(to);
    kji_cursor_put_uint(to, (uint64_t)(jsonl->n_counted - jsonl->file.in_use));
    kji_line_file_save(&jsonl->file, to);
    kji_cursor_close(to);
}

static void jsonl_restore(void *instance, kji_cursor_items *items)
{
    struct jsonl *jsonl = instance;
    jsonl->n_counted = (int64_t)kji_cursor_take_uint(items, INT64_MAX / 4);
    kji_line_file_restore(&jsonl->file, items);
}

static int jsonl_list_files(void *instance, kj_file_fn fn, void *userdata)
{
    struct jsonl *jsonl = instance;
    return kji_line_file_list(&jsonl->file, fn, userdata);
}

static int jsonl_list_damage(void *instance, kj_damage_fn fn, void *userdata)
{
    struct jsonl *jsonl = instance;
    return kji_line_file_list_damage(&jsonl->file, fn, userdata);
}

const kji_source_kind kji_source_jsonl = {
    .size = sizeof(kji_source_kind),
    .name = "jsonl",
    .syntax = syntax,
    .instance_size = sizeof(struct jsonl),
    .split = jsonl_split,
    .open = jsonl_open,
    .close = jsonl_close,
    .step = jsonl_step,
    .count = jsonl_count,
    .list_files = jsonl_list_files,
    .list_damage = jsonl_list_damage,
    .save = jsonl_save,
    .restore = jsonl_restore,
};
