/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"
#include "questions.h"

#include <stdlib.h>
#include <string.h>

enum { RUN, NAME, VALUE, STEP, UNIT };
static const char *const columns[] = {"run", "name", "value", "step", "unit", NULL};

/* `first`: column RUN is left out for a single run. */
static void add_param(cli_table *table, int first, struct json_object *param)
{
    struct json_object *step = json_object_object_get(param, "step");
    struct json_object *unit = json_object_object_get(param, "unit");
    cli_table_set(table, NAME - first, json_object_get(json_object_object_get(param, "name")));
    cli_table_set(table, VALUE - first, json_object_get(json_object_object_get(param, "value")));
    if (step && json_object_get_int64(step) >= 0)
        cli_table_set(table, STEP - first, json_object_get(step));
    if (unit && *json_object_get_string(unit))
        cli_table_set(table, UNIT - first, json_object_get(unit));
}

/* The parameters in an answer, NULL when it is none; a member of the answer. */
static struct json_object *params_of(const cli_answer *answer)
{
    struct json_object *result = json_object_is_type(answer->result, json_type_object)
                                     ? json_object_object_get(answer->result, "result")
                                     : NULL;
    struct json_object *params = json_object_is_type(result, json_type_object)
                                     ? json_object_object_get(result, "params")
                                     : NULL;
    return json_object_is_type(params, json_type_array) ? params : NULL;
}

static void print_values(const cli_answers *answers)
{
    for (size_t a = 0; a < answers->n; a++) {
        struct json_object *params = params_of(&answers->item[a]);
        for (size_t k = 0; params && k < json_object_array_length(params); k++) {
            struct json_object *param = json_object_array_get_idx(params, k);
            char *text = cli_cell_text(json_object_object_get(param, "value"));
            printf("%s%s%s\n", answers->is_group ? answers->item[a].id : "",
                   answers->is_group ? "\t" : "", text);
            free(text);
        }
    }
}

static void add_params(cli_table *table, int first, const cli_answer *answer)
{
    struct json_object *params = params_of(answer);
    for (size_t k = 0; params && k < json_object_array_length(params); k++) {
        cli_table_add_row(table);
        if (first == 0)
            cli_table_set_text(table, RUN, answer->id);
        add_param(table, first, json_object_array_get_idx(params, k));
    }
}

static int print_answers(const cli_answers *answers)
{
    int first = answers->is_group ? 0 : 1;
    cli_table *table = cli_table_new(columns + first);
    int status = answers->worst;
    for (size_t k = 0; k < answers->n; k++) {
        if (answers->item[k].result && !params_of(&answers->item[k])) {
            cli_error("the run's answer has no parameters");
            status = CLI_FAILED;
        }
        add_params(table, first, &answers->item[k]);
    }
    if (status == CLI_DONE && cli_table_is_empty(table))
        cli_note("the run has no parameters");
    if (cli.format == CLI_VALUE)
        print_values(answers);
    else if (status == CLI_DONE || !cli_table_is_empty(table))
        cli_table_print(table);
    cli_table_free(table);
    return status;
}

static char *question(int n_names, const char *const *names)
{
    struct json_object *params = json_object_new_object(), *list = json_object_new_array();
    for (int k = 0; k < n_names; k++)
        json_object_array_add(list, json_object_new_string(names[k]));
    json_object_object_add(params, "verb", json_object_new_string("get"));
    json_object_object_add(params, "words", list);
    char *text = strdup(json_object_to_json_string_ext(params, JSON_C_TO_STRING_PLAIN));
    json_object_put(params);
    return text;
}

static int run_get(int n_words, const char *const *words)
{
    cli_answers answers;
    const char *run = NULL;
    if (n_words > 0 && cli_names_run(words[0]))
        run = cli_take_run(&n_words, &words);
    char *params = question(n_words, words);
    int status = cli_ask(run, "command", params, &answers);
    free(params);
    if (status != CLI_DONE)
        return status;
    status = print_answers(&answers);
    cli_answers_done(&answers);
    return status;
}

static const cli_example examples[] = {
    {"kajitori get", "all parameters of the only live run"},
    {"kajitori get lr --format value", "one value and nothing else"},
    {"kajitori get digits lr momentum", "two parameters of the run whose id begins with digits"},
    {"kajitori get lr --all", "of every live run"},
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
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_GROUP,
    .examples = examples,
    .see_also = "params set status",
    .run = run_get,
};
