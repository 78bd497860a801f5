/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWER_MS = 2000, BUDGET_S = 5 };

enum { ID, NAME, STATE, STEP, FRAMEWORK, STARTED, STUDY, TRIAL, PID };
static const char *const columns[] = {"id",      "name",  "state", "step", "framework",
                                      "started", "study", "trial", "pid",  NULL};

static double monotonic_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The answer to "status", or NULL when the run does not give one. */
static struct json_object *ask_status(const kj_run_info *info)
{
    kj_client *client;
    char *json;
    struct json_object *status = NULL;
    if (kj_client_open(info->dir, &client, NULL) < 0)
        return NULL;
    if (kj_client_call(client, "status", NULL, ANSWER_MS, &json, NULL) >= 0) {
        status = json_tokener_parse(json);
        kj_free(json);
    }
    kj_client_close(client);
    return status;
}

static void add_text(cli_table *table, int column, const char *text)
{
    if (*text)
        cli_table_set_text(table, column, text);
}

static void add_run(cli_table *table, const kj_run_info *info, bool ask)
{
    char started[32];
    cli_table_add_row(table);
    cli_table_set_text(table, ID, info->id);
    add_text(table, NAME, info->name);
    add_text(table, FRAMEWORK, info->framework);
    add_text(table, STUDY, info->study);
    if (info->trial >= 0)
        cli_table_set_int(table, TRIAL, info->trial);
    if (cli.format & (CLI_JSON | CLI_YAML))
        cli_table_set_double(table, STARTED, info->start_time);
    else
        cli_table_set_text(table, STARTED, cli_time_text(info->start_time, started));
    cli_table_set_int(table, PID, info->pid);
    struct json_object *status = ask ? ask_status(info) : NULL, *member;
    if (status && json_object_object_get_ex(status, "state", &member))
        cli_table_set(table, STATE, json_object_get(member));
    else
        cli_table_set_text(table, STATE, "silent");
    if (status && json_object_object_get_ex(status, "step", &member) &&
        json_object_get_int64(member) >= 0)
        cli_table_set(table, STEP, json_object_get(member));
    json_object_put(status);
}

static int run_ps(int n_words, const char *const *words)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    if (n_words > 0)
        return cli_too_many(words[0]);
    if (kj_run_list_load(cli.runtime_dir, &list, &err) < 0)
        return cli_fail(&err);
    if (kj_run_list_size(list) == 0)
        cli_note("no run is live");
    cli_table *table = cli_table_new(columns);
    double begin = monotonic_s();
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        add_run(table, kj_run_list_get(list, k), monotonic_s() - begin < BUDGET_S);
    cli_table_print(table);
    cli_table_free(table);
    kj_run_list_free(list);
    return CLI_DONE;
}

static const cli_example examples[] = {
    {"kajitori ps", "the live runs, oldest first"},
    {"kajitori ps --format value | cut -f1", "their ids only"},
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
    .flags = CLI_TAKES_RUN,
    .examples = examples,
    .see_also = "status watch log",
    .run = run_ps,
};
