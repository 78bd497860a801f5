/* SPDX-License-Identifier: Apache-2.0 */
/* Scalars of event files and other sources: what is there, the points, figures, damage, charts. */
#include "events-verb.h"

#include <string.h>

cli_events_options cli_events_given;

static int list_tags, list_runs, print_values, print_stats, verify, plot;
static const struct poptOption options[] = {
    {"tag", 't', POPT_ARG_ARGV, &cli_events_given.tags, 0,
     "the points of this tag, or of all that a glob fits ('epoch_*'); may be given several times",
     "TAG"},
    {"run", 'r', POPT_ARG_ARGV, &cli_events_given.runs, 0,
     "only of this folder below DIR ('.' for DIR itself), or of all that a glob fits; may be given "
     "several times",
     "RUN"},
    {"values", 0, POPT_ARG_NONE, &print_values, 0, "the points of all tags", NULL},
    {"list", 'l', POPT_ARG_NONE, &list_tags, 0,
     "list the runs and their tags (the default, but with --tag, --format jsonl or npz the points "
     "are)",
     NULL},
    {"runs", 0, POPT_ARG_NONE, &list_runs, 0, "list the runs only", NULL},
    {"follow", 'f', POPT_ARG_NONE, &cli_events_given.follow, 0,
     "print the points and wait for more, also for a DIR that is not there yet", NULL},
    {"finished", 0, POPT_ARG_NONE, &cli_events_given.finished, 0,
     "nobody writes any more: skip a damaged or torn record at once", NULL},
    {"merge", 0, POPT_ARG_STRING, &cli_events_given.merge_name, 0,
     "where a run has several points of one step: all [default], the last one or the first one; "
     "last leaves out what a resumed training did again",
     "all|last|first"},
    {"cursor", 0, POPT_ARG_STRING, &cli_events_given.cursor, 0,
     "go on where the last call with this file stopped; the file is kept up to date", "FILE"},
    {"output", 'o', POPT_ARG_STRING, &cli_events_given.output, 0,
     "write to this file, which is replaced when the result is complete; with --follow or "
     "--cursor, append to it",
     "FILE"},
    {"stats", 0, POPT_ARG_NONE, &print_stats, 0,
     "figures of each file and of all: bytes, records, points, damage, kinds of values", NULL},
    {"verify", 0, POPT_ARG_NONE, &verify, 0,
     "check all checksums and list what is damaged; exit status 1 when something is", NULL},
    {"repair", 0, POPT_ARG_STRING, &cli_events_given.repair, 0,
     "write the event files to the folder OUT, new or empty, without what is damaged", "OUT"},
    {"plot", 0, POPT_ARG_NONE, &plot, 0, "draw a chart of each tag", NULL},
    {"log", 0, POPT_ARG_NONE, &cli_events_given.log_scale, 0,
     "with --plot: a logarithmic scale of values", NULL},
    POPT_TABLEEND,
};

/* What may be asked for; the first one whose option was given, or the first one. */
typedef struct result {
    const char *option;
    const int *given;
    unsigned formats;
    int (*print)(void);
} result;

enum { FORMATS_OF_TABLES = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE };

static int mend;
static const result results[] = {
    {"--list", &list_tags, FORMATS_OF_TABLES, cli_events_print_list},
    {"--runs", &list_runs, FORMATS_OF_TABLES, cli_events_print_runs},
    {"--values", &print_values, FORMATS_OF_TABLES | CLI_NPZ, cli_events_print_values},
    {"--stats", &print_stats, FORMATS_OF_TABLES, cli_events_print_stats},
    {"--verify", &verify, FORMATS_OF_TABLES, cli_events_print_verify},
    {"--repair", &mend, CLI_TABLE, cli_events_repair},
    {"--plot", &plot, CLI_TABLE, cli_events_print_plot},
};
enum { N_RESULTS = sizeof results / sizeof *results, VALUES = 2 };

/* The one result that is asked for, NULL with the error said when there are two. */
static const result *choose_result(void)
{
    const result *chosen = NULL;
    mend = cli_events_given.repair != NULL;
    for (size_t k = 0; k < N_RESULTS; k++) {
        if (!*results[k].given)
            continue;
        if (chosen) {
            cli_usage("%s and %s exclude each other", chosen->option, results[k].option);
            return NULL;
        }
        chosen = &results[k];
    }
    bool values = cli_events_given.tags || cli_events_given.follow || cli_events_given.cursor ||
                  cli_events_given.merge_name || cli.format == CLI_JSONL || cli.format == CLI_NPZ;
    if (!chosen)
        chosen = &results[values ? VALUES : 0];
    if (!(chosen->formats & (unsigned)cli.format)) {
        char known[CLI_FORMAT_LIST], given[CLI_FORMAT_LIST];
        cli_usage("--format %s: %s has the formats %s",
                  cli_format_list((unsigned)cli.format, given), chosen->option,
                  cli_format_list(chosen->formats, known));
        return NULL;
    }
    return chosen;
}

