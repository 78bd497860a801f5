/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_abort(int n_words, const char *const *words)
{
    return cli_send_verb("abort", NULL, n_words, words);
}

static const cli_example examples[] = {
    {"kajitori abort digits --reason \"wrong data\"", "leave at once"},
    {NULL, NULL},
};

const cli_command cli_abort = {
    .name = "abort",
    .usage = "[RUN] [OPTIONS]",
    .summary = "have a run leave at once, without validation or checkpoint",
    .description =
        "Unlike after a stop, the training makes no validation, saves no checkpoint, and does not "
        "end the epoch. It sharpens a stop that was applied. A program that only knows how to stop "
        "refuses it.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "stop prune",
    .run = run_abort,
};
