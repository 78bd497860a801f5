/* SPDX-License-Identifier: Apache-2.0 */
#include "file-reading.h"

#include "mem.h"

#include "kji-test.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int keep(void *userdata, const kj_point *point)
{
    kji_reading *reading = userdata;
    assert_true(kji_reserve(&reading->points, &reading->capacity, reading->n_points + 1,
                            sizeof *reading->points));
    kji_read_point *read = &reading->points[reading->n_points++];
    *read = (kji_read_point){.record = point->record,
                             .tag_hash = kji_hash(point->tag, point->tag_size),
                             .step = point->step,
                             .wall_time = point->wall_time,
                             .flags = point->flags,
                             .generation = point->generation,
                             .dtype = point->dtype};
    memcpy(&read->value_bits, &point->value, sizeof read->value_bits);
    return 0;
}

static void begin_reader(kji_reading *reading)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", reading->fd);
    assert_true(kji_tag_table_init(&reading->tags, NULL));
    kji_run *run = kji_tag_table_run(&reading->tags, ".");
    reading->file = kji_event_file_new(strdup(path), run);
    assert_non_null(reading->file);
    reading->file->present = true;
    reading->sink = (kji_sink){
        .tags = &reading->tags, .stats = &reading->stats, .fn = keep, .userdata = reading};
}

static void end_reader(kji_reading *reading)
{
    kji_event_file_free(reading->file);
    kji_tag_table_done(&reading->tags);
}

void kji_reading_begin(kji_reading *reading)
{
    *reading = (kji_reading){.fd = memfd_create("events", MFD_CLOEXEC)};
    assert_true(reading->fd >= 0);
    assert_true(kji_event_reader_init(&reading->reader));
    reading->reader.grace_ms = 1000;
    reading->reader.sink = &reading->sink;
    begin_reader(reading);
}

void kji_reading_end(kji_reading *reading)
{
    end_reader(reading);
    kji_event_reader_done(&reading->reader);
    free(reading->points);
    close(reading->fd);
}

void kji_reading_restart(kji_reading *reading)
{
    end_reader(reading);
    reading->stats = (kj_events_stats){0};
    reading->reader.n_ranges = 0;
    reading->n_points = 0;
    begin_reader(reading);
}

void kji_reading_write(kji_reading *reading, const void *bytes, size_t size)
{
    assert_int_equal(pwrite(reading->fd, bytes, size, 0), size);
    assert_int_equal(ftruncate(reading->fd, (off_t)size), 0);
}

void kji_reading_look(kji_reading *reading)
{
    assert_int_equal(kji_event_file_read(reading->file, &reading->reader), 0);
}

void kji_reading_assert_same(const kji_reading *got, const kji_reading *expected)
{
    assert_int_equal(got->n_points, expected->n_points);
    for (size_t k = 0; k < got->n_points; k++) {
        const kji_read_point *a = &got->points[k], *b = &expected->points[k];
        assert_int_equal(a->record, b->record);
        assert_int_equal(a->value_bits, b->value_bits);
        assert_int_equal(a->tag_hash, b->tag_hash);
        assert_int_equal(a->step, b->step);
        assert_int_equal(a->flags, b->flags);
        assert_int_equal(a->dtype, b->dtype);
        assert_memory_equal(&a->wall_time, &b->wall_time, sizeof a->wall_time);
    }
}
