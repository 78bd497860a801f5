/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"
#include "questions.h"
#include "replies.h"

#include <stdlib.h>

enum { RUN, NAME, VALUE, TYPE, RANGE, UNIT, EFFECT, STEP, HELP };
static const char *const columns[] = {"run",  "name",   "value", "type", "range",
                                      "unit", "effect", "step",  "help", NULL};

static void set_member(cli_table *table, int column, struct json_object *param, const char *key)
{
    struct json_object *member = json_object_object_get(param, key);
    if (member && *json_object_get_string(member))
        cli_table_set(table, column, json_object_get(member));
}

/* `first`: column RUN is left out for a single run. */
static void add_param(cli_table *table, int first, struct json_object *param)
{
    char *range = cli_range_text(param);
    struct json_object *step = json_object_object_get(param, "step");
    set_member(table, NAME - first, param, "name");
    set_member(table, VALUE - first, param, "value");
    set_member(table, TYPE - first, param, "type");
    if (range && *range)
        cli_table_set_text(table, RANGE - first, range);
    set_member(table, UNIT - first, param, "unit");
    if (json_object_get_boolean(json_object_object_get(param, "read_only")))
        cli_table_set_text(table, EFFECT - first, "read only");
    else
        set_member(table, EFFECT - first, param, "effect");
    if (step && json_object_get_int64(step) >= 0)
        cli_table_set(table, STEP - first, json_object_get(step));
    set_member(table, HELP - first, param, "help");
    free(range);
}

static void add_params(cli_table *table, int first, const cli_answer *answer)
{
    struct json_object *params = json_object_is_type(answer->result, json_type_object)
                                     ? json_object_object_get(answer->result, "params")
                                     : NULL;
    size_t n = json_object_is_type(params, json_type_array) ? json_object_array_length(params) : 0;
    for (size_t k = 0; k < n; k++) {
        cli_table_add_row(table);
        if (first == 0)
            cli_table_set_text(table, RUN, answer->id);
        add_param(table, first, json_object_array_get_idx(params, k));
    }
}

static int run_params(int n_words, const char *const *words)
{
    cli_answers answers;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_ask(run, "params", NULL, &answers);
    if (status != CLI_DONE)
        return status;
    int first = answers.is_group ? 0 : 1;
    cli_table *table = cli_table_new(columns + first);
    for (size_t k = 0; k < answers.n; k++)
        add_params(table, first, &answers.item[k]);
    if (cli_table_is_empty(table) && answers.worst == CLI_DONE)
        cli_note("the run has no parameters");
    cli_table_print(table);
    cli_table_free(table);
    status = answers.worst;
    cli_answers_done(&answers);
    return status;
}

static const cli_example examples[] = {
    {"kajitori params", "what can be set in the only live run, and in which range"},
    {NULL, NULL},
};

const cli_command cli_params = {
    .name = "params",
    .usage = "[RUN] [OPTIONS]",
    .summary = "list the parameters of a run with their types and ranges",
    .description =
        "'effect' says when a new value is felt: at the next step, with the next epoch, or only "
        "after a restart; 'step' is where the value was read last.",
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_GROUP,
    .examples = examples,
    .see_also = "set get",
    .run = run_params,
};
