/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv:FILE[:COLUMN]. The first record is the header; of its columns one is the step, one the time
 * and one the run, by their names; every other number is a point. A table of the columns run, tag,
 * step, wall_time and value has one point a row.
 *
 * Lightning's CSVLogger writes the whole file anew when a key appears: the columns stand elsewhere
 * then, and the rows have grown empty cells, but they are the same rows. So a row is known by its
 * filled cells and their columns' names, in any order (row-memory.h).
 */
#include "csv-row.h"
#include "errors.h"
#include "field-names.h"
#include "line-file.h"
#include "mem.h"
#include "number.h"
#include "row-memory.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { MAX_RUNS = 100000, N_STEP_NAMES = 8 };

static const char syntax[] = "csv:FILE[:COLUMN]";

struct column {
    size_t name, name_size; /* in `names` */
    bool told;              /* that it has cells that are no numbers */
};

struct csv {
    kji_line_file file;
    kji_tag_table *tags;
    kji_strbuf names;
    struct column *columns;
    size_t n_columns, columns_capacity;
    kji_cell *cells; /* one more than there are columns */
    size_t cells_capacity;
    /* Columns by what they are, plus one; 0: none. Steps and times by preference. */
    size_t steps[N_STEP_NAMES], times[N_STEP_NAMES], run, tag, value;
    bool is_long; /* one point a row: run, tag, step, wall_time, value */
    size_t n_rows;
    kji_row_memory rows;
};

static int csv_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    return kji_spec_split_tag(rest, "file", syntax, "column", ret_where, ret_tag, err);
}

static kji_cell name_of(const struct csv *csv, size_t k)
{
    return (kji_cell){csv->names.text + csv->columns[k].name, csv->columns[k].name_size};
}

static bool is_text(kji_cell cell, const char *text)
{
    return cell.size == strlen(text) && strncasecmp(cell.text, text, cell.size) == 0;
}

static bool is_empty(kji_cell cell)
{
    return cell.size == 0 || is_text(cell, "NA") || is_text(cell, "N/A") || is_text(cell, "null") ||
           is_text(cell, "none");
}

static bool get_number(kji_cell cell, double *ret_value)
{
    if (is_text(cell, "true") || is_text(cell, "false")) {
        *ret_value = is_text(cell, "true");
        return true;
    }
    return kji_parse_double(cell.text, cell.size, ret_value);
}

static bool get_step(kji_cell cell, int64_t *ret_step)
{
    double value;
    return kji_parse_int64(cell.text, cell.size, ret_step) ||
           (kji_parse_double(cell.text, cell.size, &value) && kji_whole_step(value, ret_step));
}

/* The cells of the record, without blanks around. Returns how many, at most one more than `max`. */
static size_t split_record(struct csv *csv, size_t max)
{
    kji_lines *lines = &csv->file.lines;
    size_t bom =
        csv->n_columns == 0 && lines->size >= 3 && memcmp(lines->line, "\xef\xbb\xbf", 3) == 0 ? 3
                                                                                               : 0;
    if (!kji_reserve(&csv->cells, &csv->cells_capacity, max + 1, sizeof *csv->cells)) {
        csv->file.batch.failed = true;
        return 0;
    }
    size_t n =
        kji_csv_split(lines->line + bom, lines->size - bom, lines->delimiter, csv->cells, max + 1);
    n = n < max + 1 ? n : max + 1;
    for (size_t k = 0; k < n; k++)
        csv->cells[k] = kji_csv_trim(csv->cells[k]);
    return n;
}

static void note_column(struct csv *csv, size_t k)
{
    kji_cell name = name_of(csv, k);
    unsigned step = kji_step_field(name.text, name.size);
    unsigned time = kji_time_field(name.text, name.size);
    if (step)
        csv->steps[step] = k + 1;
    if (time)
        csv->times[time] = k + 1;
    if (is_text(name, "run"))
        csv->run = k + 1;
    if (is_text(name, "tag"))
        csv->tag = k + 1;
    if (is_text(name, "value"))
        csv->value = k + 1;
}

static bool is_header(const struct csv *csv, size_t n)
{
    double value;
    for (size_t k = 0; k < n; k++)
        if (csv->cells[k].size && !get_number(csv->cells[k], &value))
            return true;
    return false;
}

static void add_column(struct csv *csv, kji_cell name)
{
    csv->columns[csv->n_columns++] =
        (struct column){.name = csv->names.size, .name_size = name.size};
    kji_strbuf_add(&csv->names, name.text, name.size);
}

static void note_columns(struct csv *csv)
{
    for (size_t k = 0; k < csv->n_columns; k++)
        note_column(csv, k);
    size_t n_known = 2u + (csv->run != 0) + (csv->steps[1] != 0) + (csv->times[1] != 0);
    csv->is_long = csv->tag && csv->value && csv->n_columns == n_known;
}

