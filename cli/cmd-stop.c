/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_stop(int n_words, const char *const *words)
{
    return cli_send_verb("stop", n_words, words);
}

static const cli_example examples[] = {
    {"kajitori stop", "stop the only live run at its next safe point"},
    {"kajitori stop digits --at epoch --reason \"good enough\"",
     "stop it at the end of the epoch that runs"},
    {"kajitori stop at=step:5000", "options may be given as in a text line, too"},
    {NULL, NULL},
};

const cli_command cli_stop = {
    .name = "stop",
    .usage = "[RUN] [OPTIONS]",
    .summary = "ask a run to leave its training loop",
    .description =
        "The training is asked to leave its loop at the next safe point, or at the moment that "
        "--at names; the code behind the loop still runs. A second stop is answered as already "
        "stopping.\n\nThe reply says at which step the stop was applied.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "pause set status log",
    .run = run_stop,
};
