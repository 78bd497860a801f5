/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions on a run, as --match takes them: "lr>0.1", "state=paused", "name~digits". */
#ifndef CLI_MATCH_H
#define CLI_MATCH_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

enum cli_match_op {
    CLI_MATCH_LESS,
    CLI_MATCH_AT_MOST,
    CLI_MATCH_GREATER,
    CLI_MATCH_AT_LEAST,
    CLI_MATCH_EQUAL,
    CLI_MATCH_NOT_EQUAL,
    CLI_MATCH_CONTAINS
};

typedef struct cli_match {
    char name[513]; /* a tag has at most 512 bytes */
    int op;         /* enum cli_match_op */
    const char *value;
    bool is_number;
    double number;
} cli_match;

/*
 * Reads one condition; ret_match->value points into `text`. False with the reason, and what would
 * be right, in `problem`.
 */
bool cli_match_parse(const char *text, cli_match *ret_match, char *problem, size_t size);

/*
 * Whether it holds for a run: `status` is its answer to "status", `run` its run.json; either may be
 * NULL. The name is a parameter, else a metric (its newest value), else a member of the status,
 * else one of run.json. A run that has no such name does not match, and NaN compares false.
 */
bool cli_match_holds(const cli_match *match, struct json_object *status, struct json_object *run);

#endif
