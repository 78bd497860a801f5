/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_pause(int n_words, const char *const *words)
{
    return cli_send_verb("pause", n_words, words);
}

static const cli_example examples[] = {
    {"kajitori pause", "hold the only live run at its next safe point"},
    {"kajitori pause digits --at step:5000", "hold it before the first step that is >= 5000"},
    {NULL, NULL},
};

const cli_command cli_pause = {
    .name = "pause",
    .usage = "[RUN] [OPTIONS]",
    .summary = "hold a run at a safe point",
    .description = "The training waits at its next safe point until it is resumed or stopped. It "
                   "keeps its memory, answers questions, and carries out commands while it waits.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "resume stop status",
    .run = run_pause,
};
