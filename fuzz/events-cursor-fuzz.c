/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are a cursor, or, when they begin with a comma, its part behind the spec. One that is
 * accepted gives itself again when it is read a second time. Bytes that begin with [ are what a
 * cursor says of one file: a reader goes on there in a small event file, and not beyond it.
 */
#include "event-file-cursor.h"
#include "json.h"
#include "mem.h"

#include "fuzz.h"

#include <kajitori/events.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const char spec[] = "events:/nowhere";

/* The cursor of a reader that was opened with this one, for kj_free; NULL: it was refused. */
static char *pass_through(const char *cursor)
{
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = KJ_EVENTS_POLL | KJ_EVENTS_FINISHED;
    options.cursor = cursor;
    kj_events *events = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kj_events_open(spec, &options, &events, &err);
    check(r == 0 || r == KJ_EDATA);
    if (r < 0) {
        check(!strchr(err.message, '\n'));
        return NULL;
    }
    char *again;
    check(kj_events_get_cursor(events, &again, NULL, NULL) == 0);
    check(kj_events_step(events, 0, NULL, NULL, NULL) == 0);
    kj_events_close(events);
    return again;
}

static void check_cursor(const char *cursor)
{
    char *first = pass_through(cursor);
    if (!first)
        return;
    char *second = pass_through(first);
    check(second && strcmp(first, second) == 0);
    kj_free(first);
    kj_free(second);
}

/* Three records of an empty event each, and one that is damaged. */
static int make_file(void)
{
    unsigned char bytes[4 * KJI_FRAME_EXTRA];
    for (size_t k = 0; k < 4; k++)
        kji_frame_seal("", 0, bytes + k * KJI_FRAME_EXTRA,
                       bytes + k * KJI_FRAME_EXTRA + KJI_FRAME_HEAD);
    bytes[3 * KJI_FRAME_EXTRA + 9] ^= 1;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
    return fd;
}

static void read_on(struct json_object *json)
{
    static int fd = -1;
    char path[64];
    fd = fd < 0 ? make_file() : fd;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    kji_tag_table tags;
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kji_sink sink = {.tags = &tags, .stats = &stats};
    kji_event_reader reader = {.sink = &sink, .finished = true};
    check(kji_tag_table_init(&tags, NULL) && kji_event_reader_init(&reader));
    kji_event_file *file = kji_event_file_new(strdup(path), kji_tag_table_run(&tags, "."));
    kji_cursor_items items = kji_cursor_items_of(json);
    kji_event_file_restore(file, &items);
    if (!items.wrong) {
        file->present = true;
        check(kji_event_file_read(file, &reader) == 0);
        check(file->mark.committed <= 4 * KJI_FRAME_EXTRA);
    }
    kji_event_file_free(file);
    kji_event_reader_done(&reader);
    kji_tag_table_done(&tags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_object *json = NULL;
    char *text = NULL;
    if (size && data[0] == '[' && kji_json_parse((const char *)data, size, &json, NULL) == 0)
        read_on(json);
    else if (size && data[0] == ',')
        text = kji_format("{\"kajitori_cursor\":1,\"spec\":\"%s\",\"run\":\"\"%.*s", spec,
                          (int)size, (const char *)data);
    else
        text = strndup((const char *)data, size);
    if (text)
        check_cursor(text);
    json_object_put(json);
    free(text);
    return 0;
}
