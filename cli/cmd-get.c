/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { NAME, VALUE, STEP, UNIT };
static const char *const columns[] = {"name", "value", "step", "unit", NULL};

static void add_param(cli_table *table, struct json_object *param)
{
    struct json_object *step = json_object_object_get(param, "step");
    struct json_object *unit = json_object_object_get(param, "unit");
    cli_table_add_row(table);
    cli_table_set(table, NAME, json_object_get(json_object_object_get(param, "name")));
    cli_table_set(table, VALUE, json_object_get(json_object_object_get(param, "value")));
    if (step && json_object_get_int64(step) >= 0)
        cli_table_set(table, STEP, json_object_get(step));
    if (unit && *json_object_get_string(unit))
        cli_table_set(table, UNIT, json_object_get(unit));
}

static void print_values(struct json_object *params)
{
    for (size_t k = 0; k < json_object_array_length(params); k++) {
        struct json_object *param = json_object_array_get_idx(params, k);
        char *text = cli_cell_text(json_object_object_get(param, "value"));
        puts(text);
        free(text);
    }
}

static int print_params(const char *json)
{
    struct json_object *record = json_tokener_parse(json);
    struct json_object *result = json_object_object_get(record, "result");
    struct json_object *params = json_object_object_get(result, "params");
    if (!json_object_is_type(params, json_type_array)) {
        cli_error("the run's answer has no parameters");
        json_object_put(record);
        return CLI_FAILED;
    }
    if (json_object_array_length(params) == 0)
        cli_note("the run has no parameters");
    if (cli.format == CLI_VALUE) {
        print_values(params);
    } else {
        cli_table *table = cli_table_new(columns);
        for (size_t k = 0; k < json_object_array_length(params); k++)
            add_param(table, json_object_array_get_idx(params, k));
        cli_table_print(table);
        cli_table_free(table);
    }
    json_object_put(record);
    return CLI_DONE;
}

static int ask(kj_client *client, int n_names, const char *const *names)
{
    kj_error err = KJ_ERROR_INIT;
    char *json;
    struct json_object *params = json_object_new_object(), *list = json_object_new_array();
    for (int k = 0; k < n_names; k++)
        json_object_array_add(list, json_object_new_string(names[k]));
    json_object_object_add(params, "verb", json_object_new_string("get"));
    json_object_object_add(params, "words", list);
    int r =
        kj_client_command(client, json_object_to_json_string_ext(params, JSON_C_TO_STRING_PLAIN),
                          KJ_WAIT_ACCEPTED, CLI_ANSWER_MS, &json, &err);
    json_object_put(params);
    if (r < 0)
        return cli_fail(&err);
    int status = print_params(json);
    kj_free(json);
    return status;
}

static int run_get(int n_words, const char *const *words)
{
    kj_client *client;
    char *id;
    const char *run = NULL;
    if (n_words > 0 && cli_names_run(words[0]))
        run = cli_take_run(&n_words, &words);
    int status = cli_open_run(run, CLI_ANSWER_MS, &client, &id);
    if (status != CLI_DONE)
        return status;
    status = ask(client, n_words, words);
    kj_client_close(client);
    free(id);
    return status;
}

static const cli_example examples[] = {
    {"kajitori get", "all parameters of the only live run"},
    {"kajitori get lr --format value", "one value and nothing else"},
    {"kajitori get digits lr momentum", "two parameters of the run whose id begins with digits"},
    {NULL, NULL},
};

const cli_command cli_get = {
    .name = "get",
    .usage = "[RUN] [NAME...] [OPTIONS]",
    .summary = "show parameters of a run",
    .description =
        "Prints the last known values with the steps at which they were read, and has them read "
        "anew at the next safe point.\n\nThe first word names the run when it begins the id of a "
        "live one; else it is a parameter. With --run all words are parameters.",
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "set status",
    .run = run_get,
};
