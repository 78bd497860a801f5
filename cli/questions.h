/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a run, or each run of a group, something that it answers at once. */
#ifndef CLI_QUESTIONS_H
#define CLI_QUESTIONS_H

#include "cli.h"

typedef struct cli_answer {
    char *id;
    struct json_object *result; /* NULL: the error was printed */
    double micros;              /* from question to answer */
} cli_answer;

typedef struct cli_answers {
    size_t n;
    cli_answer *item;
    bool is_group; /* each line needs its id */
    int worst;     /* enum cli_status: the greatest of all */
} cli_answers;

/*
 * Calls `method` with `params` (a JSON object, or NULL) of the run, or of each run of the group,
 * all at once. Runs that did not answer have no result, and the error is printed. CLI_DONE with
 * answers to look at (then `worst` is the exit status), else the status.
 */
int cli_ask(const char *run, const char *method, const char *params, cli_answers *ret_answers);
void cli_answers_done(cli_answers *answers);

#endif
