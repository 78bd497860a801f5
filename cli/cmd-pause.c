/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_pause(int n_words, const char *const *words)
{
    int status = cli_take_sending_words(&n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "verb", json_object_new_string("pause"));
    return cli_send_command(run, params);
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
