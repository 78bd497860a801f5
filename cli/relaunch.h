/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the program of a run that is no more again, from its last checkpoint. */
#ifndef CLI_RELAUNCH_H
#define CLI_RELAUNCH_H

#include "cli.h"

enum cli_relaunch_flag {
    CLI_RELAUNCH_ANY = 1,    /* also a run that did not leave */
    CLI_RELAUNCH_DETACH = 2, /* in a session of its own, its output into the state folder */
    CLI_RELAUNCH_PRINT = 4   /* only say how */
};

/*
 * Starts the recorded command line of the run whose id begins with `name` (NULL: the newest one) in
 * its folder, with KAJITORI_RUN_ID and KAJITORI_CHECKPOINT. Masked arguments come from the
 * environment: $KAJITORI_ARG_N is the whole argument N (the program itself is 0), $WANDB_TOKEN the
 * value of --wandb-token. In the foreground this process becomes the program, so the call returns
 * on failure only.
 */
int cli_relaunch(const char *name, unsigned flags);

#endif
