/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a training: stop, prune, abort, and a pause that leaves. The first that is applied is
 * the one that counts; only an abort may still follow. Others meet it, and each other, like this:
 * one that was applied settles the new one at once; one that acts earlier, or at the same place,
 * stays and the new one is done together with it; one that acts later is replaced; and where the
 * order cannot be known (a step and an epoch), both wait and the first to act ends the other. One
 * that saves first may fail, so it replaces nothing before it has acted. What asks for more than
 * the one that counts has given (a checkpoint, another choice of validation) is told so, never
 * answered "done".
 */
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "verbs-builtin.h"

#include <string.h>

const char *kji_ending_name(int ending)
{
    static const char *const names[] = {NULL, "stop", "prune", "leave", "abort"};
    return names[ending];
}

int kji_ending_bits(int ending)
{
    static const int bits[] = {0, KJ_RUN_STOP, KJ_RUN_STOP | KJ_RUN_PRUNED,
                               KJ_RUN_STOP | KJ_RUN_LEFT, KJ_RUN_STOP | KJ_RUN_ABORTED};
    return bits[ending];
}

int kji_command_ending(const kji_command *command)
{
    kj_value level;
    if (command->verb->ending == KJ_ENDING_LEAVE &&
        !(kji_command_get_arg(command, "level", &level) && strcmp(level.s, "leave") == 0))
        return KJ_ENDING_NONE;
    return command->verb->ending;
}

bool kji_command_saves(const kji_command *command)
{
    return command->save || kji_command_ending(command) == KJ_ENDING_LEAVE;
}

/* As kj_run_stop_validate. */
static int wanted_validation(const kji_command *command)
{
    kj_value value;
    return kji_command_get_arg(command, "validate", &value) ? (int)value.i : -1;
}

/* What the command asks for and the ending that was applied has not given; NULL for nothing. */
static const char *unmet(const kj_run *run, const kji_command *command)
{
    int validate = wanted_validation(command);
    if (kji_command_ending(command) == KJ_ENDING_LEAVE)
        return "level=leave";
    if (kji_command_saves(command) && !run->stop_saved)
        return "save=yes";
    if (validate < 0 || validate == run->stop_validate)
        return NULL;
    return validate ? "validate=yes" : "validate=no";
}

struct json_object *kji_already(const char *what, int64_t seq)
{
    struct json_object *result = json_object_new_object();
    json_object_object_add(result, what, json_object_new_boolean(true));
    if (seq > 0)
        json_object_object_add(result, "seq", json_object_new_int64(seq));
    return result;
}

/* Takes every other ending that `which` names out of the queue, and answers it. */
static void end_others(kj_run *run, const kji_command *command,
                       bool (*which)(const kji_command *other, const kji_command *command),
                       void (*answer)(kj_run *run, kji_command *other, const kji_command *command))
{
    kji_command **link = &run->queue;
    while (*link) {
        kji_command *other = *link;
        if (other == command || !kji_command_ending(other) || !which(other, command)) {
            link = &other->next;
            continue;
        }
        *link = other->next;
        if (!*link)
            run->queue_end = link;
        run->n_queued--;
        run->queued_bytes -= other->size;
        answer(run, other, command);
    }
}

/* An abort is not replaced by, and not done with, what is milder. */
static bool is_as_mild(const kji_command *other, const kji_command *command)
{
    return kji_command_ending(other) != KJ_ENDING_ABORT ||
           kji_command_ending(command) == KJ_ENDING_ABORT;
}

static bool acts_later(const kji_command *other, const kji_command *command)
{
    return is_as_mild(other, command) && kji_at_is_earlier(&command->at, &other->at);
}

static void answer_replaced(kj_run *run, kji_command *other, const kji_command *command)
{
    other->error = kji_format("replaced by the earlier %s with seq %lld", command->verb_name,
                              (long long)command->seq);
    kji_run_finish(run, other, KJI_EXPIRED);
}

