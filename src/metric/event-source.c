/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events:FOLDER[:TAG]. FOLDER is a tree of event files (event-dir.h), or one of them; each folder
 * that holds some is a run. A tag may hold colons ("accuracy:0"), a folder's name must have them
 * escaped.
 */
#include "clock.h"
#include "errors.h"
#include "event-dir.h"
#include "files.h"
#include "mem.h"
#include "source-kind.h"

#include <string.h>
#include <sys/stat.h>

struct events {
    kji_event_dir dir;
    kji_event_reader reader;
    const kj_events_options *options;
    kji_watch *watch;
    bool network;      /* as far as is known yet */
    bool finished;     /* all has been looked at since the source was finished */
    int64_t next_poll; /* monotonic */
};

static int events_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *where = malloc(strlen(rest) + 1);
    if (!where)
        return kji_fail_memory(err);
    size_t size = 0;
    for (; *rest && *rest != ':'; rest++) {
        if (rest[0] == '\\' && (rest[1] == ':' || rest[1] == '\\'))
            rest++;
        where[size++] = *rest;
    }
    while (size > 1 && where[size - 1] == '/')
        size--;
    where[size] = 0;
    if (size == 0)
        return kji_fail(err, KJ_EARG, "no folder given; expected events:FOLDER[:TAG]");
    const char *tag = *rest ? rest + 1 : "*";
    if (!*tag)
        return kji_fail(err, KJ_EARG,
                        "empty tag; leave the last colon out, or write * for all tags");
    char *copy = NULL;
    if (strcmp(tag, "*") != 0 && !(copy = strdup(tag)))
        return kji_fail_memory(err);
    *ret_tag = copy;
    *ret_where = kji_take(&where);
    return 0;
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
    if (!kji_event_reader_init(&events->reader))
        return kji_fail_memory(err);
    return kji_event_dir_init(&events->dir, root, context->watch, context->tags, err);
}

static void events_close(void *instance)
{
    struct events *events = instance;
    kji_event_reader_done(&events->reader);
    kji_event_dir_done(&events->dir);
}

/* Reads all that may have changed. 0, 1 when the sink wants no more, KJ_EMEM. */
static int read_files(struct events *events, int64_t *ret_deadline)
{
    kji_event_reader *reader = &events->reader;
    for (size_t k = 0; k < events->dir.n_folders; k++) {
        const kji_event_folder *folder = events->dir.folders[k];
        for (size_t j = 0; j < folder->n_files; j++) {
            kji_event_file *file = folder->files[j];
            if (!file->present)
                continue;
            bool due = kji_event_file_deadline(file, reader) <= reader->now_ms;
            int r = file->dirty || due ? kji_event_file_read(file, reader) : 0;
            if (r != 0)
                return r;
            int64_t deadline = kji_event_file_deadline(file, reader);
            /* One that has passed though it was looked at waits for the next poll. */
            if (deadline > reader->now_ms && deadline < *ret_deadline)
                *ret_deadline = deadline;
        }
    }
    return 0;
}

static int events_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct events *events = instance;
    int64_t now = kji_monotonic_ms();
    if (now >= events->next_poll || (finished && !events->finished)) {
        kji_event_dir_touch(&events->dir);
        events->network = kji_is_network_path(events->dir.root);
        events->next_poll =
            now + kji_source_poll_ms(events->options, events->watch, events->network);
        events->finished = finished;
    }
    int r = kji_event_dir_update(&events->dir, err);
    if (r < 0)
        return r;
    events->reader.sink = sink;
    events->reader.finished = finished;
    events->reader.now_ms = now;
    events->reader.grace_ms = kji_source_grace_ms(events->options, events->network);
    int64_t wake = events->next_poll;
    r = read_files(events, &wake);
    if (r < 0)
        return kji_fail_memory(err);
    kji_watch_arm(events->watch, r == 1 ? 0 : wake - kji_monotonic_ms());
    return 0;
}

static void events_count(const void *instance, kj_events_stats *stats)
{
    const struct events *events = instance;
    for (size_t k = 0; k < events->dir.n_folders; k++) {
        const kji_event_folder *folder = events->dir.folders[k];
        for (size_t j = 0; j < folder->n_files; j++) {
            stats->files += folder->files[j]->present;
            stats->waiting_files +=
                folder->files[j]->present && folder->files[j]->state != KJI_FILE_CLEAN;
        }
    }
}

const kji_source_kind kji_source_events = {
    .size = sizeof(kji_source_kind),
    .name = "events",
    .syntax = "events:FOLDER[:TAG]",
    .instance_size = sizeof(struct events),
    .split = events_split,
    .open = events_open,
    .close = events_close,
    .step = events_step,
    .count = events_count,
};
