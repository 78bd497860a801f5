/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal is read from its file; with --follow, what is added comes from the run's own
 * "journal" method (asked after each event, and once a second for lines that are no events), and
 * the last lines from the file again once the run is gone. The numbers of the lines join the three.
 */
#include "as-schedule.h"
#include "output.h"
#include "records.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_AGAIN_MS = 1000, LINES_AT_ONCE = 1000 };

static int follow_run, as_schedule;
static const struct poptOption options[] = {
    {"as-schedule", 0, POPT_ARG_NONE, &as_schedule, 0,
     "what was applied, as text commands for a run that is to do the same", NULL},
    {"follow", 'f', POPT_ARG_NONE, &follow_run, 0, "wait for more until the run ends", NULL},
    POPT_TABLEEND,
};

static int64_t last_line; /* number of the newest line printed */

/* Prints a line unless it was printed before. */
static void print_line(struct json_object *line)
{
    int64_t n = json_object_get_int64(json_object_object_get(line, "n"));
    if (n <= last_line)
        return;
    last_line = n;
    if (cli.format == CLI_TABLE)
        cli_print_journal_line(line);
    else
        cli_print_json(line);
}

static int on_line(void *userdata, const char *text)
{
    uint64_t *n_damaged = userdata;
    struct json_object *line = json_tokener_parse(text);
    if (json_object_is_type(line, json_type_object))
        print_line(line);
    else
        ++*n_damaged;
    json_object_put(line);
    return ferror(stdout);
}

static int read_file(const char *run, char **ret_id)
{
    kj_error err = KJ_ERROR_INIT;
    uint64_t n_damaged = 0;
    if (kj_journal_read(cli.state_dir, run, on_line, &n_damaged, ret_id, &err) < 0)
        return cli_fail(&err);
    if (n_damaged > 0)
        cli_note("%llu damaged lines were left out", (unsigned long long)n_damaged);
    fflush(stdout);
    return CLI_DONE;
}

/* Prints what the run has beyond last_line: how many lines it sent, or an error. */
static int print_news(kj_client *client, kj_error *err)
{
    char params[80], *json;
    snprintf(params, sizeof params, "{\"after\":%lld,\"limit\":%d}", (long long)last_line,
             LINES_AT_ONCE);
    int r = kj_client_call(client, "journal", params, CLI_ANSWER_MS, &json, err);
    if (r < 0)
        return r;
    struct json_object *answer = json_tokener_parse(json), *lines = NULL;
    int n = 0;
    if (json_object_is_type(answer, json_type_object) &&
        json_object_object_get_ex(answer, "lines", &lines) &&
        json_object_is_type(lines, json_type_array))
        for (; n < (int)json_object_array_length(lines); n++)
            print_line(json_object_array_get_idx(lines, (size_t)n));
    json_object_put(answer);
    kj_free(json);
    fflush(stdout);
    return n;
}

/* Waits for an event, and takes those that came with it. */
static int wait_for_news(kj_client *client, kj_error *err)
{
    int timeout_ms = ASK_AGAIN_MS, r;
    char *json;
    while ((r = kj_client_next_event(client, timeout_ms, &json, err)) > 0) {
        kj_free(json);
        timeout_ms = 0;
    }
    return r;
}

static int follow(kj_client *client)
{
    kj_error err = KJ_ERROR_INIT;
    char *json;
    int r = kj_client_call(client, "subscribe", "{\"events\":[\"command\",\"state\"]}",
                           CLI_ANSWER_MS, &json, &err);
    if (r >= 0)
        kj_free(json);
    while (r >= 0 && !ferror(stdout)) {
        r = print_news(client, &err);
        if (r == 0)
            r = wait_for_news(client, &err);
    }
    return r == KJ_EENDED ? CLI_DONE : r < 0 ? cli_fail(&err) : CLI_FAILED;
}

/* Follows the run if it lives: one that does not has no more lines. */
static int follow_if_live(const char *id)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    kj_client *client = NULL;
    if (kj_run_list_load(cli.runtime_dir, &list, &err) < 0)
        return cli_fail(&err);
    int r = 0;
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        if (strcmp(kj_run_list_get(list, k)->id, id) == 0)
            r = kj_client_open(kj_run_list_get(list, k)->dir, &client, &err);
    kj_run_list_free(list);
    if (r < 0 && r != KJ_ENORUN)
        return cli_fail(&err);
    if (!client)
        return CLI_DONE;
    int status = follow(client);
    kj_client_close(client);
    return status;
}

static int on_schedule_line(void *userdata, const char *text)
{
    struct json_object *line = json_tokener_parse(text);
    cli_schedule_add(userdata, line);
    json_object_put(line);
    return 0;
}

static int print_as_schedule(const char *run)
{
    kj_error err = KJ_ERROR_INIT;
    cli_schedule *schedule = cli_schedule_new();
    char *id;
    int status = CLI_DONE;
    if (kj_journal_read(cli.state_dir, run, on_schedule_line, schedule, &id, &err) < 0) {
        status = cli_fail(&err);
    } else {
        cli_schedule_print(schedule, id);
        kj_free(id);
    }
    cli_schedule_free(schedule);
    return status;
}

static int run_log(int n_words, const char *const *words)
{
    const char *run = cli_take_run(&n_words, &words);
    char *id;
    if (n_words > 0)
        return cli_too_many(words[0]);
    if (as_schedule && follow_run)
        return cli_usage("--as-schedule is for what has happened: not with --follow");
    if (as_schedule)
        return print_as_schedule(run ? run : cli.run);
    int status = read_file(run ? run : cli.run, &id);
    if (status != CLI_DONE)
        return status;
    if (follow_run) {
        char *again;
        status = follow_if_live(id);
        if (status == CLI_DONE && (status = read_file(id, &again)) == CLI_DONE)
            kj_free(again);
    }
    kj_free(id);
    return status;
}

static const cli_example examples[] = {
    {"kajitori log", "who changed what, and when it took effect, in the newest run"},
    {"kajitori log digits --follow", "the same while it goes on"},
    {"kajitori log digits --format json", "the lines of the journal as they are"},
    {"kajitori log digits --as-schedule > steered.txt",
     "then KAJITORI_SCHEDULE=steered.txt digits does the same again"},
    {NULL, NULL},
};

const cli_command cli_log = {
    .name = "log",
    .usage = "[RUN] [OPTIONS]",
    .summary = "show the journal of a run, also of one that has ended",
    .description =
        "One line for each stage of each command: time, step, stage, what, old and new value, and "
        "in brackets who sent it and through which door. Without RUN, the journal of the run that "
        "started last.\n\nWith --as-schedule, the commands that were applied, each at the place "
        "where "
        "it was: a run that gets them with $KAJITORI_SCHEDULE, or by kajitori send --schedule, and "
        "else the same, trains the same. What cannot be replayed is a comment that says why.",
    .options = options,
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_STATE,
    .examples = examples,
    .see_also = "watch status ps",
    .run = run_log,
};
