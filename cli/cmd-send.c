/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"
#include "sending.h"

static const char *schedule;
static const struct poptOption options[] = {
    {"schedule", 0, POPT_ARG_STRING, &schedule, 0,
     "send each line of this file (-: standard input) instead; nothing is sent when one of them is "
     "rejected",
     "FILE"},
    CLI_INCLUDE(cli_sending_line_options),
    POPT_TABLEEND,
};

static int send_schedule(int n_words, const char *const *words)
{
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    if (cli_group_given())
        return cli_usage("a schedule is sent to one run");
    return cli_send_schedule(run, schedule);
}

static int run_send(int n_words, const char *const *words)
{
    const char *run = NULL;
    if (schedule)
        return send_schedule(n_words, words);
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
    {"kajitori send digits 'shake scale=0.1'", "a verb of the program's own"},
    {"kajitori log old --as-schedule | kajitori send new --schedule -",
     "what was done in one run, for another one"},
    {NULL, NULL},
};

const cli_command cli_send = {
    .name = "send",
    .usage = "[RUN] LINE | --schedule FILE [OPTIONS]",
    .summary = "send a text line, for example a verb of the program's own",
    .description =
        "The line is what could also be written into the run's FIFO: a verb, words, key=value "
        "pairs. Unlike there, the reply says what became of it: with an own verb it comes when the "
        "verb has ended, with --wait applied when it begins. 'help' lists what the run "
        "understands.\n\nWith --schedule all lines of a file are checked, and then sent; the "
        "replies come when they are accepted.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "set stop log",
    .run = run_send,
};
