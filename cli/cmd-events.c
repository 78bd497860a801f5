/* SPDX-License-Identifier: Apache-2.0 */
/* Scalars of event files: a list of what is there, or the points of one tag as they are read. */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *wanted_tag, *wanted_run;
static int follow_files, list_tags, finished;
static const struct poptOption options[] = {
    {"tag", 't', POPT_ARG_STRING, &wanted_tag, 0, "print the points of this tag", "TAG"},
    {"run", 'r', POPT_ARG_STRING, &wanted_run, 0,
     "only of this folder below DIR ('.' for DIR itself)", "RUN"},
    {"follow", 'f', POPT_ARG_NONE, &follow_files, 0,
     "wait for more, also for a DIR that is not there yet; without --tag, of all tags", NULL},
    {"list", 'l', POPT_ARG_NONE, &list_tags, 0,
     "list the runs and tags (the default without --tag and --follow)", NULL},
    {"finished", 0, POPT_ARG_NONE, &finished, 0,
     "nobody writes any more: skip a damaged or torn record at once", NULL},
    POPT_TABLEEND,
};

static const char *const point_columns[] = {"run", "tag", "step", "value", "wall_time", NULL};
static const int point_widths[] = {16, 28, 9, 22, 19};

typedef struct reading {
    uint64_t n_points; /* of the tag and run asked for */
} reading;

static struct json_object *bytes_as_json(const char *bytes, uint64_t size)
{
    char *clean = cli_clean(bytes, size);
    struct json_object *text = json_object_new_string(clean);
    free(clean);
    return text;
}

static bool is_wanted(const char *run, const char *tag, uint64_t tag_size)
{
    if (wanted_run && strcmp(run, wanted_run) != 0)
        return false;
    return !wanted_tag ||
           (strlen(wanted_tag) == tag_size && memcmp(wanted_tag, tag, tag_size) == 0);
}

static int on_point(void *userdata, const kj_point *point)
{
    reading *state = userdata;
    if (point->flags & KJ_POINT_RESTART || !is_wanted(point->run, point->tag, point->tag_size))
        return 0;
    char time[32];
    if (state->n_points++ == 0) /* not before, so that an error stands alone */
        cli_stream_begin(point_columns, point_widths);
    struct json_object *row[] = {
        bytes_as_json(point->run, strlen(point->run)),
        bytes_as_json(point->tag, point->tag_size),
        json_object_new_int64(point->step),
        cli_json_double(point->value),
        cli.format == CLI_TABLE ? json_object_new_string(cli_time_text(point->wall_time, time))
                                : cli_json_double(point->wall_time),
    };
    if (cli.format == CLI_VALUE)
        cli_stream_row((const char *const[]){"value", NULL}, point_widths, row + 3);
    else
        cli_stream_row(point_columns, point_widths, row);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        json_object_put(row[k]);
    return ferror(stdout);
}

typedef struct tag_names {
    char text[800];
    size_t size;
    uint64_t n, n_left;
} tag_names;

static int add_tag_name(void *userdata, const kj_tag_info *tag)
{
    tag_names *names = userdata;
    char *clean = cli_clean(tag->tag, tag->tag_size);
    bool plain_run = strcmp(tag->run, ".") == 0;
    size_t need = strlen(clean) + strlen(tag->run) + 8;
    if (need < sizeof names->text - names->size)
        names->size += (size_t)sprintf(names->text + names->size, "%s%s%s%s%s",
                                       names->n ? ", " : "", clean, plain_run ? "" : " (in ",
                                       plain_run ? "" : tag->run, plain_run ? "" : ")");
    else
        names->n_left++;
    names->n++;
    free(clean);
    return 0;
}

static int report_missing(kj_events *source, const char *dir)
{
    kj_error err = KJ_ERROR_INIT;
    tag_names names = {.n = 0};
    if (kj_events_list_tags(source, add_tag_name, &names, &err) < 0)
        return cli_fail(&err);
    char more[40] = "";
    if (names.n_left > 0)
        snprintf(more, sizeof more, " and %llu more", (unsigned long long)names.n_left);
    if (names.n == 0)
        cli_error("%s: there are no scalars below it", dir);
    else if (wanted_tag)
        cli_error("%s: no tag '%s'%s%s; there is: %s%s", dir, wanted_tag,
                  wanted_run ? " in run " : "", wanted_run ? wanted_run : "", names.text, more);
    else
        cli_error("%s: no run '%s'; there is: %s%s", dir, wanted_run, names.text, more);
    return CLI_FAILED;
}

static int print_points(kj_events *source, const char *dir)
{
    kj_error err = KJ_ERROR_INIT;
    reading state = {0};
    int r;
    do {
        r = kj_events_step(source, follow_files ? -1 : 0, on_point, &state, &err);
        fflush(stdout);
    } while ((r > 0 || (r == 0 && follow_files)) && !ferror(stdout));
    if (r < 0)
        return cli_fail(&err);
    if (state.n_points == 0 && wanted_tag)
        return report_missing(source, dir);
    if (state.n_points == 0)
        cli_stream_begin(point_columns, point_widths);
    cli_stream_end();
    return CLI_DONE;
}

