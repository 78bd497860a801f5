/* SPDX-License-Identifier: Apache-2.0 */
/* What is there: tags, runs, or files with figures; no points. */
#include "events-verb.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* On a terminal the run stands in the first of its rows only. */
typedef struct tag_list {
    cli_table *table;
    const char *last_run;
} tag_list;

enum { RUN, TAG, COUNT, FIRST, LAST, LAST_VALUE, MIN, MAX };
static const char *const tag_columns[] = {"run",        "tag", "count", "first_step", "last_step",
                                          "last_value", "min", "max",   NULL};

static int add_tag(void *userdata, const kj_tag_info *tag)
{
    tag_list *list = userdata;
    if (!tag->selected || !cli_events_wants(tag->run, tag->tag, tag->tag_size))
        return 0;
    bool repeated = list->last_run && strcmp(list->last_run, tag->run) == 0;
    list->last_run = tag->run;
    cli_table_add_row(list->table);
    if (repeated && cli.format == CLI_TABLE && isatty(STDOUT_FILENO))
        cli_table_set_text(list->table, RUN, "");
    else
        cli_table_set(list->table, RUN, cli_json_text(tag->run));
    cli_table_set(list->table, TAG, cli_json_bytes(tag->tag, tag->tag_size));
    cli_table_set_int(list->table, COUNT, (int64_t)tag->count);
    cli_table_set_int(list->table, FIRST, tag->first_step);
    cli_table_set_int(list->table, LAST, tag->last_step);
    cli_table_set_double(list->table, LAST_VALUE, tag->last_value);
    cli_table_set_double(list->table, MIN, tag->min_value);
    cli_table_set_double(list->table, MAX, tag->max_value);
    return 0;
}

static void note_emptiness(const kj_events *events)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(events, &stats);
    if (stats.points == 0)
        cli_note("%s: no scalars in %llu file%s", cli_events_given.place,
                 (unsigned long long)stats.files, stats.files == 1 ? "" : "s");
}

/* Opens, reads all, and lets `list` fill a table, which is printed. */
static int print_table(const char *const *columns, int (*list)(kj_events *events, cli_table *table))
{
    kj_events *events;
    int status = cli_events_open(0, NULL, &events);
    if (status != CLI_DONE)
        return status;
    cli_table *table = cli_table_new(columns);
    status = cli_events_read_all(events);
    if (status == CLI_DONE)
        status = list(events, table);
    if (status == CLI_DONE) {
        note_emptiness(events);
        cli_table_print(table);
    }
    cli_table_free(table);
    cli_events_note_damage(events);
    kj_events_close(events);
    return status;
}

static int list_tags(kj_events *events, cli_table *table)
{
    kj_error err = KJ_ERROR_INIT;
    tag_list list = {.table = table};
    if (kj_events_list_tags(events, add_tag, &list, &err) < 0)
        return cli_fail(&err);
    return cli_events_check_found(events);
}

int cli_events_print_list(void)
{
    return print_table(tag_columns, list_tags);
}

typedef struct run_row {
    char *run;
    int64_t files, bytes, tags, points;
    int64_t quiet_ms;
} run_row;

/* Runs in the order in which the files and the tags come: by path. */
typedef struct run_list {
    run_row *rows;
    size_t n, capacity;
    size_t at; /* where the next tag's run is, or behind it */
} run_list;

static run_row *add_run(run_list *list, const char *run)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->rows = cli_check_memory(reallocarray(list->rows, list->capacity, sizeof *list->rows));
    }
    run_row *row = &list->rows[list->n++];
    *row = (run_row){.run = cli_check_memory(strdup(run)), .quiet_ms = INT64_MAX};
    return row;
}

static int add_file_to_run(void *userdata, const kj_file_info *file)
{
    run_list *list = userdata;
    if (!file->present || !cli_events_wants_run(file->run))
        return 0;
    if (list->n == 0 || strcmp(list->rows[list->n - 1].run, file->run) != 0)
        add_run(list, file->run);
    run_row *row = &list->rows[list->n - 1];
    row->files++;
    row->bytes += (int64_t)file->file_size;
    row->points += (int64_t)file->points;
    if (file->quiet_ms < row->quiet_ms)
        row->quiet_ms = file->quiet_ms;
    return 0;
}

static int add_tag_to_run(void *userdata, const kj_tag_info *tag)
{
    run_list *list = userdata;
    size_t at = list->at;
    while (at < list->n && strcmp(list->rows[at].run, tag->run) != 0)
        at++;
    if (at == list->n) /* a run that is not chosen, or whose files have gone */
        return 0;
    list->at = at;
    list->rows[at].tags++;
    return 0;
}

/* A source that lists no files is one run. */
static void add_only_run(run_list *list, const kj_events *events)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(events, &stats);
    if (list->n > 0 || stats.points == 0 || !cli_events_wants_run("."))
        return;
    run_row *row = add_run(list, ".");
    row->files = (int64_t)stats.files;
    row->bytes = (int64_t)stats.bytes;
    row->points = (int64_t)stats.points;
}

static const char *const run_columns[] = {"run",    "files",       "bytes", "tags",
                                          "points", "last_change", NULL};

