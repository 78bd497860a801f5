/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static int as_man, as_words;

/* For the build (man pages) and the shell (completion), not shown. */
static const struct poptOption options[] = {
    {"man", 0, POPT_ARG_NONE | POPT_ARGFLAG_DOC_HIDDEN, &as_man, 0, NULL, NULL},
    {"words", 0, POPT_ARG_NONE | POPT_ARGFLAG_DOC_HIDDEN, &as_words, 0, NULL, NULL},
    POPT_TABLEEND,
};

static void print_verbs(void)
{
    for (size_t k = 0; cli_commands[k]; k++)
        puts(cli_commands[k]->name);
}

static int run_help(int n_words, const char *const *words)
{
    const cli_command *command = NULL;
    if (n_words > 1)
        return cli_too_many(words[1]);
    if (n_words == 1 && strcmp(words[0], "kajitori") != 0 &&
        !(command = cli_find_command(words[0])))
        return cli_unknown_verb(words[0]);
    if (as_man)
        cli_print_man(command);
    else if (as_words && command)
        cli_print_words(command);
    else if (as_words)
        print_verbs();
    else
        cli_print_help(command);
    return CLI_DONE;
}

const cli_command cli_help = {
    .name = "help",
    .usage = "[VERB]",
    .summary = "list the verbs, or explain one",
    .description = "Without a word, lists the verbs and the exit statuses; with one, explains that "
                   "verb, as kajitori VERB --help does.",
    .options = options,
    .see_also = "version",
    .flags = CLI_STAYS_HERE,
    .run = run_help,
};
