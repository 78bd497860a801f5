/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static const char *validate;
static const cli_key keys[] = {{"validate", &validate}, {NULL, NULL}};
static const struct poptOption options[] = {
    {"validate", 0, POPT_ARG_STRING, &validate, 0,
     "whether the validation that the loop would still make is wanted; refused by a program that "
     "cannot choose",
     "yes|no"},
    CLI_INCLUDE(cli_saving_options),
    CLI_INCLUDE(cli_sending_options),
    POPT_TABLEEND,
};

static int run_stop(int n_words, const char *const *words)
{
    return cli_send_verb("stop", keys, n_words, words);
}

static const cli_example examples[] = {
    {"kajitori stop", "stop the only live run at its next safe point"},
    {"kajitori stop digits --at epoch --reason \"good enough\"",
     "stop it at the end of the epoch that runs"},
    {"kajitori stop at=step:5000", "options may be given as in a text line, too"},
    {"kajitori stop digits --save", "save a checkpoint, then stop"},
    {"kajitori stop --study s1 --match 'val_loss>2'", "several runs at once"},
    {NULL, NULL},
};

const cli_command cli_stop = {
    .name = "stop",
    .usage = "[RUN] [OPTIONS]",
    .summary = "ask a run to leave its training loop",
    .description =
        "The training is asked to leave its loop at the next safe point, or at the moment that "
        "--at names; the code behind the loop still runs. A second stop is answered as already "
        "stopping.\n\nThe reply says at which step the stop was applied. With --save the training "
        "saves a checkpoint first; when that fails, the stop fails too, and the training goes on.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "abort pause set status log",
    .run = run_stop,
};
