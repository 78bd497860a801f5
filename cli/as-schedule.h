/* SPDX-License-Identifier: Apache-2.0 */
/* A journal as a schedule: text commands that do the same again (docs/protocol.md, section 5). */
#ifndef CLI_AS_SCHEDULE_H
#define CLI_AS_SCHEDULE_H

#include "cli.h"

typedef struct cli_schedule cli_schedule;

cli_schedule *cli_schedule_new(void);
/* NULL is fine. */
void cli_schedule_free(cli_schedule *schedule);

/*
 * The next line of the journal. A start from a checkpoint goes on from where that was saved: what
 * was applied after it is forgotten. Any other start forgets all before.
 */
void cli_schedule_add(cli_schedule *schedule, struct json_object *record);

/* One command a line, in the order in which they were applied; what cannot be replayed is a comment
 * that says why. */
void cli_schedule_print(const cli_schedule *schedule, const char *run_id);

#endif
