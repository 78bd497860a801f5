/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static const char *rule, *value, *threshold, *validate;
static const cli_key keys[] = {{"rule", &rule},
                               {"value", &value},
                               {"threshold", &threshold},
                               {"validate", &validate},
                               {NULL, NULL}};
static const struct poptOption options[] = {
    {"rule", 0, POPT_ARG_STRING, &rule, 0, "which rule decided, recorded", "TEXT"},
    {"value", 0, POPT_ARG_STRING, &value, 0, "the value that it saw, recorded", "NUMBER"},
    {"threshold", 0, POPT_ARG_STRING, &threshold, 0, "what it compared that with, recorded",
     "NUMBER"},
    {"validate", 0, POPT_ARG_STRING, &validate, 0,
     "whether the validation that the loop would still make is wanted", "yes|no"},
    CLI_INCLUDE(cli_saving_options),
    CLI_INCLUDE(cli_sending_options),
    POPT_TABLEEND,
};

static int run_prune(int n_words, const char *const *words)
{
    return cli_send_verb("prune", keys, n_words, words);
}

static const cli_example examples[] = {
    {"kajitori prune digits --rule median --value 0.61 --threshold 0.43",
     "stop it, and record what the rule saw"},
    {NULL, NULL},
};

const cli_command cli_prune = {
    .name = "prune",
    .usage = "[RUN] [OPTIONS]",
    .summary = "stop a run because a rule says so",
    .description = "A stop by a rule: the training is told that it was pruned, and what the rule "
                   "saw stands in the journal.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "stop tune log",
    .run = run_prune,
};
