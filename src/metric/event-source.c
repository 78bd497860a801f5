/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events:FOLDER[:TAG]. FOLDER is a tree of event files (event-dir.h), or one of them; each folder
 * that holds some is a run. A tag may hold colons ("accuracy:0"), a folder's name must have them
 * escaped.
 */
#include "clock.h"
#include "errors.h"
#include "event-dir.h"
#include "event-file-cursor.h"
#include "files.h"
#include "mem.h"
#include "source-kind.h"

#include <string.h>
#include <sys/stat.h>

enum {
    SLICE_MS = 4,      /* a look at everything lets new points pass after that time */
    SHARE = 300,       /* it takes at most this part of the time */
    EAGER_MS = 20,     /* between two looks at a file that grows where no event tells it */
    GROWING_MS = 2000, /* so long after its last change a file counts as growing */
    RETRY_MS = 1000    /* until a file that could not be read is tried again */
};

/* A look at all folders of one sort, and their files, from time to time. */
struct round {
    bool polled; /* those where no event tells */
    bool running;
    size_t next; /* folder */
    int64_t due_ms, began_ms;
    int64_t spent_ns;
    size_t n_looks;
};

struct events {
    kji_event_dir dir;
    kji_event_reader reader;
    const kj_events_options *options;
    kji_watch *watch;
    kji_tag_table *tags;
    bool finished; /* all has been looked at since the source was finished */
    struct round rounds[2];
    int64_t look_ns; /* what a look at one file costs, as measured */
};

static const char syntax[] = "events:FOLDER[:TAG]";

static int events_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    int r = kji_spec_split_tag(rest, "folder", syntax, "tag", ret_where, ret_tag, err);
    if (r == 0)
        kji_spec_trim_slashes(*ret_where);
    return r;
}

static int events_open(void *instance, const kji_source_context *context, kj_error *err)
{
    struct events *events = instance;
    const char *root = context->spec->where;
    struct stat st;
    if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return kji_fail(err, KJ_EARG, "%s is neither a folder nor a file", root);
    events->options = context->options;
    events->watch = context->watch;
    events->tags = context->tags;
    events->rounds[0] = (struct round){.polled = false};
    events->rounds[1] = (struct round){.polled = true};
    events->look_ns = 2000;
    if (!kji_event_reader_init(&events->reader))
        return kji_fail_memory(err);
    return kji_event_dir_init(&events->dir, root, context->watch, err);
}

static void events_close(void *instance)
{
    struct events *events = instance;
    kji_event_reader_done(&events->reader);
    kji_event_dir_done(&events->dir);
}

static int64_t period_of(const struct events *events, const struct round *round)
{
    return events->options->poll_ms ? events->options->poll_ms
           : round->polled          ? KJI_POLL_MS
                                    : KJI_POLL_WITH_INOTIFY_MS;
}

/* The shortest time between two looks at each of the files that grow. */
static int64_t eager_ms(const struct events *events)
{
    int64_t all_ns = (int64_t)events->dir.queue.n_timed * events->look_ns;
    return EAGER_MS + all_ns * SHARE / 1000000;
}

static void end_round(struct events *events, struct round *round)
{
    int64_t period = period_of(events, round), least = round->spent_ns * SHARE / 1000000;
    round->running = false;
    round->due_ms = round->began_ms + (period > least ? period : least);
    if (round->n_looks)
        events->look_ns = round->spent_ns / (int64_t)round->n_looks;
}

/* Begins a round when it is due, or goes on with it for a while. */
static void look_around(struct events *events, struct round *round, int64_t now)
{
    if (events->finished || (!round->running && now < round->due_ms))
        return;
    if (!round->running)
        *round = (struct round){.polled = round->polled, .running = true, .began_ms = now};
    int64_t begin = kji_monotonic_ns(), at = begin;
    while (round->next < events->dir.table.n_folders && at - begin < SLICE_MS * 1000000) {
        kji_event_folder *folder = events->dir.table.folders[round->next++];
        if (folder->polled != round->polled || !folder->present)
            continue;
        round->n_looks += 1 + folder->n_files;
        kji_event_dir_look(&events->dir, folder);
        at = kji_monotonic_ns();
    }
    round->spent_ns += at - begin;
    if (round->next >= events->dir.table.n_folders) /* some may have been forgotten */
        end_round(events, round);
}

