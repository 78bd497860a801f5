/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <stdlib.h>

static void put_line(const char *name, const char *text)
{
    printf("%-11s %s\n", name, text);
}

static void put_member(struct json_object *status, const char *key, const char *name)
{
    struct json_object *member = json_object_object_get(status, key);
    if (!member)
        return;
    char *text = cli_cell_text(member);
    if (*text)
        put_line(name, text);
    free(text);
}

/* "1201 of 5000"; nothing counted yet is "-". */
static void put_progress(struct json_object *status, const char *key, const char *total_key)
{
    char text[80] = "-";
    int64_t at = json_object_get_int64(json_object_object_get(status, key));
    int64_t total = json_object_get_int64(json_object_object_get(status, total_key));
    int n = at >= 0 ? snprintf(text, sizeof text, "%lld", (long long)at) : 1;
    if (total > 0)
        snprintf(text + n, sizeof text - (size_t)n, " of %lld", (long long)total);
    put_line(key, text);
}

static void put_started(struct json_object *status)
{
    char text[32];
    struct json_object *start = json_object_object_get(status, "start_time");
    if (start)
        put_line("started", cli_time_text(json_object_get_double(start), text));
}

static void put_metric(struct json_object *metric)
{
    char *tag = cli_cell_text(json_object_object_get(metric, "tag"));
    char *value = cli_cell_text(json_object_object_get(metric, "value"));
    char *step = cli_cell_text(json_object_object_get(metric, "step"));
    printf("  %s = %s (step %s)\n", tag, value, step);
    free(tag);
    free(value);
    free(step);
}

static void put_scheduled(struct json_object *command)
{
    char *seq = cli_cell_text(json_object_object_get(command, "seq"));
    char *verb = cli_cell_text(json_object_object_get(command, "verb"));
    char *at = cli_cell_text(json_object_object_get(command, "at"));
    struct json_object *args = json_object_object_get(command, "args");
    char *args_text = cli_cell_text(args);
    bool has_args =
        json_object_is_type(args, json_type_object) && json_object_object_length(args) > 0;
    printf("  command %s: %s%s%s at %s\n", seq, verb, has_args ? " " : "",
           has_args ? args_text : "", at);
    free(seq);
    free(verb);
    free(at);
    free(args_text);
}

static void put_list(struct json_object *status, const char *key,
                     void (*put_item)(struct json_object *item))
{
    struct json_object *list = json_object_object_get(status, key);
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return;
    printf("%s\n", key);
    for (size_t k = 0; k < json_object_array_length(list); k++)
        put_item(json_object_array_get_idx(list, k));
}

static void put_params(struct json_object *status)
{
    struct json_object *params = json_object_object_get(status, "params");
    if (!json_object_is_type(params, json_type_object) || json_object_object_length(params) == 0)
        return;
    puts("params");
    json_object_object_foreach(params, key, value)
    {
        struct json_object *name = json_object_new_string(key);
        char *name_text = cli_cell_text(name), *text = cli_cell_text(value);
        printf("  %s = %s\n", name_text, text);
        json_object_put(name);
        free(name_text);
        free(text);
    }
}

static void print_status_table(struct json_object *status)
{
    put_member(status, "id", "run");
    put_member(status, "name", "name");
    put_member(status, "pid", "pid");
    put_started(status);
    put_member(status, "state", "state");
    put_member(status, "phase", "phase");
    put_progress(status, "step", "total_steps");
    put_progress(status, "epoch", "total_epochs");
    put_member(status, "idle_s", "idle (s)");
    put_list(status, "metrics", put_metric);
    put_params(status);
    put_list(status, "scheduled", put_scheduled);
}

static int print_status(const char *json)
{
    int status = CLI_DONE;
    struct json_object *object = json_tokener_parse(json);
    if (!json_object_is_type(object, json_type_object)) {
        cli_error("the run's answer is not a status: %s", json);
        status = CLI_FAILED;
    } else if (cli.format == CLI_TABLE) {
        print_status_table(object);
    } else {
        cli_print_object(object);
    }
    json_object_put(object);
    return status;
}

static int run_status(int n_words, const char *const *words)
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
    if (kj_client_call(client, "status", NULL, CLI_ANSWER_MS, &json, &err) < 0) {
        status = cli_fail(&err);
    } else {
        status = print_status(json);
        kj_free(json);
    }
    kj_client_close(client);
    free(id);
    return status;
}

static const cli_example examples[] = {
    {"kajitori status", "of the only live run"},
    {"kajitori status digits --format json", "as the protocol's JSON object"},
    {NULL, NULL},
};

const cli_command cli_status = {
    .name = "status",
    .usage = "[RUN] [OPTIONS]",
    .summary = "show where a run is",
    .description =
        "State, step, epoch, phase, newest metrics, parameters, and what is scheduled. The run "
        "answers at once, also while a step or an evaluation takes long; 'idle' is the time since "
        "the training last passed a safe point.",
    .formats = CLI_TABLE | CLI_JSON | CLI_CSV | CLI_YAML,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "ps watch get",
    .run = run_status,
};
