/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_resume(int n_words, const char *const *words)
{
    return cli_send_verb("resume", NULL, n_words, words);
}

static const cli_example examples[] = {
    {"kajitori resume", "let the only live run go on"},
    {NULL, NULL},
};

const cli_command cli_resume = {
    .name = "resume",
    .usage = "[RUN] [OPTIONS]",
    .summary = "let a paused run go on",
    .description = "Ends a pause. A run that is not paused answers that this is done already.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "pause status",
    .run = run_resume,
};
