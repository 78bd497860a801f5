/* SPDX-License-Identifier: Apache-2.0 */
/* From a door to the queue: number, check, journal, then answer or wait for the training thread. */
#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "utf8.h"

#include <stdio.h>
#include <string.h>

enum { QUEUE_BYTES_MAX = 32 << 20, ROOM_KEPT = 100 };

/* The newest record of a command with this id, if there was one. */
static struct json_object *find_repeat(const kj_run *run, const kji_command *command)
{
    const char *text = command->command_id ? kji_seen_find(&run->seen, command->command_id) : NULL;
    struct json_object *record = NULL;
    if (text && kji_json_parse(text, strlen(text), &record, NULL) < 0)
        return NULL;
    return record;
}

static int answer_repeat(struct json_object *record, struct json_object **ret_record, kj_error *err)
{
    *ret_record = record;
    const char *state = kji_json_string(record, "state");
    const char *error = kji_json_string(record, "error");
    if (state && strcmp(state, "rejected") == 0)
        return kji_fail(err, KJ_EREJECTED, "%s", error ? error : "rejected");
    return 0;
}

/* However many others wait, there is room for a stop, a pause and a resume. */
static int check_queue(const kj_run *run, const kji_verb *verb, kj_error *err)
{
    size_t kept = verb->has_kept_room ? ROOM_KEPT : 0;
    if (run->is_ended)
        return kji_fail(err, KJ_EREJECTED, "the run is ending");
    if (run->n_queued >= KJI_QUEUE_MAX + kept || (!kept && run->queued_bytes >= QUEUE_BYTES_MAX))
        return kji_fail(err, KJ_EREJECTED, "%zu commands wait already; the training takes none up",
                        run->n_queued);
    return 0;
}

/* What kji_run_update_due would find, without a walk through all that wait. */
static void note_due(kj_run *run, const kji_command *command)
{
    if (command->at.kind == KJI_AT_NOW)
        kji_run_pend(run, KJI_PENDING_COMMAND);
    int64_t *due = command->at.kind == KJI_AT_NOW    ? NULL
                   : command->at.kind == KJI_AT_STEP ? &run->cell.due_step
                                                     : &run->cell.due_epoch;
    if (due && command->at.n < *due) {
        __atomic_store_n(due, command->at.n, __ATOMIC_RELAXED);
        kji_run_pend(run, KJI_PENDING_DUE);
    }
}

static void enqueue(kj_run *run, kji_command *command)
{
    *run->queue_end = command;
    run->queue_end = &command->next;
    run->n_queued++;
    run->queued_bytes += command->size;
    note_due(run, command);
    kji_run_wake_training(run);
}

/* Whether the command, which changes nothing, is only counted, since its FIFO floods. One that sent
 * others has changed something. */
static bool is_hidden(const kj_run *run, const kji_command *command, int state)
{
    kji_flood *flood = command->seq == run->last_seq ? command->sender.flood : NULL;
    const char *text = command->line ? command->line : command->verb_name;
    if (command->verb && command->verb->is_remark && state == KJI_DONE)
        return false;
    return flood && !kji_flood_admits(flood, kji_monotonic_ms(), text);
}

/* The last state of a command that never waits; its record, with the result, for the sender. */
static void finish_at_once(kj_run *run, kji_command *command, int state,
                           struct json_object **ret_record)
{
    if (is_hidden(run, command, state)) {
        run->last_seq--; /* the number goes to the next one */
        kji_command_free(command);
        *ret_record = NULL;
        return;
    }
    command->hide_result = command->verb && command->verb->answer;
    if (state == KJI_DONE && !command->hide_result) {
        command->step = kji_run_step(run);
        command->epoch = kji_run_epoch(run);
        command->has_place = true;
    }
    kji_run_record(run, command, state);
    command->hide_result = false;
    *ret_record = kji_command_record(command);
    kji_command_free(command);
}

static int reject(kj_run *run, kji_command *command, const kj_error *why,
                  struct json_object **ret_record, kj_error *err)
{
    command->error = strdup(why->message);
    finish_at_once(run, command, KJI_REJECTED, ret_record);
    return kji_fail(err, KJ_EREJECTED, "%s", why->message);
}

/* Answers what needs no training thread: 1 when it did, 0 when the command must wait, or why not.
 */
