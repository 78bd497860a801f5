/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are one event. Tags lie within it, a second scan gives the same, and so does the short
 * way for the usual shape. A walk that sees little of it at a time and passes it over counts what
 * reading it gives, and no scalar and no start are in it.
 */
#include "event-deliver.h"
#include "event-jump.h"
#include "event-wire.h"

#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int scan(const kji_event *event, const uint8_t *data, size_t size, size_t *ret_n,
                kji_value *ret_last)
{
    kji_value_iter iter;
    int r;
    *ret_n = 0;
    kji_value_begin(&iter, event);
    while ((r = kji_value_next(&iter, ret_last)) == 1) {
        const uint8_t *tag = (const uint8_t *)ret_last->tag;
        check(!ret_last->tag_size ||
              (tag >= data && ret_last->tag_size <= (size_t)(data + size - tag)));
        ++*ret_n;
    }
    return r;
}

static void check_usual(const uint8_t *data, size_t size, const kji_event *event,
                        const kji_value *value)
{
    kji_event usual;
    kji_value other;
    if (!kji_event_read_usual(data, size, &usual, &other))
        return;
    check(event && value && usual.step == event->step && usual.has_summary && !usual.starts);
    check(memcmp(&usual.wall_time, &event->wall_time, sizeof usual.wall_time) == 0);
    check(memcmp(&other.number, &value->number, sizeof other.number) == 0);
    check(value->kind == KJ_EVENT_SCALAR && other.kind == KJ_EVENT_SCALAR);
    check(other.dtype == value->dtype && other.tag_size == value->tag_size);
    check(memcmp(other.tag, value->tag, value->tag_size) == 0);
    check(other.metadata == value->metadata && other.end == value->end);
}

/* Reads it into `stats`; whether it is well-formed. */
static bool deliver(kji_tag_table *tags, kji_run *run, const uint8_t *data, size_t size,
                    kj_events_stats *stats)
{
    char path[] = "file";
    kji_event_file file = {.path = path, .run = run};
    kji_sink sink = {.tags = tags, .stats = stats};
    bool good;
    check(kji_deliver_event(&file, &sink, data, size, &good) == 0);
    return good;
}

static void check_jump(const uint8_t *data, size_t size)
{
    unsigned char buffer[40];
    uint32_t kinds[KJ_EVENT_KINDS] = {0};
    kj_events_stats stats = {0}, again = {0};
    kji_window window = {.buffer = buffer, .capacity = sizeof buffer};
    kji_tag_table tags;
    check(kji_tag_table_init(&tags, NULL));
    kji_run *run = kji_tag_table_run(&tags, ".");
    check(run != NULL);
    deliver(&tags, run, data, size, &stats); /* so that it knows the plugins */
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    kji_window_open(&window, fd);
    if (kji_event_jump(&window, 0, size, &run->plugins, kinds) == KJI_JUMP_PASS) {
        kji_event event;
        check(deliver(&tags, run, data, size, &again));
        check(kji_event_parse(data, size, &event) && !event.starts && again.points == 0);
        for (size_t k = 0; k < KJ_EVENT_KINDS; k++)
            check(kinds[k] == again.kinds[k]);
    }
    close(fd);
    kji_tag_table_done(&tags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kji_event event;
    kji_value value, last;
    size_t first = 0, second = 0;
    bool good = kji_event_parse(data, size, &event);
    check_jump(data, size);
    if (!good || !event.has_summary) {
        check_usual(data, size, NULL, NULL);
        return 0;
    }
    int r = scan(&event, data, size, &first, &value);
    check(scan(&event, data, size, &second, &last) == r && first == second);
    check_usual(data, size, &event, r == 0 && first == 1 ? &value : NULL);
    return 0;
}
