/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint, evaluate, extend: every run lists them, a program that can do them provides the
 * function, and what comes back means the same everywhere. A checkpoint is also saved inside other
 * commands (save=yes): the program's function is called before they do anything else, so that when
 * it fails, nothing was done.
 */
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "verbs-builtin.h"

#include <string.h>

int kji_standard_find(const char *name)
{
    for (size_t k = 0; k < kji_n_builtin_verbs; k++)
        if (strcmp(kji_builtin_verbs[k].name, name) == 0)
            return kji_builtin_verbs[k].standard;
    return KJI_NOT_STANDARD;
}

const char *kji_standard_why_not(const kj_run *run, const kji_verb *verb)
{
    if (run->refusal[verb->standard])
        return run->refusal[verb->standard];
    return verb->carry_out ? NULL : "this program does not provide it";
}

static const kji_verb *find_checkpoint(const kj_run *run)
{
    return kji_verb_find(&run->own_verbs, "checkpoint");
}

int kji_check_can_save(const kj_run *run, kj_error *err)
{
    const kji_verb *verb = find_checkpoint(run);
    KJI_CLEANUP(kji_json_putp) struct json_object *no_args = json_object_new_object();
    int r = kji_verb_check_can(run, verb, err);
    if (r >= 0)
        r = kji_verb_check_required(verb, no_args, err);
    return r < 0 ? kji_fail_prefix(err, KJ_EUNSUPPORTED, "nothing can be saved") : 0;
}

bool kji_run_needs_epoch_end(const kj_run *run, const kji_command *command)
{
    return command->verb->at_epoch_end ||
           (kji_command_saves(command) && find_checkpoint(run)->at_epoch_end);
}

/* A checkpoint that nobody can find is none. */
static int keep_checkpoint(kj_run *run, const kji_command *command, struct json_object *result,
                           kj_error *err)
{
    const char *path = kji_json_string(result, "path");
    if (!path || !*path || strlen(path) > KJI_STRING_MAX)
        return kji_fail(err, KJ_EFAILED, "the program's result has no \"path\" (1 to %d bytes)",
                        KJI_STRING_MAX);
    char *copy = strdup(path);
    if (!copy)
        return kji_fail_memory(err);
    free(run->checkpoint.path);
    run->checkpoint = (kji_checkpoint){copy, command->step, command->epoch};
    return 0;
}

int kji_run_save(kj_run *run, kji_command *command, kj_error *err)
{
    const kji_verb *verb = find_checkpoint(run);
    KJI_CLEANUP(kji_json_putp) struct json_object *no_args = json_object_new_object();
    struct json_object *result = NULL;
    int r = kji_check_can_save(run, err);
    if (r < 0)
        return r;
    r = kji_call_program(run, verb, command, no_args, &result, err);
    if (r >= 0)
        r = keep_checkpoint(run, command, result, err);
    if (r < 0) {
        json_object_put(result);
        return kji_fail_prefix(err, r, "the checkpoint failed, nothing else was done");
    }
    command->result = json_object_new_object();
    json_object_object_add(command->result, "checkpoint", result);
    return 0;
}

static void keep_totals(kj_run *run, struct json_object *result)
{
    int64_t total;
    if (kji_json_int(result, "total_steps", &total) && total >= 0)
        run->total_steps = total;
    if (kji_json_int(result, "total_epochs", &total) && total >= 0)
        run->total_epochs = total;
}

int kji_extend_check(kj_run *run, kji_command *command, kj_error *err)
{
    kj_value n;
    if (kji_command_get_arg(command, "epochs", &n) == kji_command_get_arg(command, "steps", &n))
        return kji_fail(err, KJ_EREJECTED, "extend needs either epochs=N or steps=N");
    if (kji_run_is_stopping(run))
        return kji_fail(err, KJ_EREJECTED, "the run is stopping; it cannot be extended");
    return 0;
}

int kji_standard_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    const kji_verb *verb = command->verb;
    int r = verb->check ? verb->check(run, command, err) : 0;
    if (r >= 0)
        r = kji_own_verb_carry_out(run, command, err);
    if (r >= 0 && verb->standard == KJI_CHECKPOINT)
        r = keep_checkpoint(run, command, command->result, err);
    if (r >= 0 && verb->standard == KJI_EXTEND)
        keep_totals(run, command->result);
    return r;
}
