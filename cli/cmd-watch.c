/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that breaks while the run lives is made anew, and the run asked to go on behind the
 * last event that came: its cursor.
 */
#include "output.h"
#include "records.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRY_AGAIN_MS = 200 };

static const char *after;
static const struct poptOption options[] = {
    {"after", 0, POPT_ARG_STRING, &after, 0,
     "begin behind the event that had this cursor (its member in --format json) instead of now",
     "CURSOR"},
    POPT_TABLEEND,
};

static char *cursor;   /* of the newest event, for free; NULL before the first */
static bool has_ended; /* the run said so */

static void remember_cursor(struct json_object *from)
{
    struct json_object *member;
    if (!json_object_object_get_ex(from, "cursor", &member))
        return;
    free(cursor);
    cursor = strdup(json_object_get_string(member));
}

static void remember_end(struct json_object *event)
{
    struct json_object *state;
    if (json_object_object_get_ex(event, "state", &state) &&
        json_object_is_type(state, json_type_string) &&
        !json_object_object_get_ex(event, "seq", NULL))
        has_ended = strcmp(json_object_get_string(state), "ended") == 0;
}

static void print_event(const char *json)
{
    struct json_object *event = json_tokener_parse(json);
    bool is_object = json_object_is_type(event, json_type_object);
    if (cli.format == CLI_TABLE && is_object)
        cli_print_event(event);
    else if (event)
        cli_print_json(event);
    fflush(stdout);
    if (is_object) {
        remember_cursor(event);
        remember_end(event);
    }
    json_object_put(event);
}

/* Until the connection ends; then every event that was sent has been printed. */
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

static int subscribe(kj_client *client, kj_error *err)
{
    struct json_object *params = json_object_new_object();
    const char *from = cursor ? cursor : after;
    char *json;
    if (from)
        json_object_object_add(params, "after", json_object_new_string(from));
    int r = kj_client_call(client, "subscribe", json_object_to_json_string(params), CLI_ANSWER_MS,
                           &json, err);
    json_object_put(params);
    if (r < 0)
        return r;
    struct json_object *answer = json_tokener_parse(json);
    if (!cursor && json_object_is_type(answer, json_type_object))
        remember_cursor(answer);
    json_object_put(answer);
    kj_free(json);
    return 0;
}

/* A new connection to the run: 0, or KJ_ENORUN when it lives no more. */
static int connect_again(const char *id, kj_client **ret_client)
{
    kj_run_list *list;
    int r = KJ_ENORUN;
    if (kj_run_list_load(cli.runtime_dir, &list, NULL) < 0)
        return KJ_ENORUN;
    for (uint64_t k = 0; k < kj_run_list_size(list); k++) {
        const kj_run_info *info = kj_run_list_get(list, k);
        if (strcmp(info->id, id) == 0 && (r = kj_client_open(info->dir, ret_client, NULL)) < 0)
            r = KJ_ETIMEOUT; /* it lives, and takes no connection now */
    }
    kj_run_list_free(list);
    return r;
}

/* The same until it answers or is gone. Never at once: it may take connections only to end them. */
static int reconnect(const char *id, kj_client **ret_client)
{
    const struct timespec pause = {0, TRY_AGAIN_MS * 1000000};
    bool said = false;
    for (;;) {
        nanosleep(&pause, NULL);
        int r = connect_again(id, ret_client);
        if (r == 0 && (r = subscribe(*ret_client, NULL)) < 0)
            kj_client_close(*ret_client);
        if (r == 0 || r == KJ_ENORUN)
            return r;
        if (!said)
            cli_note("the connection to %s is lost; trying again", id);
        said = true;
    }
}

static int watch(kj_client *client, const char *id)
{
    kj_error err = KJ_ERROR_INIT;
    if (subscribe(client, &err) < 0) {
        kj_client_close(client);
        return cli_fail(&err);
    }
    cli_note("watching %s; Ctrl-C ends watching, not the run", id);
    int status;
    do {
        status = follow(client);
        kj_client_close(client);
    } while (status == CLI_DONE && !has_ended && reconnect(id, &client) == 0);
    if (status == CLI_DONE)
        cli_note("%s has ended", id);
    return status;
}

static int run_watch(int n_words, const char *const *words)
{
    kj_client *client;
    char *id;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_open_run(run, CLI_ANSWER_MS, &client, &id);
    if (status != CLI_DONE)
        return status;
    status = watch(client, id);
    free(id);
    free(cursor);
    return status;
}

static const cli_example examples[] = {
    {"kajitori watch", "what the only live run reports and is told, line by line"},
    {"kajitori watch digits --format json | jq .value", "the same as one JSON object per line"},
    {"kajitori watch digits --after \"$CURSOR\"", "go on behind an event that was seen before"},
    {NULL, NULL},
};

const cli_command cli_watch = {
    .name = "watch",
    .usage = "[RUN] [OPTIONS]",
    .summary = "follow the metrics and commands of a run",
    .description =
        "One line for each metric that the run reports, each command that somebody sends to it, "
        "and each change of its state, until the run ends (exit status 0) or Ctrl-C. With --format "
        "json or jsonl each line is the protocol's event.\n\nWhen the connection breaks and the "
        "run "
        "lives, it is made anew, and what happened meanwhile is shown; what the run no longer has "
        "is a line that says how many events are missing.",
    .options = options,
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "status log events",
    .run = run_watch,
};
