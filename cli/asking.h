/* SPDX-License-Identifier: Apache-2.0 */
/* Asking many runs at once. */
#ifndef CLI_ASKING_H
#define CLI_ASKING_H

#include "cli.h"

/* One of many is not waited for so long as a single one; a mailbox on a network is looked into each
 * 2 s. */
enum { CLI_MANY_ANSWER_MS = 3000 };

/* fn(userdata, k) for each k < n, in up to 32 threads, so that one that is silent does not take the
 * time of the others. Returns when all are through. */
void cli_in_parallel(size_t n, void (*fn)(void *userdata, size_t k), void *userdata);

/* The answer of the run to "status": 0 with *ret_status, or why there is none. Any thread. */
int cli_ask_status(const kj_run_info *info, struct json_object **ret_status);

#endif
