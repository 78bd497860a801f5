/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include <string.h>

static const char *epochs, *steps;
static const cli_key keys[] = {{"epochs", &epochs}, {"steps", &steps}, {NULL, NULL}};
static const struct poptOption options[] = {
    {"epochs", 0, POPT_ARG_STRING, &epochs, 0, "so many epochs more; the word +N means the same",
     "N"},
    {"steps", 0, POPT_ARG_STRING, &steps, 0, "so many steps more", "N"},
    CLI_INCLUDE(cli_sending_options),
    POPT_TABLEEND,
};

/* Takes the word +N out of *words; no run has a "+". */
static int take_plus(int *n_words, const char *const *words, const char **ret_words)
{
    int n = 0;
    for (int k = 0; k < *n_words; k++) {
        if (*words[k] != '+') {
            ret_words[n++] = words[k];
            continue;
        }
        const char *count = words[k] + 1;
        if (!*count || count[strspn(count, "0123456789")])
            return cli_usage("'%s': write + and a whole number of epochs, as in +20", words[k]);
        if (epochs)
            return cli_usage("the number of epochs is given twice");
        epochs = count;
    }
    *n_words = n;
    return CLI_DONE;
}

static int run_extend(int n_words, const char *const *words)
{
    const char *rest[2];
    int status = cli_take_sending_words(keys, &n_words, &words);
    if (status == CLI_DONE && n_words > 2)
        return cli_too_many(words[2]);
    if (status == CLI_DONE)
        status = take_plus(&n_words, words, rest);
    if (status != CLI_DONE)
        return status;
    const char *const *left = rest;
    const char *run = cli_take_run(&n_words, &left);
    if (n_words > 0)
        return cli_too_many(left[0]);
    if (!epochs == !steps)
        return cli_usage("say by how much: +20 or --epochs 20, or --steps 5000%s",
                         epochs ? ", not both" : "");
    return cli_send_command(run, cli_new_command("extend", keys), KJ_WAIT_DONE);
}

static const cli_example examples[] = {
    {"kajitori extend +20", "twenty epochs more for the only live run"},
    {"kajitori extend digits --steps 5000", "or steps"},
    {NULL, NULL},
};

const cli_command cli_extend = {
    .name = "extend",
    .usage = "[RUN] +EPOCHS [OPTIONS]",
    .summary = "have a run train longer than it was told",
    .description = "The reply says how many epochs or steps there are now in all. A program that "
                   "cannot do so refuses it.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "stop set status",
    .run = run_extend,
};
