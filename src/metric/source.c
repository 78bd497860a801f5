/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls: a source is an instance of one kind (source-kind.h), with the watch, the tags
 * and the figures that all kinds share.
 */
#include "clock.h"
#include "errors.h"
#include "events-impl.h"
#include "mem.h"

#include <limits.h>
#include <string.h>

enum { KNOWN_FLAGS = KJ_EVENTS_FINISHED | KJ_EVENTS_POLL | KJ_EVENTS_CHECK_ALL | KJ_EVENTS_KEEP };
enum { GRACE_MS = 10000, GRACE_NETWORK_MS = 120000 };

uint32_t kji_source_poll_ms(const kj_events_options *options, const kji_watch *watch, bool network)
{
    if (options->poll_ms)
        return options->poll_ms;
    return network || kji_watch_polls(watch) ? KJI_POLL_MS : KJI_POLL_WITH_INOTIFY_MS;
}

uint32_t kji_source_grace_ms(const kj_events_options *options, bool network)
{
    if (options->grace_ms)
        return options->grace_ms;
    return network ? GRACE_NETWORK_MS : GRACE_MS;
}

void kj_events_close(kj_events *events)
{
    if (!events)
        return;
    if (events->instance)
        events->spec.kind->close(events->instance);
    free(events->instance);
    kji_tag_table_done(&events->tags);
    kji_columns_pool_done(&events->pool);
    kji_watch_done(&events->watch);
    kji_spec_done(&events->spec);
    free(events->text_path);
    free(events->run);
    free(events->text);
    free(events);
}

static void closep(kj_events **events)
{
    kj_events_close(*events);
}

static int take_options(kj_events *events, const kj_events_options *options, kj_error *err)
{
    events->options = (kj_events_options)KJ_EVENTS_OPTIONS_INIT;
    if (!options)
        return 0;
    if (options->size > sizeof *options || options->size < sizeof options->size)
        return kji_fail(err, KJ_EARG, "kj_events_options.size is %u; expected at most %zu",
                        options->size, sizeof *options);
    memcpy(&events->options, options, options->size);
    events->options.size = sizeof events->options;
    if (events->options.flags & ~(uint32_t)KNOWN_FLAGS)
        return kji_fail(err, KJ_EARG, "kj_events_options.flags is 0x%x; only 0x%x are known",
                        events->options.flags, (unsigned)KNOWN_FLAGS);
    events->finished = events->options.flags & KJ_EVENTS_FINISHED;
    if (events->options.text_path) {
        events->text_path = strdup(events->options.text_path);
        events->options.text_path = events->text_path;
        if (!events->text_path)
            return kji_fail_memory(err);
    }
    if (events->options.run) {
        events->run = strdup(events->options.run);
        events->options.run = events->run;
        if (!events->run)
            return kji_fail_memory(err);
    }
    return 0;
}

int kj_events_open(const char *spec, const kj_events_options *options, kj_events **ret_events,
                   kj_error *err)
{
    KJI_CLEANUP(closep) kj_events *events = calloc(1, sizeof *events);
    if (!events)
        return kji_fail_memory(err);
    events->watch = (kji_watch){.epoll_fd = -1, .timer_fd = -1, .inotify_fd = -1};
    int r = take_options(events, options, err);
    if (r < 0)
        return r;
    r = kji_spec_parse(spec, &events->spec, err);
    if (r < 0)
        return r;
    events->text = strdup(spec);
    if (!events->text || !kji_tag_table_init(&events->tags, events->spec.tag))
        return kji_fail_memory(err);
    events->tags.wanted_run = events->run;
    r = kji_watch_init(&events->watch, events->options.flags & KJ_EVENTS_POLL, err);
    if (r < 0)
        return r;
    events->instance = calloc(1, events->spec.kind->instance_size);
    if (!events->instance)
        return kji_fail_memory(err);
    const kji_source_context context = {&events->spec, &events->options, &events->watch,
                                        &events->tags, &events->stats};
    r = events->spec.kind->open(events->instance, &context, err);
    if (r < 0)
        return r;
    if (events->options.cursor) {
        r = kji_events_restore(events, events->options.cursor, err);
        if (r < 0)
            return r;
        events->options.cursor = NULL; /* the caller's */
    }
    kji_watch_arm(&events->watch, 0);
    *ret_events = kji_take(&events);
    return 0;
}

int kj_events_check(const char *spec, kj_error *err)
{
    kji_spec parsed;
    int r = kji_spec_parse(spec, &parsed, err);
    if (r == 0)
        kji_spec_done(&parsed);
    return r;
}

int kj_events_get_fd(const kj_events *events)
{
    return events->watch.epoll_fd;
}

int kj_events_is_finished(const kj_events *events)
{
    return events->finished && !events->waits;
}

int kji_events_step_into(kj_events *events, int timeout_ms, kji_sink *sink, kj_error *err)
{
    int64_t deadline = kji_monotonic_ms() + timeout_ms;
    sink->tags = &events->tags;
    sink->stats = &events->stats;
    sink->keep = events->options.flags & KJ_EVENTS_KEEP;
    for (;;) {
        int r = events->spec.kind->step(events->instance, sink, events->finished, err);
        if (r < 0)
            return r;
        events->finished = events->finished || sink->ended;
        events->waits = sink->waits;
        if (sink->delivered || kj_events_is_finished(events) || timeout_ms == 0)
            return sink->delivered < INT_MAX ? (int)sink->delivered : INT_MAX;
        int64_t left = deadline - kji_monotonic_ms();
        if (timeout_ms > 0 && left <= 0)
            return 0;
        if (!kji_watch_wait(&events->watch, timeout_ms < 0 ? -1 : (int)left))
            return 0;
    }
}

int kj_events_step(kj_events *events, int timeout_ms, kj_point_fn fn, void *userdata, kj_error *err)
{
    kji_sink sink = {.fn = fn, .userdata = userdata};
    return kji_events_step_into(events, timeout_ms, &sink, err);
}

void kj_events_finish(kj_events *events)
{
    events->finished = true;
    kji_watch_arm(&events->watch, 0);
}

int kj_events_list_tags(kj_events *events, kj_tag_fn fn, void *userdata, kj_error *err)
{
    int r = kji_tag_table_list(&events->tags, fn, userdata);
    return r == KJ_EMEM ? kji_fail_memory(err) : r;
}

int kj_events_list_files(kj_events *events, kj_file_fn fn, void *userdata)
{
    return events->spec.kind->list_files
               ? events->spec.kind->list_files(events->instance, fn, userdata)
               : 0;
}

void kj_events_get_stats(const kj_events *events, kj_events_stats *ret_stats)
{
    kj_events_stats stats = events->stats;
    events->spec.kind->count(events->instance, &stats);
    kji_give_struct(ret_stats, &stats, sizeof stats);
}