static int check_merge(void)
{
    static const char *const names[] = {
        [KJ_MERGE_ALL] = "all", [KJ_MERGE_LAST] = "last", [KJ_MERGE_FIRST] = "first"};
    const char *name = cli_events_given.merge_name;
    for (int k = 0; name && k < 3; k++) {
        if (strcmp(names[k], name) == 0) {
            cli_events_given.merge = k;
            return CLI_DONE;
        }
    }
    return name ? cli_usage("--merge %s: give all, last or first", name) : CLI_DONE;
}

/* Two options of which each makes the other one meaningless. */
static int check_pairs(const result *chosen)
{
    const cli_events_options *given = &cli_events_given;
    bool without_end = given->follow || given->cursor;
    const char *last = given->follow ? "--follow" : "--cursor";
    if (without_end && chosen != &results[VALUES])
        return cli_usage("%s and %s exclude each other", chosen->option, last);
    if (without_end && given->merge)
        return cli_usage("--merge %s needs all points, which %s does not wait for",
                         given->merge_name, last);
    if (without_end && (cli.format & (CLI_JSON | CLI_NPZ)))
        return cli_usage("%s prints rows that may be continued: table, jsonl, csv, yaml or value",
                         last);
    if ((given->cursor && !*given->cursor) || (given->output && !*given->output))
        return cli_usage("the name of a file is empty");
    if (given->follow && given->finished)
        return cli_usage("--finished and --follow exclude each other");
    if (given->log_scale && !plot)
        return cli_usage("--log goes with --plot");
    if (given->tags && (mend || verify || print_stats || list_runs))
        return cli_usage("%s is about files; it has no --tag", chosen->option);
    if (mend && given->output)
        return cli_usage("--repair and --output exclude each other");
    return CLI_DONE;
}

static int run_events(int n_words, const char *const *words)
{
    if (n_words == 0)
        return cli_usage("say which folder, event file or source");
    if (n_words > 1)
        return cli_too_many(words[1]);
    cli_events_given.place = words[0];
    const result *chosen = choose_result();
    if (!chosen)
        return CLI_USAGE;
    int status = check_merge();
    if (status == CLI_DONE)
        status = check_pairs(chosen);
    if (status == CLI_DONE)
        status = cli_events_output_begin();
    if (status != CLI_DONE)
        return status;
    status = cli.format == CLI_NPZ ? cli_events_print_npz() : chosen->print();
    return cli_events_output_end(status);
}

static const cli_example examples[] = {
    {"kajitori events logs", "which runs and tags there are below the folder logs"},
    {"kajitori events logs --tag loss --format csv", "the points of one tag"},
    {"kajitori events logs --tag loss --run validation --follow",
     "the same while they are written"},
    {"kajitori events logs --follow --format jsonl --cursor at --output points.jsonl",
     "a file of all points, each once, whenever and however often this is killed"},
    {"kajitori events logs --format npz -o points.npz", "all points for numpy.load"},
    {"kajitori events logs --tag 'epoch_*' --plot", "charts, with the runs over one another"},
    {"kajitori events logs --verify", "whether all files are whole"},
    {"kajitori events csv:metrics.csv --tag val_loss", "the points of a column of a table"},
    {NULL, NULL},
};

const cli_command cli_events = {
    .name = "events",
    .usage = "DIR|FILE|SPEC [OPTIONS]",
    .summary = "read scalars of event files and other sources",
    .description =
        "Without options, lists the runs (folders below DIR) and their tags with counts, steps and "
        "values. With --tag, --values or --format jsonl, prints points, file by file in the order "
        "in which they were written. A tag that does not exist ends with the nearest of those "
        "that do and exit status 1.\n\nFILE is one event file. SPEC is a source and where it is: "
        "events:DIR[:TAG], jsonl:FILE[:FIELD], csv:FILE[:COLUMN], text:FILE:/PATTERN/ (where FILE "
        "may "
        "be - for standard input), trainer:FILE[:KEY].\n\nNumbers are spelled as short as "
        "reads back to the same value. wall_time is seconds since 1970; a table shows local time. "
        "NaN and infinities are strings in JSON.\n\n--verify ends with exit status 1 when "
        "something is damaged, and tells which bytes. A record that is unfinished at the end of a "
        "file is told, too; it fails with --finished.",
    .options = options,
    .formats = FORMATS_OF_TABLES | CLI_NPZ,
    .examples = examples,
    .see_also = "watch",
    .run = run_events,
};
