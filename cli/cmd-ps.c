/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"
#include "output.h"

enum { ID, NAME, STATE, STEP, FRAMEWORK, STARTED, STUDY, TRIAL, PID, RANK, WORLD_SIZE };
static const char *const columns[] = {"id",    "name",  "state", "step", "framework",  "started",
                                      "study", "trial", "pid",   "rank", "world_size", NULL};
/* For people: only rank 0 of several shows itself, unless each is alone. */
static const char *const shown_columns[] = {"id",      "name",  "state", "step", "framework",
                                            "started", "study", "trial", "pid",  NULL};

static void add_text(cli_table *table, int column, const char *text)
{
    if (*text)
        cli_table_set_text(table, column, text);
}

static void add_ranks(cli_table *table, struct json_object *status)
{
    struct json_object *member;
    if (cli.format == CLI_TABLE || !status)
        return;
    if (json_object_object_get_ex(status, "rank", &member))
        cli_table_set(table, RANK, json_object_get(member));
    if (json_object_object_get_ex(status, "world_size", &member))
        cli_table_set(table, WORLD_SIZE, json_object_get(member));
}

static void add_run(cli_table *table, const kj_run_info *info, struct json_object *status)
{
    char started[32];
    cli_table_add_row(table);
    cli_table_set_text(table, ID, info->id);
    add_text(table, NAME, info->name);
    add_text(table, FRAMEWORK, info->framework);
    add_text(table, STUDY, info->study);
    if (info->trial >= 0)
        cli_table_set_int(table, TRIAL, info->trial);
    if (cli.format == CLI_TABLE)
        cli_table_set_text(table, STARTED, cli_time_text(info->start_time, started));
    else
        cli_table_set_double(table, STARTED, info->start_time);
    cli_table_set_int(table, PID, info->pid);
    struct json_object *member;
    if (status && json_object_object_get_ex(status, "state", &member))
        cli_table_set(table, STATE, json_object_get(member));
    else
        cli_table_set_text(table, STATE, "silent");
    if (status && json_object_object_get_ex(status, "step", &member) &&
        json_object_get_int64(member) >= 0)
        cli_table_set(table, STEP, json_object_get(member));
    add_ranks(table, status);
}

static int run_ps(int n_words, const char *const *words)
{
    cli_group group;
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_group_load(&group, true);
    if (status != CLI_DONE)
        return status;
    if (group.n == 0)
        cli_note(cli.study || cli.match ? "no live run is one of these" : "no run is live");
    cli_table *table = cli_table_new(cli.format == CLI_TABLE ? shown_columns : columns);
    for (size_t k = 0; k < group.n; k++)
        add_run(table, group.runs[k].info, group.runs[k].status);
    cli_table_print(table);
    cli_table_free(table);
    status = group.worst;
    cli_group_done(&group);
    return status;
}

static const cli_example examples[] = {
    {"kajitori ps", "the live runs, oldest first"},
    {"kajitori ps --format value | cut -f1", "their ids only"},
    {"kajitori ps --study s1 --match 'val_loss>2' --match 'epoch>3'",
     "those for which all this holds"},
    {NULL, NULL},
};

const cli_command cli_ps = {
    .name = "ps",
    .usage = "[OPTIONS]",
    .summary = "list the live runs",
    .description =
        "Lists the runs of this user that live, oldest first. The doors of dead runs are removed "
        "on the way. A run that does not answer (for example because its process is stopped) has "
        "the state 'silent'. When no run is live, nothing is printed and the exit status is 0.",
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .flags = CLI_TAKES_RUNTIME | CLI_TAKES_GROUP,
    .examples = examples,
    .see_also = "status watch log",
    .run = run_ps,
};
