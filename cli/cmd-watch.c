/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"
#include "records.h"

#include <stdlib.h>
#include <string.h>

static void print_event(const char *json)
{
    struct json_object *event = json_tokener_parse(json);
    if (cli.format == CLI_TABLE && json_object_is_type(event, json_type_object))
        cli_print_event(event);
    else if (event)
        cli_print_json(event);
    fflush(stdout);
    json_object_put(event);
}

/* Until the run ends; then every event it sent has been printed. */
static int follow(kj_client *client)
{
    kj_error err = KJ_ERROR_INIT;
    for (;;) {
        char *json;
        int r = kj_client_next_event(client, -1, &json, &err);
        if (r == KJ_EENDED)
            return CLI_DONE;
        if (r < 0)
            return cli_fail(&err);
        if (r > 0) {
            print_event(json);
            kj_free(json);
        }
        if (ferror(stdout))
            return CLI_FAILED;
    }
}

static int run_watch(int n_words, const char *const *words)
{
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    char *id, *json;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_open_run(run, CLI_ANSWER_MS, &client, &id);
    if (status != CLI_DONE)
        return status;
    int r = kj_client_call(client, "subscribe", NULL, CLI_ANSWER_MS, &json, &err);
    if (r >= 0) {
        kj_free(json);
        cli_note("watching %s; Ctrl-C ends watching, not the run", id);
        status = follow(client);
        if (status == CLI_DONE)
            cli_note("%s has ended", id);
    } else {
        status = cli_fail(&err);
    }
    kj_client_close(client);
    free(id);
    return status;
}

static const cli_example examples[] = {
    {"kajitori watch", "what the only live run reports and is told, line by line"},
    {"kajitori watch digits --format json | jq .value", "the same as one JSON object per line"},
    {NULL, NULL},
};

const cli_command cli_watch = {
    .name = "watch",
    .usage = "[RUN] [OPTIONS]",
    .summary = "follow the metrics and commands of a run",
    .description =
        "One line for each metric that the run reports, each command that somebody sends to it, "
        "and each change of its state, until the run ends (exit status 0) or Ctrl-C. With --format "
        "json or jsonl each line is the protocol's event.",
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "status log events",
    .run = run_watch,
};
