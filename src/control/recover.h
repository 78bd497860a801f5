/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of this id had accepted, and not carried out, when it died (docs/protocol.md, section
 * 5). Lock held. */
#ifndef KJI_RECOVER_H
#define KJI_RECOVER_H

#include "verbs.h"

/* Adds the list `recoverable` to `to`; nothing when there is none. */
void kji_recover_describe(const kj_run *run, struct json_object *to);
/* One warning, if there is any. */
void kji_recover_warn(kj_run *run);

/* Slots of the verb. */
int kji_recover_check(kj_run *run, kji_command *command, kj_error *err);
int kji_recover_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                       kj_error *err);

#endif
