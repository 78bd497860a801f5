/* SPDX-License-Identifier: Apache-2.0 */
/* Sending a command to a run, waiting for it, and saying what happened: what stop, pause, resume,
 * set and send share. */
#ifndef CLI_SENDING_H
#define CLI_SENDING_H

#include "cli.h"

/* --at, --reason, --wait, --timeout, --by, --command-id, --dry-run. */
extern const struct poptOption cli_sending_options[];
/* Only those that a text line does not say itself: --wait, --timeout, --by. */
extern const struct poptOption cli_sending_line_options[];

#define CLI_SENDING_FORMATS (CLI_TABLE | CLI_JSON | CLI_YAML)

/*
 * Sends the command `params` (the protocol's params of "command"; taken over) with the options
 * above to the run, waits as --wait says, and prints the record.
 */
int cli_send_command(const char *run, struct json_object *params);

/* What a record says, as lines for people: "lr: 0.001 -> 0.0001, applied at step 1201 (epoch 3)".
 */
void cli_print_record(struct json_object *record);

#endif
