/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A condition and the status of a run, a newline between: a condition that is refused says why; of
 * one and its opposite at most one holds.
 */
#include "match.h"

#include "fuzz.h"

#include <string.h>

static int opposite(int op)
{
    static const int pairs[] = {
        [CLI_MATCH_LESS] = CLI_MATCH_AT_LEAST,   [CLI_MATCH_AT_MOST] = CLI_MATCH_GREATER,
        [CLI_MATCH_GREATER] = CLI_MATCH_AT_MOST, [CLI_MATCH_AT_LEAST] = CLI_MATCH_LESS,
        [CLI_MATCH_EQUAL] = CLI_MATCH_NOT_EQUAL, [CLI_MATCH_NOT_EQUAL] = CLI_MATCH_EQUAL};
    return pairs[op];
}

static void try_condition(const char *text, struct json_object *status)
{
    char problem[300] = "";
    cli_match match;
    if (!cli_match_parse(text, &match, problem, sizeof problem)) {
        check(*problem);
        return;
    }
    check(*match.name && *match.value);
    bool holds = cli_match_holds(&match, status, NULL);
    if (match.op == CLI_MATCH_CONTAINS)
        return;
    match.op = opposite(match.op);
    check(!(holds && cli_match_holds(&match, status, NULL)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    char *line = text ? strchr(text, '\n') : NULL;
    if (text && size <= 4096) {
        struct json_object *status = line ? json_tokener_parse(line + 1) : NULL;
        if (line)
            *line = 0;
        try_condition(text, status);
        json_object_put(status);
    }
    free(text);
    return 0;
}
