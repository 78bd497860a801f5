/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a command, in one clear line. */
#ifndef CLI_REPLIES_H
#define CLI_REPLIES_H

#include "cli.h"

/*
 * What a record says, for people: "lr: 0.001 -> 0.0001, applied at step 1201 (epoch 3)". `run` is
 * the id of its run; `is_one_of_many` puts it in front of each line.
 */
void cli_print_record(const char *run, bool is_one_of_many, struct json_object *record);

/* The answer to `help`: its verbs with their arguments, as a table. False when it is none. */
bool cli_print_verbs(struct json_object *result);

/* The range of a parameter or argument: "> 0 .. 10", ">= 0", "<= 1", "" without any. For free. */
char *cli_range_text(struct json_object *arg);

#endif
