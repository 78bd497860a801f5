/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls of the training side. The fast paths are their own few instructions; everything
 * else is in visit.c. Opening and closing are in run-open.c.
 */
#include "errors.h"
#include "mem.h"
#include "run-impl.h"
#include "utf8.h"
#include "verbs-builtin.h"

#include <stdio.h>
#include <string.h>

static bool is_pending(const kj_run *run)
{
    return __builtin_expect(__atomic_load_n(&run->cell.pending, __ATOMIC_RELAXED) != 0, 0);
}

int kj_run_poll(kj_run *run)
{
    if (!is_pending(run))
        return 0;
    return kji_run_visit(run, (kji_place){KJI_PLACE_POLL, 0});
}

int kj_run_begin_step(kj_run *run, int64_t step)
{
    __atomic_store_n(&run->cell.step, step, __ATOMIC_RELAXED);
    if (!is_pending(run) && step < __atomic_load_n(&run->cell.due_step, __ATOMIC_RELAXED))
        return 0;
    return kji_run_visit(run, (kji_place){KJI_PLACE_STEP_BEGIN, step});
}

int kj_run_begin_epoch(kj_run *run, int64_t epoch)
{
    __atomic_store_n(&run->cell.epoch, epoch, __ATOMIC_RELAXED);
    return kj_run_poll(run);
}

int kj_run_end_epoch(kj_run *run, int64_t epoch)
{
    if (run->forked)
        return 0;
    if (kji_run_epoch(run) < epoch) /* the program only says where epochs end */
        __atomic_store_n(&run->cell.epoch, epoch, __ATOMIC_RELAXED);
    kji_run_lock(run);
    kji_run_refresh(run, true);
    kji_run_unlock(run);
    return kji_run_visit(run, (kji_place){KJI_PLACE_EPOCH_END, epoch});
}

int kj_run_should_stop(const kj_run *run)
{
    return kj_run_ending(run) != KJ_ENDING_NONE;
}

const char *kj_run_stop_reason(const kj_run *run)
{
    const char *reason = NULL;
    if (kj_run_should_stop(run))
        reason = __atomic_load_n(&run->stop_reason, __ATOMIC_ACQUIRE);
    return reason ? reason : "";
}

void kj_run_declare(kj_run *run, uint32_t abilities)
{
    if (run->forked)
        return;
    kji_run_lock(run);
    run->abilities |= abilities;
    kji_run_unlock(run);
}

int kj_run_ending(const kj_run *run)
{
    return run->forked ? KJ_ENDING_NONE : __atomic_load_n(&run->ending, __ATOMIC_ACQUIRE);
}

int kj_run_exit_status(const kj_run *run)
{
    switch (kj_run_ending(run)) {
    case KJ_ENDING_LEAVE:
        return KJ_EXIT_LEFT;
    case KJ_ENDING_PRUNE:
        return KJ_EXIT_PRUNED;
    case KJ_ENDING_ABORT:
        return KJ_EXIT_ABORTED;
    }
    return 0;
}

int kj_run_stop_validate(const kj_run *run)
{
    return kj_run_should_stop(run) ? run->stop_validate : -1;
}

const char *kj_run_resumed_from(const kj_run *run)
{
    return run->resumed_from ? run->resumed_from : "";
}

const char *kj_run_id(const kj_run *run)
{
    return run->id;
}

const char *kj_run_dir(const kj_run *run)
{
    const char *mailbox = run->helper.mailbox[KJI_MAILBOX_SHARED].dir;
    if (run->forked)
        return "";
    if (run->place.dir && run->place.is_shown)
        return run->place.dir;
    return mailbox ? mailbox : "";
}

int64_t kj_run_rank(const kj_run *run)
{
    return run->ranks.rank;
}

int64_t kj_run_world_size(const kj_run *run)
{
    return run->ranks.world_size;
}

int kj_run_rank_alone(const kj_run *run)
{
    return !kji_ranks_are_several(&run->ranks);
}

kj_run_cell *kj_run_get_cell(kj_run *run)
{
    return &run->cell;
}

void kj_run_set_totals(kj_run *run, int64_t total_steps, int64_t total_epochs)
{
    if (run->forked)
        return;
    kji_run_lock(run);
    run->total_steps = total_steps > 0 ? total_steps : 0;
    run->total_epochs = total_epochs > 0 ? total_epochs : 0;
    kji_run_unlock(run);
}