/* The next look at a file that has just been looked at; INT64_MAX: at the next round. */
static int64_t next_look(const struct events *events, kji_event_file *file)
{
    int64_t now = events->reader.now_ms;
    int64_t due = kji_event_file_deadline(file, &events->reader);
    if (due <= now) /* it has passed though the file was looked at */
        due = INT64_MAX;
    if (file->told || file->state == KJ_DAMAGE_UNREADABLE)
        due = now + RETRY_MS + eager_ms(events);
    if (!file->folder->polled)
        return due;
    int64_t wait =
        now - file->changed_ms < GROWING_MS ? eager_ms(events) : (int64_t)file->poll_ms * 2;
    if (wait >= period_of(events, &events->rounds[1]))
        wait = 0;
    file->poll_ms = (uint32_t)wait;
    return wait && now + wait < due ? now + wait : due;
}

/* Reads all that may have changed. 0, 1 when the sink wants no more, KJ_EMEM. */
static int read_files(struct events *events)
{
    kji_event_queue *queue = &events->dir.queue;
    kji_event_file *file;
    kji_event_queue_wake(queue, events->reader.now_ms);
    while ((file = kji_event_queue_first(queue))) {
        kji_event_folder *folder = file->folder;
        if (!folder->known && !(folder->known = kji_tag_table_run(events->tags, folder->run)))
            return KJ_EMEM;
        file->run = folder->known;
        events->reader.reopen = folder->network;
        int r = file->present ? kji_event_file_read(file, &events->reader) : 0;
        if (r != 0)
            return r;
        kji_event_queue_remove_first(queue);
        kji_event_queue_set_due(queue, file, file->present ? next_look(events, file) : INT64_MAX);
    }
    return 0;
}

static int64_t next_wake(const struct events *events)
{
    int64_t due = kji_event_queue_due(&events->dir.queue);
    for (int k = 0; k < 2 && !events->finished; k++) {
        const struct round *round = &events->rounds[k];
        if (round->running)
            return 0;
        if (round->due_ms < due && (k == 0 || kji_event_dir_polls(&events->dir)))
            due = round->due_ms;
    }
    return due;
}

static int events_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct events *events = instance;
    int64_t now = kji_monotonic_ms();
    if (finished && !events->finished)
        kji_event_dir_touch(&events->dir);
    events->finished = finished;
    for (int k = 0; k < 2; k++)
        look_around(events, &events->rounds[k], now);
    int r = kji_event_dir_update(&events->dir, err);
    if (r < 0)
        return r;
    events->reader.sink = sink;
    events->reader.finished = finished;
    events->reader.check_all = events->options->flags & KJ_EVENTS_CHECK_ALL;
    events->reader.now_ms = now;
    events->reader.grace_ms = kji_source_grace_ms(events->options, events->dir.network);
    r = read_files(events);
    if (r < 0)
        return kji_fail_memory(err);
    kji_watch_arm_at(events->watch, r == 1 ? 0 : next_wake(events));
    return 0;
}

static void events_count(const void *instance, kj_events_stats *stats)
{
    const struct events *events = instance;
    for (size_t k = 0; k < events->dir.table.n_folders; k++) {
        const kji_event_folder *folder = events->dir.table.folders[k];
        stats->runs += folder->n_files > 0;
        for (size_t j = 0; j < folder->n_files; j++) {
            stats->files += folder->files[j]->present;
            stats->waiting_files +=
                folder->files[j]->present && folder->files[j]->state != KJ_DAMAGE_NONE;
        }
    }
}

static int events_list_files(void *instance, kj_file_fn fn, void *userdata)
{
    const struct events *events = instance;
    int64_t now = kji_monotonic_ms();
    for (size_t k = 0; k < events->dir.table.n_folders; k++) {
        const kji_event_folder *folder = events->dir.table.folders[k];
        for (size_t j = 0; j < folder->n_files; j++) {
            const kji_event_file *file = folder->files[j];
            const kj_file_info info = {.size = sizeof info,
                                       .state = file->told ? KJ_DAMAGE_UNREADABLE
                                                           : (uint32_t)file->state,
                                       .run = folder->run,
                                       .path = file->path,
                                       .file_size = file->size,
                                       .committed = file->mark.committed,
                                       .records = file->mark.records,
                                       .points = file->mark.points,
                                       .skipped_records = file->mark.skipped_records,
                                       .skipped_bytes = file->mark.skipped_bytes,
                                       .generation = file->mark.generation,
                                       .present = file->present,
                                       .quiet_ms = now - file->changed_ms};
            int r = fn(userdata, &info);
            if (r != 0)
                return r;
        }
    }
    return 0;
}

