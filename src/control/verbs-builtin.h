/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that every run has (docs/protocol.md, section 3). */
#ifndef KJI_VERBS_BUILTIN_H
#define KJI_VERBS_BUILTIN_H

#include "verbs.h"

extern const kji_verb kji_builtin_verbs[];
extern const size_t kji_n_builtin_verbs;

/* The carry_out slot of every own verb. */
int kji_own_verb_carry_out(kj_run *run, kji_command *command, kj_error *err);

#endif
