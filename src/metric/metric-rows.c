/* SPDX-License-Identifier: Apache-2.0 */
#include "metric-rows.h"

#include "files.h"
#include "json.h"
#include "mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void kji_rows_done(kji_rows *rows)
{
    for (size_t k = 0; k < rows->n; k++) {
        free(rows->rows[k].run);
        free(rows->rows[k].tag);
    }
    free(rows->rows);
    *rows = (kji_rows){0};
}

static kji_row *add(kji_rows *rows, const char *run, const char *tag, size_t tag_size)
{
    assert_true(kji_reserve(&rows->rows, &rows->capacity, rows->n + 1, sizeof *rows->rows));
    kji_row *row = &rows->rows[rows->n++];
    *row = (kji_row){.run = strdup(run), .tag = malloc(tag_size + 1), .tag_size = tag_size};
    memcpy(row->tag, tag, tag_size);
    row->tag[tag_size] = 0;
    return row;
}

int kji_rows_collect(void *userdata, const kj_point *point)
{
    kji_rows *rows = userdata;
    kji_row *row = add(rows, point->run, point->tag, point->tag_size);
    assert_int_equal(point->tag[point->tag_size], 0);
    row->step = point->step;
    row->wall_time = point->wall_time;
    row->value = point->value;
    row->flags = point->flags;
    return rows->stop_after && rows->n % rows->stop_after == 0;
}

static double get_double(struct json_object *json, const char *key)
{
    double value;
    assert_true(kji_json_get_double(json_object_object_get(json, key), &value));
    return value;
}

void kji_rows_load(kji_rows *rows, const char *path)
{
    char *text;
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 24, &text, NULL, NULL), 0);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_object *json;
        assert_int_equal(kji_json_parse(line, (size_t)(end - line), &json, NULL), 0);
        struct json_object *tag = json_object_object_get(json, "tag");
        kji_row *row = add(rows, kji_json_string(json, "run"), json_object_get_string(tag),
                           (size_t)json_object_get_string_len(tag));
        assert_true(kji_json_int(json, "step", &row->step));
        row->wall_time = get_double(json, "wall_time");
        row->value = get_double(json, "value");
        json_object_put(json);
    }
    free(text);
}

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

void kji_rows_assert_same(const kji_rows *got, const kji_rows *expected, size_t from, size_t n,
                          const char *what)
{
    if (got->n < from + n)
        fail_msg("%s: %zu rows, expected %zu", what, got->n, from + n);
    for (size_t k = from; k < from + n; k++) {
        const kji_row *a = &got->rows[k], *b = &expected->rows[k];
        if (strcmp(a->run, b->run) != 0 || a->tag_size != b->tag_size ||
            memcmp(a->tag, b->tag, a->tag_size) != 0 || a->step != b->step ||
            !same_double(a->wall_time, b->wall_time) || !same_double(a->value, b->value))
            fail_msg("%s: row %zu is %s %s %lld %.17g %.17g, expected %s %s %lld %.17g %.17g", what,
                     k, a->run, a->tag, (long long)a->step, a->wall_time, a->value, b->run, b->tag,
                     (long long)b->step, b->wall_time, b->value);
    }
}

size_t kji_rows_drain(kj_events *source, kji_rows *rows)
{
    size_t n = 0;
    for (;;) {
        kj_error err = KJ_ERROR_INIT;
        int r = kj_events_step(source, 0, kji_rows_collect, rows, &err);
        if (r < 0)
            fail_msg("%s", err.message);
        if (r == 0)
            return n;
        n += (size_t)r;
    }
}

void kji_rows_await(kj_events *source, kji_rows *rows, size_t n)
{
    while (rows->n < n) {
        int r = kj_events_step(source, 60000, kji_rows_collect, rows, NULL);
        if (r <= 0)
            fail_msg("%zu rows came, expected %zu", rows->n, n);
    }
}
