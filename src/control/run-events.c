/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that goes on from a checkpoint does again what an earlier process did after that
 * checkpoint. The first step that begins tells from where on; KJI_PENDING_FIRST_STEP makes the
 * first safe point come here. Where something is reported before, it is not known any more which
 * points are old, and they stay.
 */
#include "run-events.h"

#include "event-writer-impl.h"
#include "run-impl.h"

static void end_wait(kj_run *run)
{
    run->events.waits_for_step = false;
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_FIRST_STEP, __ATOMIC_RELAXED);
}

int kji_run_events_open(kj_run *run, const char *dir, kj_error *err)
{
    if (!dir || !*dir)
        dir = getenv("KAJITORI_EVENTS_DIR");
    if (!dir || !*dir)
        return 0;
    int r = kj_event_writer_open(dir, NULL, &run->events.writer, err);
    if (r < 0 || !*kj_run_resumed_from(run))
        return r;
    run->events.waits_for_step = true;
    kji_run_pend(run, KJI_PENDING_FIRST_STEP);
    return 0;
}

static void warn(kj_run *run, const kj_error *why)
{
    if (run->events.has_warned)
        return;
    run->events.has_warned = true;
    kji_run_lock(run);
    kji_run_warn(run, "kajitori: %s; what is reported may be missing there", why->message);
    kji_run_unlock(run);
}

void kji_run_events_begin(kj_run *run, int64_t step)
{
    kj_error why = KJ_ERROR_INIT;
    if (step < 0)
        return;
    pthread_mutex_lock(&run->events.lock);
    if (run->events.waits_for_step) {
        end_wait(run);
        if (kji_event_writer_start(run->events.writer, step, &why) < 0)
            warn(run, &why);
    }
    pthread_mutex_unlock(&run->events.lock);
}

void kji_run_events_put(kj_run *run, const char *tag, int64_t step, double wall_time, double value)
{
    kj_error why = KJ_ERROR_INIT;
    if (!run->events.writer)
        return;
    pthread_mutex_lock(&run->events.lock);
    if (run->events.waits_for_step)
        end_wait(run);
    if (kj_event_writer_add_scalar(run->events.writer, tag, step, wall_time, value, &why) < 0)
        warn(run, &why);
    pthread_mutex_unlock(&run->events.lock);
}

void kji_run_events_close(kj_run *run)
{
    kj_error why = KJ_ERROR_INIT;
    if (kj_event_writer_close(run->events.writer, &why) < 0)
        warn(run, &why);
    run->events.writer = NULL;
}
