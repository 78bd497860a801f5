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

void kj_events_close(kj_events *source)
{
    if (!source)
        return;
    if (source->instance)
        source->spec.kind->close(source->instance);
    free(source->instance);
    kji_tag_table_done(&source->tags);
    kji_columns_pool_done(&source->pool);
    kji_watch_done(&source->watch);
    kji_spec_done(&source->spec);
    free(source->text_path);
    free(source->run);
    free(source->text);
    free(source);
}

static void closep(kj_events **source)
{
    kj_events_close(*source);
}

static int take_options(kj_events *source, const kj_events_options *options, kj_error *err)
{
    source->options = (kj_events_options)KJ_EVENTS_OPTIONS_INIT;
    if (!options)
        return 0;
    if (options->size > sizeof *options || options->size < sizeof options->size)
        return kji_fail(err, KJ_EARG, "kj_events_options.size is %u; expected at most %zu",
                        options->size, sizeof *options);
    memcpy(&source->options, options, options->size);
    source->options.size = sizeof source->options;
    if (source->options.flags & ~(uint32_t)KNOWN_FLAGS)
        return kji_fail(err, KJ_EARG, "kj_events_options.flags is 0x%x; only 0x%x are known",
                        source->options.flags, (unsigned)KNOWN_FLAGS);
    source->finished = source->options.flags & KJ_EVENTS_FINISHED;
    if (source->options.text_path) {
        source->text_path = strdup(source->options.text_path);
        source->options.text_path = source->text_path;
        if (!source->text_path)
            return kji_fail_memory(err);
    }
    if (source->options.run) {
        source->run = strdup(source->options.run);
        source->options.run = source->run;
        if (!source->run)
            return kji_fail_memory(err);
    }
    return 0;
}

int kj_events_open(const char *spec, const kj_events_options *options, kj_events **ret_source,
                   kj_error *err)
{
    KJI_CLEANUP(closep) kj_events *source = calloc(1, sizeof *source);
    if (!source)
        return kji_fail_memory(err);
    source->watch = (kji_watch){.epoll_fd = -1, .timer_fd = -1, .inotify_fd = -1};
    int r = take_options(source, options, err);
    if (r < 0)
        return r;
    r = kji_spec_parse(spec, &source->spec, err);
    if (r < 0)
        return r;
    source->text = strdup(spec);
    if (!source->text || !kji_tag_table_init(&source->tags, source->spec.tag))
        return kji_fail_memory(err);
    source->tags.wanted_run = source->run;
    r = kji_watch_init(&source->watch, source->options.flags & KJ_EVENTS_POLL, err);
    if (r < 0)
        return r;
    source->instance = calloc(1, source->spec.kind->instance_size);
    if (!source->instance)
        return kji_fail_memory(err);
    const kji_source_context context = {&source->spec, &source->options, &source->watch,
                                        &source->tags, &source->stats};
    r = source->spec.kind->open(source->instance, &context, err);
    if (r < 0)
        return r;
    if (source->options.cursor) {
        r = kji_events_restore(source, source->options.cursor, err);
        if (r < 0)
            return r;
        source->options.cursor = NULL; /* the caller's */
    }
    kji_watch_arm(&source->watch, 0);
    *ret_source = kji_take(&source);
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

int kj_events_get_fd(const kj_events *source)
{
    return source->watch.epoll_fd;
}

int kj_events_is_finished(const kj_events *source)
{
    return source->finished && !source->waits;
}

int kji_events_step_into(kj_events *source, int timeout_ms, kji_sink *sink, kj_error *err)
{
    int64_t deadline = kji_monotonic_ms() + timeout_ms;
    sink->tags = &source->tags;
    sink->stats = &source->stats;
    sink->keep = source->options.flags & KJ_EVENTS_KEEP;
    for (;;) {
        int r = source->spec.kind->step(source->instance, sink, source->finished, err);
        if (r < 0)
            return r;
        source->finished = source->finished || sink->ended;
        source->waits = sink->waits;
        if (sink->delivered || kj_events_is_finished(source) || timeout_ms == 0)
            return sink->delivered < INT_MAX ? (int)sink->delivered : INT_MAX;
        int64_t left = deadline - kji_monotonic_ms();
        if (timeout_ms > 0 && left <= 0)
            return 0;
        if (!kji_watch_wait(&source->watch, timeout_ms < 0 ? -1 : (int)left))
            return 0;
    }
}

int kj_events_step(kj_events *source, int timeout_ms, kj_point_fn fn, void *userdata, kj_error *err)
{
    kji_sink sink = {.fn = fn, .userdata = userdata};
    return kji_events_step_into(source, timeout_ms, &sink, err);
}

void kj_events_finish(kj_events *source)
{
    source->finished = true;
    kji_watch_arm(&source->watch, 0);
}

int kj_events_list_tags(kj_events *source, kj_tag_fn fn, void *userdata, kj_error *err)
{
    int r = kji_tag_table_list(&source->tags, fn, userdata);
    return r == KJ_EMEM ? kji_fail_memory(err) : r;
}

int kj_events_list_files(kj_events *source, kj_file_fn fn, void *userdata)
{
    return source->spec.kind->list_files
               ? source->spec.kind->list_files(source->instance, fn, userdata)
               : 0;
}

void kj_events_get_stats(const kj_events *source, kj_events_stats *ret_stats)
{
    kj_events_stats stats = source->stats;
    source->spec.kind->count(source->instance, &stats);
    kji_give_struct(ret_stats, &stats, sizeof stats);
}
