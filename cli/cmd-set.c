/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include <string.h>

static int run_set(int n_words, const char *const *words)
{
    const char *run = NULL;
    int status = cli_take_sending_words(NULL, &n_words, &words);
    if (status != CLI_DONE)
        return status;
    if (n_words > 0 && !strchr(words[0], '='))
        run = cli_take_run(&n_words, &words);
    if (n_words == 0)
        return cli_usage("say what to set: NAME=VALUE%s%s%s", run ? " (" : "", run ? run : "",
                         run ? " would be the run)" : "");
    struct json_object *args = json_object_new_object();
    for (int k = 0; k < n_words; k++) {
        status = cli_add_assignment(args, words[k]);
        if (status != CLI_DONE) {
            json_object_put(args);
            return status;
        }
    }
    struct json_object *params = cli_new_command("set", NULL);
    json_object_object_add(params, "args", args);
    return cli_send_command(run, params, KJ_WAIT_APPLIED);
}

static const cli_example examples[] = {
    {"kajitori set lr=1e-4", "set one parameter of the only live run"},
    {"kajitori set digits lr=1e-4 momentum=0.8 --at epoch", "set two, at the end of the epoch"},
    {"kajitori set lr=1e9 --dry-run", "only have it checked"},
    {"kajitori set lr=1e-4 --match 'lr>0.1'", "in all runs that have a greater one"},
    {NULL, NULL},
};

const cli_command cli_set = {
    .name = "set",
    .usage = "[RUN] NAME=VALUE... [OPTIONS]",
    .summary = "change parameters of a run",
    .description =
        "All values are checked first: an unknown name, a wrong type, a value out of range or NaN "
        "is rejected and nothing is changed. Then they are set in order at a safe point and read "
        "back. The reply shows the old and the new value and the step.\n\nThe first word without "
        "an equals sign names the run.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "get status log",
    .run = run_set,
};