static int settle(kj_run *run, kji_command *command, kj_error *err)
{
    const kji_verb *verb = command->verb;
    if (verb->answer) {
        int r = verb->answer(run, command, &command->result, err);
        return r < 0 ? r : 1;
    }
    if (command->dry_run)
        return 1;
    int r = check_queue(run, verb, err);
    if (r < 0)
        return r;
    return verb->settle ? verb->settle(run, command, &command->result) : 0;
}

/* Whether what it was rejected for (`why`) may change: a sender may be quicker than the program,
 * which still registers. */
static bool names_what_may_come(const kj_run *run, const kji_command *command, int why)
{
    bool is_of_ranks = command->verb && command->verb->is_for_all_ranks && run->rank_refusal;
    if (kji_run_step(run) >= 0 || kji_run_epoch(run) >= 0 || is_of_ranks)
        return false;
    if (!command->verb || why == KJ_EUNSUPPORTED)
        return true;
    if (!command->verb->takes_params || !command->args)
        return false;
    json_object_object_foreach(command->args, name, value)
    {
        (void)value;
        if (!kji_params_find(&run->params, name))
            return true;
    }
    return false;
}

static void wait_for_epoch_end(const kj_run *run, kji_command *command)
{
    if (command->at.kind == KJI_AT_NOW && kji_run_needs_epoch_end(run, command))
        command->at = (kji_at){KJI_AT_CURRENT_EPOCH, kji_run_epoch(run)};
}

int kji_run_submit(kj_run *run, kji_command *command, const kji_sender *sender, int parsed,
                   struct json_object **ret_record, kj_error *err)
{
    struct json_object *repeat = find_repeat(run, command);
    if (repeat) {
        kji_command_free(command);
        return answer_repeat(repeat, ret_record, err);
    }
    kj_error why = KJ_ERROR_INIT;
    command->seq = ++run->last_seq;
    command->sender = *sender;
    if (command->at.kind == KJI_AT_CURRENT_EPOCH)
        command->at.n = kji_run_epoch(run);
    if (parsed < 0) {
        snprintf(why.message, sizeof why.message, "%s", err->message);
        return reject(run, command, &why, ret_record, err);
    }
    int r = kji_verb_check(run, &run->own_verbs, command, &why);
    if (r < 0 && names_what_may_come(run, command, r)) {
        size_t used = strlen(why.message);
        snprintf(why.message + used, sizeof why.message - used,
                 " (the first step has not begun; the program may still register more)");
    }
    if (r >= 0)
        wait_for_epoch_end(run, command);
    if (r >= 0)
        r = settle(run, command, &why);
    if (r < 0)
        return reject(run, command, &why, ret_record, err);
    if (r == 1) {
        finish_at_once(run, command, KJI_DONE, ret_record);
        return 0;
    }
    kji_run_record(run, command, KJI_ACCEPTED);
    if (command->at.kind != KJI_AT_NOW)
        kji_run_record(run, command, KJI_SCHEDULED);
    *ret_record = kji_command_record(command);
    enqueue(run, command);
    return 0;
}

int kji_run_submit_line(kj_run *run, const kji_sender *sender, const char *text, size_t size,
                        const char *problem, struct json_object **ret_record, kj_error *err)
{
    kji_command *command = NULL;
    kj_error why = KJ_ERROR_INIT;
    kji_text_line line;
    int r = problem ? kji_fail(&why, KJ_EDATA, "%s", problem)
                    : kji_text_line_parse(text, size, &line, &why);
    if (r == 0)
        return 0;
    if (r > 0) {
        r = kji_command_from_text(&line, &command, &why);
    } else {
        command = kji_command_new();
        if (command)
            kji_command_keep_line(command, text, size);
    }
    if (!command) {
        kji_run_warn(run, "run %s: a command is lost: out of memory", run->id);
        return kji_fail_memory(err);
    }
    r = kji_run_submit(run, command, sender, r, ret_record, &why);
    return r < 0 ? kji_forward(err, &why) : 1;
}

void kji_run_take_line(kj_run *run, kji_fifo *fifo, const char *text, size_t size,
                       const char *problem)
{
    struct json_object *record = NULL;
    kji_sender sender = {.door = fifo->door, .uid = -1, .pid = -1, .flood = &fifo->flood};
    kji_run_submit_line(run, &sender, text, size, problem, &record, NULL);
    json_object_put(record);
}
