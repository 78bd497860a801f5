/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping house. Without --yes nothing is removed, only listed. */
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *older_than, *keep;
static int yes;
static const struct poptOption options[] = {
    {"older-than", 0, POPT_ARG_STRING, &older_than, 0,
     "what belongs to runs that ended longer ago goes (default 30d, with --keep alone: no limit)",
     "AGE"},
    {"keep", 0, POPT_ARG_STRING, &keep, 0,
     "the oldest goes until all together have no more than this", "SIZE"},
    {"yes", 'y', POPT_ARG_NONE, &yes, 0, "remove it; without, it is only listed", NULL},
    POPT_TABLEEND,
};

enum { PATH, WHAT, BYTES, AGE, REASON };
static const char *const columns[] = {"path", "what", "bytes", "age_s", "reason", NULL};

/* "1.5d", "500M": a number and one of the units. */
static bool parse_amount(const char *text, const char *units, const double *factors, double *ret)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number >= 0) || !isfinite(number))
        return false;
    if (*end) {
        const char *unit = strchr(units, *end);
        if (!unit)
            return false;
        number *= factors[unit - units];
        end++;
    }
    *ret = number;
    return !*end;
}

static bool parse_age(const char *text, double *ret_seconds)
{
    static const double factors[] = {1, 60, 3600, 86400, 604800};
    return parse_amount(text, "smhdw", factors, ret_seconds);
}

static bool parse_size(const char *text, int64_t *ret_bytes)
{
    static const double factors[] = {1024.0, 1048576.0, 1073741824.0, 1099511627776.0};
    double bytes;
    if (!parse_amount(text, "KMGT", factors, &bytes) || bytes > 9e18)
        return false;
    *ret_bytes = (int64_t)bytes;
    return true;
}

/* "1.5 GiB". */
static const char *size_text(int64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double number = (double)bytes;
    size_t k = 0;
    for (; number >= 1024 && k + 1 < sizeof units / sizeof *units; k++)
        number /= 1024;
    snprintf(text, 32, k ? "%.1f %s" : "%.0f %s", number, units[k]);
    return text;
}

static const char *age_text(double seconds, char text[32])
{
    if (seconds >= 86400)
        snprintf(text, 32, "%.0f d", floor(seconds / 86400));
    else if (seconds >= 3600)
        snprintf(text, 32, "%.0f h", floor(seconds / 3600));
    else
        snprintf(text, 32, "%.0f min", floor(seconds / 60));
    return text;
}

typedef struct listing {
    cli_table *table;
    int64_t n;
    int64_t bytes;
} listing;

static int list_item(void *userdata, const kj_gc_item *item)
{
    listing *all = userdata;
    char text[32];
    cli_table_add_row(all->table);
    cli_table_set_text(all->table, PATH, item->path);
    cli_table_set_text(all->table, WHAT, item->kind == KJ_GC_DOORS ? "doors" : "run");
    cli_table_set_text(all->table, REASON, item->reason);
    if (cli.format == CLI_TABLE) {
        cli_table_set_text(all->table, BYTES, size_text(item->bytes, text));
        cli_table_set_text(all->table, AGE, age_text(item->age_s, text));
    } else {
        cli_table_set_int(all->table, BYTES, item->bytes);
        cli_table_set_double(all->table, AGE, item->age_s);
    }
    all->n++;
    all->bytes += item->bytes;
    return 0;
}

static int read_options(kj_gc_options *gc)
{
    if (!older_than && !keep)
        older_than = "30d";
    if (older_than && !parse_age(older_than, &gc->older_than_s))
        return cli_usage("--older-than %s: a number and s, m, h, d or w, such as 30d", older_than);
    if (keep && !parse_size(keep, &gc->keep_bytes))
        return cli_usage("--keep %s: a number of bytes, or with K, M, G or T, such as 5G", keep);
    gc->runtime_dir = cli.runtime_dir;
    gc->state_dir = cli.state_dir;
    gc->flags = yes ? 0 : KJ_GC_DRY_RUN;
    return CLI_DONE;
}

static int run_gc(int n_words, const char *const *words)
{
    kj_error err = KJ_ERROR_INIT;
    kj_gc_options gc = KJ_GC_OPTIONS_INIT;
    char text[32];
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = read_options(&gc);
    if (status != CLI_DONE)
        return status;
    listing all = {.table = cli_table_new(columns)};
    int r = kj_gc(&gc, list_item, &all, &err);
    cli_table_print(all.table);
    cli_table_free(all.table);
    if (r < 0)
        return cli_fail(&err);
    if (all.n == 0)
        cli_note("there is nothing to remove");
    else if (yes)
        cli_note("removed: %s", size_text(all.bytes, text));
    else
        cli_note("%s would go; --yes removes it", size_text(all.bytes, text));
    return CLI_DONE;
}

static const cli_example examples[] = {
    {"kajitori gc",
     "what runs that ended more than 30 days ago have left, and the doors of dead ones"},
    {"kajitori gc --yes", "remove it"},
    {"kajitori gc --older-than 1w --keep 5G --yes",
     "remove what is older than a week, then the oldest until 5 GiB are left"},
    {NULL, NULL},
};

const cli_command cli_gc = {
    .name = "gc",
    .usage = "[OPTIONS]",
    .summary = "remove what runs that have ended left behind",
    .description =
        "Lists, and with --yes removes, the journals of runs that have ended and the doors of dead "
        "runs: path, what it is, size, age (since the run was last heard of) and why it goes. Live "
        "runs are never touched, links are not followed, and a file that is not kajitori's stays, "
        "with its folder.",
    .options = options,
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .flags = CLI_TAKES_RUNTIME | CLI_TAKES_STATE,
    .examples = examples,
    .see_also = "ps log",
    .run = run_gc,
};
