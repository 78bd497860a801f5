/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include <string.h>

static bool is_number(const char *word)
{
    return *word && !word[strspn(word, "0123456789")];
}

static int run_recover(int n_words, const char *const *words)
{
    const char *run = NULL;
    int status = cli_take_sending_words(NULL, &n_words, &words);
    if (status != CLI_DONE)
        return status;
    if (n_words > 0 && !is_number(words[0]))
        run = cli_take_run(&n_words, &words);
    struct json_object *params = cli_new_command("recover", NULL), *list = json_object_new_array();
    json_object_object_add(params, "words", list);
    for (int k = 0; k < n_words; k++) {
        if (!is_number(words[k])) {
            json_object_put(params);
            return cli_usage("'%s' is no number of a command", words[k]);
        }
        json_object_array_add(list, json_object_new_string(words[k]));
    }
    return cli_send_command(run, params, KJ_WAIT_ACCEPTED);
}

static const cli_example examples[] = {
    {"kajitori recover digits --dry-run", "what the run before left undone"},
    {"kajitori recover digits 7 9", "send commands 7 and 9 anew"},
    {NULL, NULL},
};

const cli_command cli_recover = {
    .name = "recover",
    .usage = "[RUN] [SEQ...] [OPTIONS]",
    .summary = "send anew what a run left undone when it died",
    .description =
        "A run that goes on under the id of one that died knows which commands the dead one had "
        "accepted and not carried out; kajitori status and --dry-run list them. Without SEQ, all "
        "of them "
        "are sent anew, with their time, sender and reason; one that is rejected stays.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "status log resume",
    .run = run_recover,
};
