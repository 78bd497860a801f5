/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_resume(int n_words, const char *const *words)
{
    int status = cli_take_sending_words(&n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "verb", json_object_new_string("resume"));
    return cli_send_command(run, params);
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
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "pause status",
    .run = run_resume,
};
