/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static const char *level, *length;
static const cli_key keys[] = {{"level", &level}, {"for", &length}, {NULL, NULL}};
static const struct poptOption options[] = {
    {"level", 0, POPT_ARG_STRING, &level, 0,
     "hold (the default): wait at the safe point; leave: save a checkpoint and end the process, so "
     "that its memory is free",
     "hold|leave"},
    {"for", 0, POPT_ARG_STRING, &length, 0,
     "go on by itself after that time: 90, 90s, 15m, 2h or 1d; not with --level leave", "DURATION"},
    CLI_INCLUDE(cli_saving_options),
    CLI_INCLUDE(cli_sending_options),
    POPT_TABLEEND,
};

static int run_pause(int n_words, const char *const *words)
{
    return cli_send_verb("pause", keys, n_words, words);
}

static const cli_example examples[] = {
    {"kajitori pause", "hold the only live run at its next safe point"},
    {"kajitori pause digits --at step:5000", "hold it before the first step that is >= 5000"},
    {"kajitori pause digits --for 15m", "it goes on by itself after that"},
    {"kajitori pause digits --level leave",
     "free its memory; kajitori resume digits starts it again"},
    {NULL, NULL},
};

const cli_command cli_pause = {
    .name = "pause",
    .usage = "[RUN] [OPTIONS]",
    .summary = "hold a run at a safe point, or have it leave",
    .description =
        "The training waits at its next safe point until it is resumed or stopped. It keeps its "
        "memory, answers questions, and carries out commands while it waits.\n\nWith --level leave "
        "it saves a checkpoint and its process ends with exit status 75; kajitori resume starts "
        "the recorded command line again. A program that cannot do so refuses it.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "resume stop status",
    .run = run_pause,
};
