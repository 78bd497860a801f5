/* SPDX-License-Identifier: Apache-2.0 */
#include "live-fixture.h"

#include "files.h"
#include "mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char live_top[64];
char *live_base;
size_t live_base_size;
kji_rows live_base_rows;

int live_set_up(void **state)
{
    (void)state;
    snprintf(live_top, sizeof live_top, "/tmp/kj-events-XXXXXX");
    return mkdtemp(live_top) ? 0 : -1;
}

int live_tear_down(void **state)
{
    (void)state;
    kji_test_remove_tree(live_top);
    return 0;
}

int live_load(void **state)
{
    (void)state;
    kji_rows_load(&live_base_rows, kji_test_data("events/damaged/torch/empty_record_middle.jsonl"));
    /* The undamaged file is the first half of this one. */
    int r = kji_read_file(AT_FDCWD,
                          kji_test_data("events/damaged/torch/concatenated/"
                                        "events.out.tfevents.1796045548.gpu12.15877.12"),
                          1 << 20, &live_base, &live_base_size, NULL);
    live_base_size /= 2;
    return r;
}

int live_drop(void **state)
{
    (void)state;
    free(live_base);
    kji_rows_done(&live_base_rows);
    return 0;
}

const char *live_path(const char *name)
{
    static char path[4][256];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", live_top, name);
    return at;
}

void live_put(const char *name, size_t from, size_t to, int flags)
{
    int fd = open(live_path(name), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, live_base + from, to - from, NULL), 0);
    close(fd);
}

void live_append(const char *name, size_t from, size_t to)
{
    live_put(name, from, to, O_APPEND);
}

kj_events *live_follow_as(const char *where, uint32_t flags, uint32_t poll_ms, uint32_t grace_ms)
{
    char spec[300];
    snprintf(spec, sizeof spec, "events:%s/%s", live_top, where);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    options.poll_ms = poll_ms;
    options.grace_ms = grace_ms;
    kj_events *events = NULL;
    assert_int_equal(kj_events_open(spec, &options, &events, NULL), 0);
    return events;
}

kj_events *live_follow(const char *where, uint32_t flags, uint32_t poll_ms)
{
    return live_follow_as(where, flags, poll_ms, 3600000);
}

kj_events *live_follow_by_inotify(const char *where)
{
    return live_follow(where, 0, 3600000);
}

void live_assert_all(const kji_rows *got, size_t n_times)
{
    assert_int_equal(got->n, n_times * live_base_rows.n);
    for (size_t k = 0; k < got->n; k++) {
        const kji_row *row = &live_base_rows.rows[k % live_base_rows.n];
        assert_true(got->rows[k].step == row->step);
        assert_true(got->rows[k].value == row->value);
    }
}
