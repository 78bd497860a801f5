/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a run and lines of its journal, as one line each for people. */
#ifndef CLI_RECORDS_H
#define CLI_RECORDS_H

#include "cli.h"

/* A line of the journal: time, step, state, who, door, what happened. */
void cli_print_journal_line(struct json_object *line);

/* An event of a subscription: time, what happened. */
void cli_print_event(struct json_object *event);

#endif
