/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pause holds the training at its safe point (visit.c waits there), for a time if it was given
 * one, or has it leave: save, and end the process, so that others have the memory. A pause of a run
 * that is paused sets the time anew.
 */
#include "clock.h"
#include "errors.h"
#include "json.h"
#include "run-impl.h"
#include "verbs-builtin.h"

#include <string.h>

static bool is_queued(const kj_run *run, const char *verb)
{
    for (const kji_command *command = run->queue; command; command = command->next)
        if (strcmp(command->verb_name, verb) == 0)
            return true;
    return false;
}

/* 0 in *ret_ms: no time was given. */
static int read_time(const kji_command *command, int64_t *ret_ms, kj_error *err)
{
    kj_value value;
    *ret_ms = 0;
    if (!kji_command_get_arg(command, "for", &value))
        return 0;
    int r = kji_duration_parse(value.s, ret_ms, err);
    return r < 0 ? kji_fail_prefix(err, r, "for") : 0;
}

static int check_level(const kj_run *run, const kji_command *command, bool has_time, kj_error *err)
{
    kj_value level = {.s = "hold"};
    kji_command_get_arg(command, "level", &level);
    bool leaves = strcmp(level.s, "leave") == 0;
    if (!leaves && strcmp(level.s, "hold") != 0)
        return kji_fail(err, KJ_EREJECTED, "level=%.40s: it can be hold or leave", level.s);
    if (leaves && has_time)
        return kji_fail(err, KJ_EREJECTED,
                        "level=leave cannot have for=: nobody would start the training again");
    if (leaves && !(run->abilities & KJ_CAN_LEAVE))
        return kji_fail(err, KJ_EUNSUPPORTED,
                        "level=leave: this program cannot leave and be started again");
    return 0;
}

int kji_pause_check(kj_run *run, kji_command *command, kj_error *err)
{
    int64_t ms;
    int r = read_time(command, &ms, err);
    if (r >= 0)
        r = check_level(run, command, ms > 0, err);
    if (r >= 0 && kji_command_saves(command))
        r = kji_check_can_save(run, err);
    if (r >= 0 && kji_run_is_stopping(run))
        r = kji_fail(err, KJ_EREJECTED, "the run is stopping; it cannot be paused");
    return r;
}

int kji_pause_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    bool changes = kji_command_saves(command) || run->hold.until_ms ||
                   json_object_object_get_ex(command->args, "for", NULL);
    if (!run->paused || changes || command->at.kind != KJI_AT_NOW || is_queued(run, "resume"))
        return 0;
    *ret_result = kji_already("already_paused", run->hold.seq);
    return 1;
}

int kji_pause_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    int64_t ms;
    int r = kji_pause_check(run, command, err);
    if (r >= 0)
        r = read_time(command, &ms, err);
    if (r >= 0 && kji_command_saves(command))
        r = kji_run_save(run, command, err);
    if (r < 0)
        return r;
    if (kji_command_ending(command) == KJ_ENDING_LEAVE) {
        kji_run_end_training(run, command, KJ_ENDING_LEAVE);
        return 0;
    }
    kji_run_record(run, command, KJI_APPLIED);
    if (!run->paused)
        kji_run_tell_state(run, "paused");
    run->paused = true;
    int64_t now = kji_monotonic_ms();
    run->hold = (kji_hold){command->seq, now, ms ? now + ms : 0};
    return 0;
}

static void go_on(kj_run *run)
{
    run->paused = false;
    run->hold = (kji_hold){0};
    kji_run_tell_state(run, kji_run_state(run));
}

int64_t kji_run_hold_left_ms(const kj_run *run)
{
    if (!run->hold.until_ms)
        return -1;
    int64_t left = run->hold.until_ms - kji_monotonic_ms();
    return left > 0 ? left : 0;
}

void kji_run_look_at_hold(kj_run *run)
{
    if (!run->paused || kji_run_is_stopping(run) || kji_run_hold_left_ms(run) != 0)
        return;
    struct json_object *fields = json_object_new_object();
    double after_s = (double)(kji_monotonic_ms() - run->hold.since_ms) / 1000;
    json_object_object_add(fields, "seq", json_object_new_int64(run->hold.seq));
    json_object_object_add(fields, "after_s", kji_json_new_double(after_s));
    kji_run_event(run, "resumed", fields);
    go_on(run);
    kji_run_update_due(run);
}

int kji_resume_check(kj_run *run, kji_command *command, kj_error *err)
{
    (void)run;
    if (command->at.kind != KJI_AT_NOW)
        return kji_fail(err, KJ_EREJECTED,
                        "resume cannot have at=: a paused training reaches no step");
    return 0;
}

int kji_resume_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    (void)command;
    if (run->paused || is_queued(run, "pause"))
        return 0;
    *ret_result = kji_already("not_paused", 0);
    return 1;
}

int kji_resume_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    (void)err;
    kji_run_record(run, command, KJI_APPLIED);
    if (run->paused)
        go_on(run);
    return 0;
}
