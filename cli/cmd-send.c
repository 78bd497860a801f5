/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_send(int n_words, const char *const *words)
{
    const char *run = NULL;
    if (n_words > 1)
        run = cli_take_run(&n_words, &words);
    if (n_words == 0)
        return cli_usage("say what to send: one text line");
    if (n_words > 1)
        return cli_usage("the line is one word for the shell; quote it: 'verb key=value'");
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "line", json_object_new_string(words[0]));
    int status = cli_send_command(run, params, KJ_WAIT_DONE);
    if (status == CLI_NO_RUN && run && !cli_names_run(run))
        cli_note("a line of several words is one word for the shell: kajitori send '%s %s'", run,
                 words[0]);
    return status;
}

static const cli_example examples[] = {
    {"kajitori send help", "what the only live run understands"},
    {"kajitori send digits 'checkpoint name=before-change'", "a verb of the program's own"},
    {NULL, NULL},
};

const cli_command cli_send = {
    .name = "send",
    .usage = "[RUN] LINE [OPTIONS]",
    .summary = "send a text line, for example a verb of the program's own",
    .description =
        "The line is what could also be written into the run's FIFO: a verb, words, key=value "
        "pairs. Unlike there, the reply says what became of it: with an own verb it comes when the "
        "verb "
        "has ended, with --wait applied when it begins. 'help' lists what the run "
        "understands.",
    .options = cli_sending_line_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "set stop log",
    .run = run_send,
};