void kj_run_set_phase(kj_run *run, const char *phase)
{
    if (run->forked)
        return;
    kji_run_lock(run);
    kji_run_moved(run);
    snprintf(run->phase, sizeof run->phase, "%s", phase ? phase : "");
    kji_run_unlock(run);
}

int kj_run_report(kj_run *run, const char *tag, int64_t step, double value, kj_error *err)
{
    size_t size = tag ? strnlen(tag, KJI_TAG_MAX + 1) : 0;
    if (size == 0 || size > KJI_TAG_MAX || !kji_utf8_valid(tag, size))
        return kji_fail(err, KJ_EARG, "a metric's tag has 1 to %d bytes of UTF-8", KJI_TAG_MAX);
    if (run->forked)
        return 0;
    double wall_time = 0;
    kji_run_lock(run);
    kji_run_moved(run);
    const kji_metric *metric;
    int r = kji_metrics_put(&run->metrics, tag, step, kji_run_epoch(run), value, &metric, err);
    if (r >= 0) {
        wall_time = metric->wall_time;
        kji_feed_event event = {.tag = metric->tag,
                                .step = step,
                                .epoch = metric->epoch,
                                .value = value,
                                .wall_time = metric->wall_time};
        kji_feed_put(&run->feed, KJI_FEED_METRIC, &event);
        if (run->feed.n_metric_readers)
            kji_helper_wake(&run->helper);
    }
    kji_run_unlock(run);
    if (r >= 0)
        kji_run_events_put(run, tag, step, wall_time, value);
    return r;
}

int kj_run_note(kj_run *run, const char *text, kj_error *err)
{
    size_t size = text ? strnlen(text, KJI_NOTE_MAX + 1) : 0;
    if (size == 0 || size > KJI_NOTE_MAX || !kji_utf8_valid(text, size))
        return kji_fail(err, KJ_EARG, "a note has 1 to %d bytes of UTF-8", KJI_NOTE_MAX);
    if (run->forked)
        return 0;
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "text", kji_json_new_text(text, KJI_NOTE_MAX));
    kji_run_lock(run);
    kji_run_event(run, "note", fields);
    kji_run_unlock(run);
    return 0;
}

int kj_run_add_param(kj_run *run, const kj_param *from, kj_error *err)
{
    if (run->forked)
        return 0;
    kji_param *param;
    kj_value value;
    int r = kji_param_new(from, &param, err);
    if (r < 0)
        return r;
    r = kji_param_read(param, &value, err);
    if (r < 0) {
        kji_param_free(param);
        return r;
    }
    kji_param_store(param, &value, kji_run_step(run));
    kji_run_lock(run);
    r = kji_params_add(&run->params, param, err);
    kji_run_unlock(run);
    if (r < 0)
        kji_param_free(param);
    return r;
}

int kj_run_add_verb(kj_run *run, const kj_verb *verb, kj_error *err)
{
    if (run->forked)
        return 0;
    kji_run_lock(run);
    int r = kji_own_verbs_add(&run->own_verbs, verb, err);
    kji_run_unlock(run);
    return r;
}

int kj_run_refuse_verb(kj_run *run, const char *verb, const char *reason, kj_error *err)
{
    int standard = kji_standard_find(verb ? verb : "");
    if (!standard)
        return kji_fail(err, KJ_EARG,
                        "verb %.80s cannot be refused; checkpoint, evaluate, extend, pause can",
                        verb ? verb : "NULL");
    if (run->forked)
        return 0;
    char *copy = reason ? strndup(reason, KJI_REASON_MAX) : NULL;
    if (reason && !copy)
        return kji_fail_memory(err);
    kji_run_lock(run);
    free(run->refusal[standard]);
    run->refusal[standard] = copy;
    kji_run_unlock(run);
    return 0;
}

int kj_run_remark(kj_run *run, const char *verb, const char *text, kj_error *err)
{
    size_t size = text ? strnlen(text, KJI_REASON_MAX + 1) : 1;
    if (!verb || !*verb || size == 0 || size > KJI_REASON_MAX ||
        (text && !kji_utf8_valid(text, size)))
        return kji_fail(err, KJ_EARG, "a remark is of a verb, and has 1 to %d bytes of UTF-8",
                        KJI_REASON_MAX);
    if (run->forked)
        return 0;
    kji_run_lock(run);
    if (!run->remarks)
        run->remarks = json_object_new_object();
    json_object_object_del(run->remarks, verb);
    if (text)
        json_object_object_add(run->remarks, verb, kji_json_new_text(text, KJI_REASON_MAX));
    kji_run_unlock(run);
    return 0;
}
