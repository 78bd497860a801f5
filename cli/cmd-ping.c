/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"
#include "questions.h"

static const char *const columns[] = {"run", "round_trip_us", NULL};

static void print_lines(const cli_answers *answers)
{
    for (size_t k = 0; k < answers->n; k++)
        if (answers->item[k].result)
            printf("%s: %.0f us\n", answers->item[k].id, answers->item[k].micros);
}

static void print_table(const cli_answers *answers)
{
    cli_table *table = cli_table_new(columns);
    for (size_t k = 0; k < answers->n; k++) {
        if (!answers->item[k].result)
            continue;
        cli_table_add_row(table);
        cli_table_set_text(table, 0, answers->item[k].id);
        cli_table_set_double(table, 1, answers->item[k].micros);
    }
    cli_table_print(table);
    cli_table_free(table);
}

static int run_ping(int n_words, const char *const *words)
{
    cli_answers answers;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_ask(run, "ping", NULL, &answers);
    if (status != CLI_DONE)
        return status;
    if (cli.format == CLI_TABLE)
        print_lines(&answers);
    else
        print_table(&answers);
    status = answers.worst;
    cli_answers_done(&answers);
    return status;
}

static const cli_example examples[] = {
    {"kajitori ping digits && echo alive", "the exit status says whether it answers"},
    {"kajitori ping --all", "each live run"},
    {NULL, NULL},
};

const cli_command cli_ping = {
    .name = "ping",
    .usage = "[RUN] [OPTIONS]",
    .summary = "ask whether a run answers, and how fast",
    .description = "Prints the time of one round trip to the run's helper thread, which answers "
                   "also while the training is inside a long call.",
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML | CLI_VALUE,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_GROUP,
    .examples = examples,
    .see_also = "ps status",
    .run = run_ping,
};
