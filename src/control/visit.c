/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training thread at a safe point: what is due is carried out in the order of the sequence
 * numbers; then, while the run is paused, the thread waits for the next command here. Only what was
 * there on arrival is carried out in one visit, so that a flood of commands cannot hold the
 * training.
 */
#include "clock.h"
#include "errors.h"
#include "run-impl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* How often a paused program looks whether a signal handler ran. */
enum { LOOK_MS = 500 };

void kji_run_moved(kj_run *run)
{
    run->moved_ms = kji_monotonic_ms();
    run->moved_step = kji_run_step(run);
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_LOOK, __ATOMIC_RELAXED);
}

void kji_run_update_due(kj_run *run)
{
    int64_t due_step = INT64_MAX, due_epoch = INT64_MAX;
    bool now = run->paused && !kji_run_is_stopping(run);
    for (const kji_command *command = run->queue; command; command = command->next) {
        if (command->at.kind == KJI_AT_NOW)
            now = true;
        else if (command->at.kind == KJI_AT_STEP)
            due_step = command->at.n < due_step ? command->at.n : due_step;
        else if (command->at.n < due_epoch)
            due_epoch = command->at.n;
    }
    __atomic_store_n(&run->cell.due_step, due_step, __ATOMIC_RELAXED);
    __atomic_store_n(&run->cell.due_epoch, due_epoch, __ATOMIC_RELAXED);
    if (now)
        kji_run_pend(run, KJI_PENDING_COMMAND);
    else
        __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_COMMAND, __ATOMIC_RELAXED);
}

void kji_run_wake_training(kj_run *run)
{
    if (run->is_waiting)
        eventfd_write(run->wake_fd, 1);
}

/* A step has come at which the command was to be carried out, and the program can do it at the end
 * of an epoch only. */
static void put_off(kj_run *run, kji_command *command)
{
    command->at = (kji_at){KJI_AT_EPOCH, kji_run_epoch(run)};
    kji_run_record(run, command, KJI_SCHEDULED);
}

/* Takes the first command that is due out of the queue; NULL when there is none. */
static kji_command *take_due(kj_run *run, const kji_place *place, int64_t last_seq)
{
    for (kji_command **link = &run->queue; *link; link = &(*link)->next) {
        kji_command *command = *link;
        if (command->seq > last_seq || !kji_at_is_due(&command->at, place))
            continue;
        if (place->kind != KJI_PLACE_EPOCH_END && kji_run_needs_epoch_end(run, command)) {
            put_off(run, command);
            continue;
        }
        *link = command->next;
        if (!*link)
            run->queue_end = link;
        run->n_queued--;
        run->queued_bytes -= command->size;
        command->next = NULL;
        return command;
    }
    return NULL;
}

static void carry_out_due(kj_run *run, const kji_place *place)
{
    int64_t last_seq = run->last_seq;
    kji_command *command;
    while ((command = take_due(run, place, last_seq))) {
        command->step = kji_run_step(run);
        command->epoch = kji_run_epoch(run);
        command->has_place = true;
        command->phase = *run->phase ? strdup(run->phase) : NULL;
        command->place = kji_place_name(place->kind);
        kj_error err = KJ_ERROR_INIT;
        int r = kji_verb_check_can(run, command->verb, &err);
        if (r >= 0)
            r = command->verb->carry_out(run, command, &err);
        if (r < 0)
            command->error = strdup(err.message);
        kji_run_finish(run, command, r < 0 ? KJI_FAILED : KJI_DONE);
    }
    kji_run_update_due(run);
}

static bool has_due(const kj_run *run, const kji_place *place)
{
    for (const kji_command *command = run->queue; command; command = command->next)
        if (kji_at_is_due(&command->at, place))
            return true;
    return false;
}

void kji_run_refresh(kj_run *run, bool all)
{
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_REFRESH, __ATOMIC_RELAXED);
    for (size_t k = 0; k < run->params.n; k++) {
        kji_param *param = run->params.item[k];
        if (!all && !param->stale)
            continue;
        param->stale = false;
        kj_value value;
        kj_error err = KJ_ERROR_INIT;
        kji_run_unlock(run);
        int r = kji_param_read(param, &value, &err);
        kji_run_lock(run);
        if (r >= 0)
            kji_param_store(param, &value, kji_run_step(run));
        else if (!param->warned)
            kji_run_warn(run, "run %s: %s", run->id, err.message);
        param->warned = r < 0;
    }
}