static void answer_ended(kj_run *run, kji_command *other, const kji_command *command)
{
    const char *missed = unmet(run, other);
    if (kji_command_ending(command) == KJ_ENDING_LEAVE)
        other->error = kji_format("the run left before its turn came, by the pause with seq %lld",
                                  (long long)command->seq);
    else if (missed)
        other->error = kji_format("the run stopped before its turn came, by the %s with seq %lld, "
                                  "without %s",
                                  command->verb_name, (long long)command->seq, missed);
    else
        other->result = kji_already("already_stopping", command->seq);
    kji_run_finish(run, other, other->error ? KJI_EXPIRED : KJI_DONE);
}

static void set_reason(kj_run *run, const kji_command *command)
{
    if (!command->reason)
        return;
    run->first_reason = run->stop_reason;
    __atomic_store_n(&run->stop_reason, strdup(command->reason), __ATOMIC_RELEASE);
}

/* A stop in the middle of a validation says what becomes of the rest of it. */
static void say_validation(const kj_run *run, kji_command *command)
{
    if (!(run->abilities & KJ_CAN_SKIP_VALIDATION) || strcmp(run->phase, "validation") != 0)
        return;
    bool skips = run->abilities & KJ_SKIPS_VALIDATION;
    if (run->stop_validate >= 0)
        skips = run->stop_validate == 0;
    if (!command->result)
        command->result = json_object_new_object();
    json_object_object_add(command->result, "validation",
                           json_object_new_string(skips ? "skipped" : "runs to its end"));
}

void kji_run_end_training(kj_run *run, kji_command *command, int ending)
{
    bool is_first = !kji_run_is_stopping(run);
    run->stop_seq = command->seq;
    run->stop_saved |= kji_command_saves(command);
    run->stop_validate = ending == KJ_ENDING_ABORT ? 0 : wanted_validation(command);
    set_reason(run, command);
    if (ending == KJ_ENDING_STOP || ending == KJ_ENDING_PRUNE)
        say_validation(run, command);
    kji_run_record(run, command, KJI_APPLIED);
    __atomic_store_n(&run->ending, ending, __ATOMIC_RELEASE);
    kji_run_pend(run, KJI_PENDING_STOPPED);
    end_others(run, command, is_as_mild, answer_ended);
    if (is_first)
        kji_run_tell_state(run, "stopping");
}

int kji_stop_check(kj_run *run, kji_command *command, kj_error *err)
{
    if (wanted_validation(command) >= 0 && !(run->abilities & KJ_CAN_SKIP_VALIDATION))
        return kji_fail(err, KJ_EUNSUPPORTED,
                        "validate=: this program cannot choose whether it validates");
    int r = kji_command_saves(command) ? kji_check_can_save(run, err) : 0;
    const char *missed = r >= 0 && kji_run_is_stopping(run) ? unmet(run, command) : NULL;
    if (missed)
        return kji_fail(err, KJ_EREJECTED, "the run is stopping already, by seq %lld, without %s",
                        (long long)run->stop_seq, missed);
    return r;
}

int kji_stop_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    if (kji_run_is_stopping(run)) {
        *ret_result = kji_already("already_stopping", run->stop_seq);
        return 1;
    }
    if (!kji_command_saves(command))
        end_others(run, command, acts_later, answer_replaced);
    return 0;
}

int kji_stop_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    int r = kji_command_saves(command) ? kji_run_save(run, command, err) : 0;
    if (r >= 0)
        kji_run_end_training(run, command, command->verb->ending);
    return r;
}

const char *kji_abort_why_not(const kj_run *run, const kji_verb *verb)
{
    (void)verb;
    return run->abilities & KJ_CAN_ABORT ? NULL : "this program only knows how to stop";
}

int kji_abort_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    if (__atomic_load_n(&run->ending, __ATOMIC_RELAXED) == KJ_ENDING_ABORT) {
        *ret_result = kji_already("already_stopping", run->stop_seq);
        return 1;
    }
    end_others(run, command, acts_later, answer_replaced);
    return 0;
}

int kji_abort_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    (void)err;
    kji_run_end_training(run, command, KJ_ENDING_ABORT);
    return 0;
}
