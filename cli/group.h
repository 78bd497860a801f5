/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs at once: those that --study, --match and --all choose. */
#ifndef CLI_GROUP_H
#define CLI_GROUP_H

#include "cli.h"

typedef struct cli_member {
    const kj_run_info *info;    /* borrowed from the group's list */
    struct json_object *status; /* its answer to "status"; NULL when not asked, or silent */
    int code;                   /* KJ_E… when it was asked and did not answer */
} cli_member;

typedef struct cli_group {
    kj_run_list *list;
    size_t n;
    cli_member *runs;
    int worst; /* enum cli_status: CLI_TIMEOUT when it is not known of a run whether it matches */
} cli_group;

/* Whether the command line names a group. */
bool cli_group_given(void);

/* After the options are read: --match must be readable, and not stand beside --run. */
int cli_group_check(const cli_command *command);

/*
 * The live runs that --study and --match choose (all when neither was given), oldest first. They
 * are asked for their status when `ask` or --match needs it; runs that end meanwhile are left out,
 * and with --match those that do not answer, which is said. CLI_DONE, also when there is none.
 */
int cli_group_load(cli_group *ret_group, bool ask);

/* The same, but none is an error: CLI_NO_RUN with a line. */
int cli_group_choose(cli_group *ret_group, bool ask);

void cli_group_done(cli_group *group);

/* The ids in one line, on standard output, with states and steps where they were asked. */
void cli_group_print(const cli_group *group);

#endif
