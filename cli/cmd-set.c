/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include <string.h>

/* Values go out as texts: the run knows the type that is expected. */
static int add_assignment(struct json_object *args, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals)
        return cli_usage("'%s' is no NAME=VALUE", word);
    if (equals == word)
        return cli_usage("'%s' has no name before the '='", word);
    char name[128];
    size_t size = (size_t)(equals - word);
    if (size >= sizeof name)
        return cli_usage("'%s': the name is too long", word);
    memcpy(name, word, size);
    name[size] = 0;
    if (json_object_object_get_ex(args, name, NULL))
        return cli_usage("'%s' is given twice", name);
    json_object_object_add(args, name, json_object_new_string(equals + 1));
    return CLI_DONE;
}

static int run_set(int n_words, const char *const *words)
{
    const char *run = NULL;
    int status = cli_take_sending_words(&n_words, &words);
    if (status != CLI_DONE)
        return status;
    if (n_words > 0 && !strchr(words[0], '='))
        run = cli_take_run(&n_words, &words);
    if (n_words == 0)
        return cli_usage("say what to set: NAME=VALUE%s%s%s", run ? " (" : "", run ? run : "",
                         run ? " would be the run)" : "");
    struct json_object *args = json_object_new_object();
    for (int k = 0; k < n_words; k++) {
        status = add_assignment(args, words[k]);
        if (status != CLI_DONE) {
            json_object_put(args);
            return status;
        }
    }
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "verb", json_object_new_string("set"));
    json_object_object_add(params, "args", args);
    return cli_send_command(run, params);
}

static const cli_example examples[] = {
    {"kajitori set lr=1e-4", "set one parameter of the only live run"},
    {"kajitori set digits lr=1e-4 momentum=0.8 --at epoch", "set two, at the end of the epoch"},
    {"kajitori set lr=1e9 --dry-run", "only have it checked"},
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
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME,
    .examples = examples,
    .see_also = "get status log",
    .run = run_set,
};