/* As poll(2). */
static int wait_to_be_woken(const kj_run *run, int timeout_ms)
{
    struct pollfd wake = {.fd = run->wake_fd, .events = POLLIN};
    eventfd_t count;
    int r = poll(&wake, 1, timeout_ms);
    if (r > 0)
        eventfd_read(run->wake_fd, &count);
    return r;
}

/* Waits, without the lock, until there may be something to do. False: a signal handler ran and the
 * program wants to know. */
static bool wait_in_pause(kj_run *run)
{
    bool interruptible = run->flags & KJ_RUN_INTERRUPTIBLE;
    int64_t left = kji_run_hold_left_ms(run);
    /* A handler may also have run just before the wait, which then knows nothing of it. */
    bool looks = interruptible && (left < 0 || left > LOOK_MS);
    int timeout_ms = looks ? LOOK_MS : left > INT32_MAX ? INT32_MAX : (int)left;
    bool is_threadless = run->flags & KJ_RUN_THREADLESS;
    run->is_waiting = !is_threadless;
    kji_run_unlock(run);
    int r = is_threadless ? kji_helper_wait(&run->helper, timeout_ms)
                          : wait_to_be_woken(run, timeout_ms);
    bool interrupted = interruptible && ((r == 0 && looks) || r < 0);
    kji_run_lock(run);
    run->is_waiting = false;
    return !interrupted;
}

static bool is_held(const kj_run *run)
{
    return run->paused && !kji_run_is_stopping(run);
}

static uint32_t pending(const kj_run *run)
{
    return __atomic_load_n(&run->cell.pending, __ATOMIC_RELAXED);
}

/* What is due, and the wait of a pause. Returns KJ_RUN_INTERRUPTED or 0. */
static int stay(kj_run *run, kji_place place)
{
    for (;;) {
        kji_run_moved(run);
        carry_out_due(run, &place);
        kji_run_look_at_hold(run);
        if (pending(run) & KJI_PENDING_REFRESH)
            kji_run_refresh(run, false);
        if (pending(run) & KJI_PENDING_WARNING) {
            kji_run_unlock(run);
            kji_run_log_warnings(run);
            kji_run_lock(run);
        }
        if (!is_held(run) || run->wake_fd < 0)
            return 0;
        if (has_due(run, &place) || pending(run) & (KJI_PENDING_REFRESH | KJI_PENDING_WARNING))
            continue;
        if (!wait_in_pause(run))
            return KJ_RUN_INTERRUPTED;
    }
}

/* Whether there is more to do than to look at the doors. */
static bool has_business(const kj_run *run, const kji_place *place)
{
    return pending(run) & ~(uint32_t)KJI_PENDING_DOORS || place->kind == KJI_PLACE_EPOCH_END ||
           (place->kind == KJI_PLACE_STEP_BEGIN &&
            place->n >= __atomic_load_n(&run->cell.due_step, __ATOMIC_RELAXED));
}

int kji_run_visit(kj_run *run, kji_place place)
{
    if (run->forked)
        return 0;
    if (pending(run) & KJI_PENDING_FIRST_STEP)
        kji_run_events_begin(run, kji_run_step(run));
    if (run->flags & KJ_RUN_THREADLESS) {
        kji_helper_look(&run->helper);
        if (!has_business(run, &place))
            return 0; /* a stop is business */
    }
    int bits = 0;
    kji_run_lock(run);
    if (!run->is_visited) { /* else a callback polls: the commands behind its own wait for it */
        run->is_visited = true;
        kji_schedule_file_take_in(run);
        bits = stay(run, place);
        run->is_visited = false;
    }
    kji_run_moved(run);
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_DUE, __ATOMIC_RELAXED);
    kji_run_unlock(run);
    if (run->flags & KJ_RUN_THREADLESS && run->helper.is_running)
        kji_helper_push(&run->helper); /* who sent something need not wait for the next look */
    return bits | kji_ending_bits(__atomic_load_n(&run->ending, __ATOMIC_RELAXED));
}