/* A file that has never been opened has no run of its own yet. */
static int list_file_damage(const kji_event_folder *folder, const kji_event_file *file,
                            kj_damage_fn fn, void *userdata)
{
    int r = kji_event_file_list_damage(file, fn, userdata);
    if (r != 0 || !file->present || !file->told)
        return r;
    uint64_t begin = file->mark.committed;
    const kj_damage damage = {.size = sizeof damage,
                              .kind = KJ_DAMAGE_UNREADABLE,
                              .run = folder->run,
                              .file = file->path,
                              .begin = begin,
                              .end = file->size > begin ? file->size : begin,
                              .record = file->mark.records,
                              .generation = file->mark.generation};
    return fn(userdata, &damage);
}

static int list_folder_damage(const kji_event_folder *folder, kj_damage_fn fn, void *userdata)
{
    int r = 0;
    if (folder->present && folder->told) {
        const kj_damage damage = {.size = sizeof damage,
                                  .kind = KJ_DAMAGE_UNREADABLE,
                                  .run = folder->run,
                                  .file = folder->path};
        r = fn(userdata, &damage);
    }
    for (size_t k = 0; r == 0 && k < folder->n_files; k++)
        r = list_file_damage(folder, folder->files[k], fn, userdata);
    return r;
}

static int events_list_damage(void *instance, kj_damage_fn fn, void *userdata)
{
    const struct events *events = instance;
    int r = 0;
    for (size_t k = 0; r == 0 && k < events->dir.table.n_folders; k++)
        r = list_folder_damage(events->dir.table.folders[k], fn, userdata);
    return r;
}

/* Files that nothing has been read of are left out: they are found again. */
static void events_save(const void *instance, kji_strbuf *to)
{
    const struct events *events = instance;
    kji_cursor_open(to);
    for (size_t k = 0; k < events->dir.table.n_folders; k++) {
        const kji_event_folder *folder = events->dir.table.folders[k];
        for (size_t j = 0; j < folder->n_files; j++)
            if (folder->files[j]->run)
                kji_event_file_save(folder->files[j], to);
    }
    kji_cursor_close(to);
}

static void restore_file(struct events *events, kji_cursor_items *items)
{
    uint64_t number = kji_cursor_take_uint(items, UINT32_MAX);
    KJI_CLEANUP(kji_freep) char *name = kji_cursor_take_name(items, NULL);
    kji_cursor_expect(items, number < events->tags->n_runs, "no such run");
    if (items->wrong)
        return;
    int r;
    kji_run *run = events->tags->runs[number];
    kji_event_file *file = kji_event_dir_restore(&events->dir, run->name, name, &r);
    kji_cursor_expect(items, r >= 0, kji_cursor_no_memory);
    kji_cursor_expect(items, file != NULL, "no event file can be there, or not in this order");
    if (items->wrong)
        return;
    file->run = file->folder->known = run;
    kji_event_file_restore(file, items);
    events->reader.n_ranges += file->n_ranges;
    kji_cursor_expect(items, events->reader.n_ranges <= KJI_MAX_ALL_RANGES, "too much damage");
}

static void events_restore(void *instance, kji_cursor_items *items)
{
    struct events *events = instance;
    while (kji_cursor_more(items)) {
        kji_cursor_items file = kji_cursor_take_array(items);
        restore_file(events, &file);
        items->wrong = file.wrong;
    }
    kji_cursor_expect(items, kji_folder_table_settle(&events->dir.table), kji_cursor_no_memory);
}

const kji_source_kind kji_source_events = {
    .size = sizeof(kji_source_kind),
    .name = "events",
    .syntax = syntax,
    .instance_size = sizeof(struct events),
    .split = events_split,
    .open = events_open,
    .close = events_close,
    .step = events_step,
    .count = events_count,
    .list_files = events_list_files,
    .list_damage = events_list_damage,
    .save = events_save,
    .restore = events_restore,
};
