/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a run and lines of its journal, as one line each for people. */
#ifndef CLI_RECORDS_H
#define CLI_RECORDS_H

#include "cli.h"

/* A line of the journal: time, step, state, who, door, what happened. */
void cli_print_journal_line(struct json_object *line);

/* A command that waits, as a line of a list: "  command 7: set lr=0.1 at step:9". */
void cli_print_waiting(struct json_object *command);

/* An event of a subscription: time, what happened. */
void cli_print_event(struct json_object *event);

#endif
