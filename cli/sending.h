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

/*
 * Takes the words at=…, by=…, reason=…, command_id=…, dry_run=yes, wait=…, timeout=… out of *words:
 * what a text line says in this way may be said so here, too. CLI_DONE, or CLI_USAGE.
 */
int cli_take_sending_words(int *n_words, const char *const **words);

/* All that `kajitori VERB [RUN] [OPTIONS]` does for a verb without arguments of its own. */
int cli_send_verb(const char *verb, int n_words, const char *const *words);

/* What a record says, as lines for people: "lr: 0.001 -> 0.0001, applied at step 1201 (epoch 3)".
 */
void cli_print_record(struct json_object *record);

#endif