static void use_header(struct csv *csv)
{
    kji_line_file *file = &csv->file;
    file->lines.delimiter = kji_csv_delimiter(file->lines.line, file->lines.size);
    size_t n = split_record(csv, KJI_MAX_FIELDS);
    if (n > 0 && !is_header(csv, n)) {
        kji_line_file_reject(file, "no header: expected the names of the columns");
        file->lines.delimiter = 0;
        return;
    }
    if (n > KJI_MAX_FIELDS) {
        kji_line_file_warn(file, "more than %d columns: the rest is left out", KJI_MAX_FIELDS);
        n = KJI_MAX_FIELDS;
    }
    if (!kji_reserve(&csv->columns, &csv->columns_capacity, n, sizeof *csv->columns)) {
        file->batch.failed = true;
        return;
    }
    for (size_t k = 0; k < n; k++)
        add_column(csv, csv->cells[k]);
    file->batch.failed = file->batch.failed || csv->names.failed;
    note_columns(csv);
}

/* Programs that are started again append another header. */
static bool is_header_again(const struct csv *csv, size_t n)
{
    bool same = n == csv->n_columns;
    for (size_t k = 0; same && k < n; k++) {
        kji_cell name = name_of(csv, k);
        same = name.size == csv->cells[k].size &&
               memcmp(name.text, csv->cells[k].text, name.size) == 0;
    }
    return same;
}

static bool was_known(struct csv *csv, size_t n)
{
    uint64_t hash = 0;
    for (size_t k = 0; k < n; k++) {
        kji_cell name = name_of(csv, k), cell = csv->cells[k];
        if (cell.size)
            hash += kji_row_hash(name.text, name.size, cell.text, cell.size);
    }
    return kji_row_memory_knows(&csv->rows, csv->n_rows, hash);
}

static bool run_of(struct csv *csv, size_t n, kji_run **ret_run)
{
    double number;
    char name[256];
    kji_cell cell = csv->run && csv->run <= n ? csv->cells[csv->run - 1] : (kji_cell){"", 0};
    if (is_empty(cell) || get_number(cell, &number) || cell.size >= sizeof name ||
        memchr(cell.text, 0, cell.size)) {
        *ret_run = csv->file.root;
        return false;
    }
    memcpy(name, cell.text, cell.size);
    name[cell.size] = 0;
    *ret_run = csv->tags->n_runs < MAX_RUNS ? kji_tag_table_run(csv->tags, name) : NULL;
    return true;
}

/* The column, plus one, that has the row's step, or its time. */
static size_t find_step(const struct csv *csv, size_t n, int64_t *ret_step)
{
    for (size_t k = 1; k < N_STEP_NAMES; k++)
        if (csv->steps[k] && csv->steps[k] <= n &&
            get_step(csv->cells[csv->steps[k] - 1], ret_step))
            return csv->steps[k];
    return 0;
}

static size_t find_time(const struct csv *csv, size_t n, double *ret_time)
{
    for (size_t k = 1; k < N_STEP_NAMES; k++) {
        if (!csv->times[k] || csv->times[k] > n)
            continue;
        kji_cell cell = csv->cells[csv->times[k] - 1];
        if (kji_parse_double(cell.text, cell.size, ret_time))
            return csv->times[k];
    }
    return 0;
}

static void add_cell(struct csv *csv, size_t k, kji_cell tag)
{
    kji_cell cell = csv->cells[k];
    double value;
    if (is_empty(cell))
        return;
    if (get_number(cell, &value)) {
        kji_batch_add(&csv->file.batch, tag.text, tag.size, value);
    } else if (!csv->columns[k].told) {
        csv->columns[k].told = true;
        kji_cell name = name_of(csv, k);
        kji_line_file_warn(&csv->file, "column %.*s: \"%.*s\" is no number: no point",
                           (int)(name.size < 60 ? name.size : 60), name.text,
                           (int)(cell.size < 60 ? cell.size : 60), cell.text);
    }
}

static void add_points(struct csv *csv, size_t n)
{
    kji_origin *origin = &csv->file.batch.origin;
    origin->step = (int64_t)csv->n_rows;
    origin->wall_time = NAN;
    size_t step = find_step(csv, n, &origin->step), time = find_time(csv, n, &origin->wall_time);
    bool has_run = run_of(csv, n, &origin->run);
    if (!origin->run) {
        kji_line_file_reject(&csv->file, "more than %d runs", MAX_RUNS);
        return;
    }
    if (csv->is_long) {
        if (csv->tag <= n && csv->value <= n)
            add_cell(csv, csv->value - 1, csv->cells[csv->tag - 1]);
        return;
    }
    for (size_t k = 0; k < n; k++)
        if (k + 1 != step && k + 1 != time && !(has_run && k + 1 == csv->run))
            add_cell(csv, k, name_of(csv, k));
}

