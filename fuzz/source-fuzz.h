/* SPDX-License-Identifier: Apache-2.0 */
/* For targets whose bytes are the file of a metric source. */
#ifndef KJI_SOURCE_FUZZ_H
#define KJI_SOURCE_FUZZ_H

#include <kajitori/events.h>

#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int add_point(void *userdata, const kj_point *point)
{
    uint64_t *sum = userdata;
    uint64_t bits;
    double value = point->value == point->value ? point->value : 0;
    memcpy(&bits, &value, sizeof bits);
    check(point->tag[point->tag_size] == 0 && strlen(point->run) > 0);
    *sum = *sum * 31 + bits + (uint64_t)point->step * 7 + point->tag_size + point->record * 3;
    return point->step % 3 == 0; /* no more for now */
}

static void take_all(kj_events *events, uint64_t *sum)
{
    while (kj_events_step(events, 0, add_point, sum, NULL) > 0)
        continue;
}

/* A sum over all points of the file, which is there in two pieces one after the other. */
static uint64_t read_source(const char *name, const uint8_t *data, size_t size, size_t first)
{
    char spec[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, data, first) == (ssize_t)first);
    snprintf(spec, sizeof spec, "%s:/proc/self/fd/%d", name, fd);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = KJ_EVENTS_POLL;
    kj_events *events = NULL;
    check(kj_events_open(spec, &options, &events, NULL) == 0);
    uint64_t sum = 0;
    take_all(events, &sum);
    check(write(fd, data + first, size - first) == (ssize_t)(size - first));
    kj_events_finish(events);
    take_all(events, &sum);
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    check(stats.skipped_bytes <= size && stats.waiting_files == 0);
    kj_events_close(events);
    close(fd);
    return sum;
}

#endif
