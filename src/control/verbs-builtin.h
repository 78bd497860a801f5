/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that every run has (docs/protocol.md, section 3): the table, and the slots of those
 * that have a file of their own. The contracts are those of kji_verb. */
#ifndef KJI_VERBS_BUILTIN_H
#define KJI_VERBS_BUILTIN_H

#include "verbs.h"

extern const kji_verb kji_builtin_verbs[];
extern const size_t kji_n_builtin_verbs;

/* What settles a command that has nothing to do: {WHAT: true, "seq": of the one that did it, if >
 * 0}. */
struct json_object *kji_already(const char *what, int64_t seq);

/* endings.c: stop, prune, abort */
int kji_stop_check(kj_run *run, kji_command *command, kj_error *err);
int kji_stop_settle(kj_run *run, kji_command *command, struct json_object **ret_result);
int kji_stop_carry_out(kj_run *run, kji_command *command, kj_error *err);
const char *kji_abort_why_not(const kj_run *run, const kji_verb *verb);
int kji_abort_settle(kj_run *run, kji_command *command, struct json_object **ret_result);
int kji_abort_carry_out(kj_run *run, kji_command *command, kj_error *err);

/* enum kj_ending: what the command makes of the training when it is carried out. */
int kji_command_ending(const kji_command *command);
/* Whether a checkpoint is saved before anything else is done. */
bool kji_command_saves(const kji_command *command);
/* The training ends by this command: recorded as applied, and what waited for the same is answered.
 */
void kji_run_end_training(kj_run *run, kji_command *command, int ending);

/* pause.c */
int kji_pause_check(kj_run *run, kji_command *command, kj_error *err);
int kji_pause_settle(kj_run *run, kji_command *command, struct json_object **ret_result);
int kji_pause_carry_out(kj_run *run, kji_command *command, kj_error *err);
int kji_resume_check(kj_run *run, kji_command *command, kj_error *err);
int kji_resume_settle(kj_run *run, kji_command *command, struct json_object **ret_result);
int kji_resume_carry_out(kj_run *run, kji_command *command, kj_error *err);

/* standard-verbs.c: checkpoint, evaluate, extend; and the carry_out slot of those that are provided
 */
const char *kji_standard_why_not(const kj_run *run, const kji_verb *verb);
int kji_extend_check(kj_run *run, kji_command *command, kj_error *err);
int kji_standard_carry_out(kj_run *run, kji_command *command, kj_error *err);

/* KJ_EUNSUPPORTED when save=yes cannot be had. */
int kji_check_can_save(const kj_run *run, kj_error *err);
/* Has the program save a checkpoint, inside another command, whose result becomes
 * {"checkpoint": its result}. Training thread, lock held, let go of meanwhile. */
int kji_run_save(kj_run *run, kji_command *command, kj_error *err);

/* enum kji_standard of a name, KJI_NOT_STANDARD for others. */
int kji_standard_find(const char *name);

/* own-verb.c: the carry_out slot of every own verb, and the call that it makes: `args` go to the
 * program. Training thread, lock held, let go of meanwhile. KJ_EFAILED with the program's message.
 */
int kji_own_verb_carry_out(kj_run *run, kji_command *command, kj_error *err);
int kji_call_program(kj_run *run, const kji_verb *verb, const kji_command *command,
                     struct json_object *args, struct json_object **ret_result, kj_error *err);

#endif