enum { RUN, TAG, COUNT, FIRST, LAST, LAST_VALUE, MIN, MAX };
static const char *const list_columns[] = {"run",        "tag", "count", "first_step", "last_step",
                                           "last_value", "min", "max",   NULL};

static int add_tag(void *userdata, const kj_tag_info *tag)
{
    cli_table *table = userdata;
    if (!is_wanted(tag->run, tag->tag, tag->tag_size))
        return 0;
    cli_table_add_row(table);
    cli_table_set(table, RUN, bytes_as_json(tag->run, strlen(tag->run)));
    cli_table_set(table, TAG, bytes_as_json(tag->tag, tag->tag_size));
    cli_table_set_int(table, COUNT, (int64_t)tag->count);
    cli_table_set_int(table, FIRST, tag->first_step);
    cli_table_set_int(table, LAST, tag->last_step);
    cli_table_set_double(table, LAST_VALUE, tag->last_value);
    cli_table_set_double(table, MIN, tag->min_value);
    cli_table_set_double(table, MAX, tag->max_value);
    return 0;
}

static int skip_point(void *userdata, const kj_point *point)
{
    (void)userdata, (void)point;
    return 0;
}

static int print_list(kj_events *source, const char *dir)
{
    kj_error err = KJ_ERROR_INIT;
    int r;
    do
        r = kj_events_step(source, 0, skip_point, NULL, &err);
    while (r > 0);
    cli_table *table = cli_table_new(list_columns);
    if (r < 0 || kj_events_list_tags(source, add_tag, table, &err) < 0) {
        cli_table_free(table);
        return cli_fail(&err);
    }
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(source, &stats);
    if (cli_table_is_empty(table) && (wanted_tag || wanted_run)) {
        cli_table_free(table);
        return report_missing(source, dir);
    }
    if (stats.points == 0)
        cli_note("%s: no scalars in %llu event files", dir, (unsigned long long)stats.files);
    cli_table_print(table);
    cli_table_free(table);
    return CLI_DONE;
}

static void note_damage(const kj_events *source)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(source, &stats);
    char bytes[40] = ""; /* a record that is no event is whole */
    if (stats.skipped_bytes > 0)
        snprintf(bytes, sizeof bytes, " (%llu bytes)", (unsigned long long)stats.skipped_bytes);
    if (stats.skipped_records > 0)
        cli_note("%llu damaged record%s%s skipped", (unsigned long long)stats.skipped_records,
                 stats.skipped_records == 1 ? "" : "s", bytes);
    if (stats.waiting_files > 0)
        cli_note("%llu file%s an unfinished record at the end%s",
                 (unsigned long long)stats.waiting_files,
                 stats.waiting_files == 1 ? " has" : "s have",
                 finished ? "" : " (still being written?)");
}

static int check_dir(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) == 0 || (follow_files && errno == ENOENT))
        return CLI_DONE;
    cli_error("%s: %s", dir, errno == ENOENT ? "no such folder" : strerror(errno));
    return CLI_FAILED;
}

static int open_source(const char *dir, kj_events **ret_source)
{
    kj_error err = KJ_ERROR_INIT;
    kj_events_options source_options = KJ_EVENTS_OPTIONS_INIT;
    source_options.flags = finished ? KJ_EVENTS_FINISHED : 0;
    char *spec = malloc(2 * strlen(dir) + 8);
    if (!spec) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    char *to = stpcpy(spec, "events:");
    for (; *dir; *to++ = *dir++)
        if (*dir == ':' || *dir == '\\')
            *to++ = '\\';
    *to = 0;
    int r = kj_events_open(spec, &source_options, ret_source, &err);
    free(spec);
    return r < 0 ? cli_fail(&err) : CLI_DONE;
}

static int run_events(int n_words, const char *const *words)
{
    kj_events *source;
    if (n_words == 0)
        return cli_usage("say which folder");
    if (n_words > 1)
        return cli_too_many(words[1]);
    if (list_tags && follow_files)
        return cli_usage("--list and --follow exclude each other");
    int status = check_dir(words[0]);
    if (status == CLI_DONE)
        status = open_source(words[0], &source);
    if (status != CLI_DONE)
        return status;
    if (list_tags || (!wanted_tag && !follow_files))
        status = print_list(source, words[0]);
    else
        status = print_points(source, words[0]);
    note_damage(source);
    kj_events_close(source);
    return status;
}

static const cli_example examples[] = {
    {"kajitori events logs", "which runs and tags there are below the folder logs"},
    {"kajitori events logs --tag loss --format csv", "the points of one tag"},
    {"kajitori events logs --tag loss --run validation --follow",
     "the same while they are written"},
    {NULL, NULL},
};

const cli_command cli_events = {
    .name = "events",
    .usage = "DIR [OPTIONS]",
    .summary = "read scalars from TensorBoard event files",
    .description =
        "Without --tag, lists the runs (folders below DIR) and their tags with counts, steps and "
        "values. With --tag, prints the points of that tag, file by file in the order in which "
        "they were written. A tag that does not exist ends with a list of those that do and exit "
        "status 1.\n\nNumbers are spelled as short as reads back to the same value. wall_time is "
        "seconds since 1970; a table shows local time. NaN and infinities are strings in JSON.",
    .options = options,
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .examples = examples,
    .see_also = "watch",
    .run = run_events,
};
