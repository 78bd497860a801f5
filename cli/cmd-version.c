/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdio.h>

static int run_version(int n_words, const char *const *words)
{
    if (n_words > 0)
        return cli_too_many(words[0]);
    printf("kajitori %s\n", kj_version());
    return CLI_DONE;
}

const cli_command cli_version = {
    .name = "version",
    .usage = "",
    .summary = "print the version",
    .description = "Prints the version of the library that is loaded. The same as kajitori "
                   "--version.",
    .see_also = "help",
    .run = run_version,
};
