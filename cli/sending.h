/* SPDX-License-Identifier: Apache-2.0 */
/* Sending a command to a run, or to each run of a group, waiting for it, and saying what happened:
 * what all verbs share that change something. */
#ifndef CLI_SENDING_H
#define CLI_SENDING_H

#include "cli.h"

/* --at, --reason, --wait, --timeout, --by, --command-id, --dry-run. */
extern const struct poptOption cli_sending_options[];
/* Only those that a text line does not say itself: --wait, --timeout, --by, --dry-run. */
extern const struct poptOption cli_sending_line_options[];
/* --save, for verbs that can save a checkpoint first. */
extern const struct poptOption cli_saving_options[];

/* Puts one of the tables above into a verb's own. */
#define CLI_INCLUDE(table)                                                         \
    {                                                                              \
        NULL, 0, POPT_ARG_INCLUDE_TABLE, (void *)(uintptr_t)(table), 0, NULL, NULL \
    }

#define CLI_SENDING_FORMATS (CLI_TABLE | CLI_JSON | CLI_YAML)
#define CLI_SENDING_FLAGS   (CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_GROUP)

/* An argument of a verb: the word KEY=VALUE, and perhaps an option that fills the same variable. */
typedef struct cli_key {
    const char *key; /* NULL ends the list */
    const char **value;
} cli_key;

/*
 * Sends the command `params` (the protocol's params of "command"; taken over) with the options
 * above to the run, or to the group, waits as --wait says, else until `wait` (enum kj_wait), and
 * prints the record. Of a group each run has its line with its id in front, and the status is the
 * greatest of all.
 */
int cli_send_command(const char *run, struct json_object *params, int wait);

/*
 * Takes the words at=…, by=…, reason=…, command_id=…, dry_run=yes, save=yes, wait=…, timeout=… and
 * those of `own` (may be NULL) out of *words: what a text line says in this way may be said so
 * here, too. CLI_DONE, or CLI_USAGE.
 */
int cli_take_sending_words(const cli_key *own, int *n_words, const char *const **words);

/* NAME=VALUE as a member of `args`. CLI_DONE, or CLI_USAGE. */
int cli_add_assignment(struct json_object *args, const char *word);

/* The params of a command: its verb, and the keys that have a value as its arguments. */
struct json_object *cli_new_command(const char *verb, const cli_key *keys);

/* All that `kajitori VERB [RUN] [OPTIONS]` does for a verb whose arguments are `keys` (or NULL). */
int cli_send_verb(const char *verb, const cli_key *keys, int n_words, const char *const *words);

/* The same for a verb whose arguments the program declares: any KEY=VALUE. */
int cli_send_declared_verb(const char *verb, int n_words, const char *const *words);

/* --timeout in *ret_ms: CLI_DONE, or CLI_USAGE. */
int cli_read_timeout(int *ret_ms);

/* --dry-run. */
bool cli_is_dry_run(void);

/* --by, else user@host. */
const char *cli_who(void);

/* Sends each line of a schedule (a file, or "-": standard input) to the run, after all of them were
 * checked; with --dry-run they are only checked. */
int cli_send_schedule(const char *run, const char *path);

/* The text line with dry_run=yes in it; for free. */
char *cli_dry_line(const char *line);

#endif