static void set_run(cli_table *table, const run_row *row)
{
    double changed = (double)time(NULL) - (double)(row->quiet_ms / 1000);
    char text[32];
    cli_table_add_row(table);
    cli_table_set(table, 0, cli_json_text(row->run));
    cli_table_set_int(table, 1, row->files);
    cli_table_set_int(table, 2, row->bytes);
    cli_table_set_int(table, 3, row->tags);
    cli_table_set_int(table, 4, row->points);
    if (row->quiet_ms == INT64_MAX)
        return;
    if (cli.format == CLI_TABLE)
        cli_table_set_text(table, 5, cli_time_text(changed, text));
    else
        cli_table_set_double(table, 5, changed);
}

static int list_runs(kj_events *events, cli_table *table)
{
    kj_error err = KJ_ERROR_INIT;
    run_list list = {.n = 0};
    int status = CLI_DONE;
    kj_events_list_files(events, add_file_to_run, &list);
    add_only_run(&list, events);
    if (kj_events_list_tags(events, add_tag_to_run, &list, &err) < 0)
        status = cli_fail(&err);
    for (size_t k = 0; k < list.n; k++) {
        set_run(table, &list.rows[k]);
        free(list.rows[k].run);
    }
    free(list.rows);
    return status == CLI_DONE ? cli_events_check_found(events) : status;
}

int cli_events_print_runs(void)
{
    return print_table(run_columns, list_runs);
}

static struct json_object *add_int(struct json_object *object, const char *name, uint64_t value)
{
    json_object_object_add(object, name, cli_check_memory(json_object_new_int64((int64_t)value)));
    return object;
}

static int add_file(void *userdata, const kj_file_info *file)
{
    if (!cli_events_wants_run(file->run))
        return 0;
    struct json_object *row = cli_check_memory(json_object_new_object());
    json_object_object_add(row, "file", cli_json_text(file->path));
    add_int(row, "bytes", file->file_size);
    add_int(row, "records", file->records);
    add_int(row, "points", file->points);
    add_int(row, "skipped_records", file->skipped_records);
    add_int(row, "skipped_bytes", file->skipped_bytes);
    add_int(row, "waiting_bytes",
            file->file_size > file->committed ? file->file_size - file->committed : 0);
    const char *state = file->present ? kj_damage_kind_name(file->state) : "deleted";
    json_object_object_add(row, "end", cli_json_text(state ? state : "?"));
    json_object_array_add(userdata, row);
    return 0;
}

static struct json_object *total_of(const kj_events *events)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(events, &stats);
    struct json_object *total = cli_check_memory(json_object_new_object());
    add_int(total, "runs", stats.runs);
    add_int(total, "files", stats.files);
    add_int(total, "bytes", stats.bytes);
    add_int(total, "records", stats.records);
    add_int(total, "points", stats.points);
    add_int(total, "skipped_records", stats.skipped_records);
    add_int(total, "skipped_bytes", stats.skipped_bytes);
    add_int(total, "waiting_files", stats.waiting_files);
    struct json_object *kinds = cli_check_memory(json_object_new_object());
    for (uint32_t k = 0; k < KJ_EVENT_KINDS; k++)
        if (stats.kinds[k] > 0 && kj_event_kind_name(k))
            add_int(kinds, kj_event_kind_name(k), stats.kinds[k]);
    json_object_object_add(total, "kinds", kinds);
    return total;
}

static void print_total(struct json_object *total)
{
    json_object_object_foreach(total, key, value)
    {
        if (!json_object_is_type(value, json_type_object)) {
            printf("%s: %s\n", key, json_object_get_string(value));
            continue;
        }
        if (json_object_object_length(value) == 0)
            continue;
        printf("%s:", key);
        json_object_object_foreach(value, kind, n)
        {
            printf(" %s %s", kind, json_object_get_string(n));
        }
        putchar('\n');
    }
}

static const char *const file_columns[] = {
    "bytes", "records", "points", "skipped_records", "skipped_bytes", "waiting_bytes",
    "end",   "file",    NULL};

static void print_files(struct json_object *files)
{
    cli_table *table = cli_table_new(file_columns);
    for (size_t k = 0; k < json_object_array_length(files); k++) {
        cli_table_add_row(table);
        for (int c = 0; file_columns[c]; c++)
            cli_table_set(table, c,
                          json_object_get(json_object_object_get(
                              json_object_array_get_idx(files, k), file_columns[c])));
    }
    cli_table_print(table);
    cli_table_free(table);
}

int cli_events_print_stats(void)
{
    kj_events *events;
    int status = cli_events_open(0, NULL, &events);
    if (status != CLI_DONE)
        return status;
    status = cli_events_read_all(events);
    if (status == CLI_DONE) {
        struct json_object *stats = cli_check_memory(json_object_new_object());
        struct json_object *files = cli_check_memory(json_object_new_array());
        kj_events_list_files(events, add_file, files);
        json_object_object_add(stats, "files", files);
        json_object_object_add(stats, "total", total_of(events));
        if (cli.format & (CLI_JSON | CLI_JSONL | CLI_YAML))
            cli_print_object(stats);
        else
            print_files(files);
        if (cli.format == CLI_TABLE && json_object_array_length(files) > 0)
            putchar('\n');
        if (cli.format == CLI_TABLE)
            print_total(json_object_object_get(stats, "total"));
        json_object_put(stats);
    }
    kj_events_close(events);
    return status;
}
