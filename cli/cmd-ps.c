/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 2000, ASKERS = 32 };

enum { ID, NAME, STATE, STEP, FRAMEWORK, STARTED, STUDY, TRIAL, PID };
static const char *const columns[] = {"id",      "name",  "state", "step", "framework",
                                      "started", "study", "trial", "pid",  NULL};

/* The answer to "status", or why there is none. */
typedef struct reply {
    struct json_object *status;
    int code;
} reply;

static reply ask_status(const kj_run_info *info)
{
    kj_client *client;
    char *json;
    reply answer = {.code = kj_client_open_within(info->dir, ANSWER_MS, &client, NULL)};
    if (answer.code < 0)
        return answer;
    answer.code = kj_client_call(client, "status", NULL, ANSWER_MS, &json, NULL);
    if (answer.code >= 0) {
        answer.status = json_tokener_parse(json);
        kj_free(json);
    }
    kj_client_close(client);
    return answer;
}

typedef struct inquiry {
    const kj_run_list *list;
    atomic_size_t next;
    reply *replies; /* one for each run */
} inquiry;

static void *ask_some(void *userdata)
{
    inquiry *all = userdata;
    for (size_t k; (k = atomic_fetch_add(&all->next, 1)) < kj_run_list_size(all->list);)
        all->replies[k] = ask_status(kj_run_list_get(all->list, k));
    return NULL;
}

/* At once, so that a run that is silent does not take the time of the others. */
static void ask_all(inquiry *all)
{
    pthread_t askers[ASKERS];
    size_t n = 0;
    while (n < ASKERS && n + 1 < kj_run_list_size(all->list) &&
           pthread_create(&askers[n], NULL, ask_some, all) == 0)
        n++;
    ask_some(all);
    while (n > 0)
        pthread_join(askers[--n], NULL);
}

/* Whether a run that hung up is no longer there: it ended between the list and the question. */
static bool has_ended(const kj_run_info *info, int code)
{
    kj_run_list *list;
    if ((code != KJ_ENORUN && code != KJ_EENDED) ||
        kj_run_list_load(cli.runtime_dir, &list, NULL) < 0)
        return false;
    bool found = false;
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        found = found || strcmp(kj_run_list_get(list, k)->id, info->id) == 0;
    kj_run_list_free(list);
    return !found;
}

static void add_text(cli_table *table, int column, const char *text)
{
    if (*text)
        cli_table_set_text(table, column, text);
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
}

static int run_ps(int n_words, const char *const *words)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    if (n_words > 0)
        return cli_too_many(words[0]);
    if (kj_run_list_load(cli.runtime_dir, &list, &err) < 0)
        return cli_fail(&err);
    size_t n = kj_run_list_size(list);
    inquiry all = {.list = list, .replies = calloc(n + 1, sizeof *all.replies)};
    if (!all.replies) {
        kj_run_list_free(list);
        cli_error("out of memory");
        return CLI_FAILED;
    }
    if (n == 0)
        cli_note("no run is live");
    ask_all(&all);
    cli_table *table = cli_table_new(columns);
    for (size_t k = 0; k < n; k++) {
        if (!has_ended(kj_run_list_get(list, k), all.replies[k].code))
            add_run(table, kj_run_list_get(list, k), all.replies[k].status);
        json_object_put(all.replies[k].status);
    }
    cli_table_print(table);
    cli_table_free(table);
    free(all.replies);
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
    .flags = CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "status watch log",
    .run = run_ps,
};
