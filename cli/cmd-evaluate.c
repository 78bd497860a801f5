/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_evaluate(int n_words, const char *const *words)
{
    return cli_send_declared_verb("evaluate", n_words, words);
}

static const cli_example examples[] = {
    {"kajitori evaluate digits --timeout 600", "the metrics of the model as it is now"},
    {NULL, NULL},
};

const cli_command cli_evaluate = {
    .name = "evaluate",
    .usage = "[RUN] [KEY=VALUE...] [OPTIONS]",
    .summary = "have a run evaluate its model now",
    .description =
        "The program evaluates the model as it is, and the training goes on. The reply comes when "
        "that is done, with the metrics. Which KEYs there are, the program says: kajitori send "
        "help. A program that cannot do so refuses it.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "checkpoint status send",
    .run = run_evaluate,
};