static void use_row(struct csv *csv)
{
    size_t n = split_record(csv, csv->n_columns);
    if (n > csv->n_columns && csv->cells[n - 1].size == 0)
        n--;
    if (n > csv->n_columns) {
        kji_line_file_reject(&csv->file, "more cells than the header has columns (%zu)",
                             csv->n_columns);
        return;
    }
    if (is_header_again(csv, n))
        return;
    if (!was_known(csv, n))
        add_points(csv, n);
    if (csv->rows.mistaken)
        kji_line_file_again(&csv->file);
    csv->n_rows++;
}

static void use_record(void *userdata)
{
    struct csv *csv = userdata;
    if (csv->n_columns == 0)
        use_header(csv);
    else
        use_row(csv);
}

static void restart(void *userdata)
{
    struct csv *csv = userdata;
    kji_strbuf_clear(&csv->names);
    csv->n_columns = csv->n_rows = 0;
    memset(csv->steps, 0, sizeof csv->steps);
    memset(csv->times, 0, sizeof csv->times);
    csv->run = csv->tag = csv->value = 0;
    csv->is_long = false;
    csv->file.lines.delimiter = 0;
}

static int csv_open(void *instance, const kji_source_context *context, kj_error *err)
{
    struct csv *csv = instance;
    const kji_line_user user = {use_record, restart, csv};
    csv->tags = context->tags;
    csv->names = (kji_strbuf)KJI_STRBUF_INIT;
    return kji_line_file_init(&csv->file, context->spec->where, context, KJI_CUT_QUOTED, &user,
                              err);
}

static void csv_close(void *instance)
{
    struct csv *csv = instance;
    kji_line_file_done(&csv->file);
    kji_row_memory_done(&csv->rows);
    kji_strbuf_done(&csv->names);
    free(csv->columns);
    free(csv->cells);
}

static int csv_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct csv *csv = instance;
    return kji_line_file_step(&csv->file, sink, finished, err);
}

static void csv_count(const void *instance, kj_events_stats *stats)
{
    const struct csv *csv = instance;
    kji_line_file_count(&csv->file, stats);
}

/* The row in use is read, and known, again. */
static void csv_save(const void *instance, kji_strbuf *to)
{
    const struct csv *csv = instance;
    size_t in_use = csv->file.in_use && csv->n_rows > 0;
    size_t n_known = kji_row_memory_count(&csv->rows), n_rows = csv->n_rows - in_use;
    kji_cursor_open(to);
    kji_cursor_put_uint(to, n_rows);
    kji_row_memory_save(&csv->rows, in_use && csv->file.batch.n ? n_rows : n_known, to);
    kji_cursor_put_uint(to, (unsigned char)csv->file.lines.delimiter);
    kji_cursor_open(to);
    for (size_t k = 0; k < csv->n_columns; k++)
        kji_cursor_put_name(to, name_of(csv, k).text, name_of(csv, k).size);
    kji_cursor_close(to);
    kji_line_file_save(&csv->file, to);
    kji_cursor_close(to);
}

static void restore_columns(struct csv *csv, kji_cursor_items *items)
{
    kji_cursor_items names = kji_cursor_take_array(items);
    while (kji_cursor_more(&names)) {
        size_t size = 0;
        KJI_CLEANUP(kji_freep) char *name = kji_cursor_take_name(&names, &size);
        kji_cursor_expect(&names, csv->n_columns < KJI_MAX_FIELDS, "too many columns");
        if (!names.wrong && !kji_reserve(&csv->columns, &csv->columns_capacity, csv->n_columns + 1,
                                         sizeof *csv->columns))
            names.wrong = kji_cursor_no_memory;
        if (!names.wrong)
            add_column(csv, (kji_cell){name, size});
    }
    if (csv->names.failed)
        names.wrong = kji_cursor_no_memory;
    if (names.wrong)
        items->wrong = names.wrong;
    note_columns(csv);
}

static void csv_restore(void *instance, kji_cursor_items *items)
{
    struct csv *csv = instance;
    csv->n_rows = kji_cursor_take_uint(items, INT64_MAX / 4);
    kji_row_memory_restore(&csv->rows, items);
    csv->file.lines.delimiter = (char)kji_cursor_take_uint(items, 127);
    restore_columns(csv, items);
    kji_line_file_restore(&csv->file, items);
    kji_cursor_expect(items, csv->n_columns || !csv->file.offset || !csv->n_rows, "no columns");
}

static int csv_list_files(void *instance, kj_file_fn fn, void *userdata)
{
    struct csv *csv = instance;
    return kji_line_file_list(&csv->file, fn, userdata);
}

static int csv_list_damage(void *instance, kj_damage_fn fn, void *userdata)
{
    struct csv *csv = instance;
    return kji_line_file_list_damage(&csv->file, fn, userdata);
}

const kji_source_kind kji_source_csv = {
    .size = sizeof(kji_source_kind),
    .name = "csv",
    .syntax = syntax,
    .instance_size = sizeof(struct csv),
    .split = csv_split,
    .open = csv_open,
    .close = csv_close,
    .step = csv_step,
    .count = csv_count,
    .list_files = csv_list_files,
    .list_damage = csv_list_damage,
    .save = csv_save,
    .restore = csv_restore,
};
