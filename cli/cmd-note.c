/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_note(int n_words, const char *const *words)
{
    int status = cli_take_sending_words(NULL, &n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_live_run(&n_words, &words);
    if (n_words == 0)
        return cli_usage("say what to note");
    struct json_object *params = cli_new_command("note", NULL), *text = json_object_new_array();
    for (int k = 0; k < n_words; k++)
        json_object_array_add(text, json_object_new_string(words[k]));
    json_object_object_add(params, "words", text);
    return cli_send_command(run, params, KJ_WAIT_ACCEPTED);
}

static const cli_example examples[] = {
    {"kajitori note 'new data from here on'", "a remark for the only live run"},
    {"kajitori note digits 'loss looks odd'", "for the run whose id begins with digits"},
    {NULL, NULL},
};

const cli_command cli_note_verb = {
    .name = "note",
    .usage = "[RUN] TEXT... [OPTIONS]",
    .summary = "write a remark into the journal of a run",
    .description =
        "Those who watch the run see it too.\n\nThe first of several words names the run "
        "when it begins the id of a live one. With --run all words are the text.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "log watch",
    .run = run_note,
};
