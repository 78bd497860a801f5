/* SPDX-License-Identifier: Apache-2.0 */
/* --host HOST, and ssh://HOST/RUN as the run: the same command, there. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "cli.h"

enum { CLI_HERE = -1 };

/*
 * Runs the command on the host that the command line names, and returns its exit status: what was
 * given is quoted for the shell there, standard input is passed through, and a local --schedule
 * file is sent as standard input. CLI_HERE when no host is named. `table`: all options of the verb;
 * the command line has been read with them without an error.
 */
int cli_run_elsewhere(const cli_command *command, int argc, const char *const *argv,
                      const struct poptOption *table);

#endif
