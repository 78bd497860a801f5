/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of this layer: one event file in memory and one reader of it, without a folder. */
#ifndef KJI_FILE_READING_H
#define KJI_FILE_READING_H

#include "event-file.h"
#include "strbuf.h"

/* A point, so that it can be compared; runs and tags by their checksums. */
typedef struct kji_read_point {
    uint64_t record, value_bits, tag_hash;
    int64_t step;
    double wall_time;
    uint32_t flags, generation, dtype;
} kji_read_point;

typedef struct kji_reading {
    int fd;
    kji_tag_table tags;
    kj_events_stats stats;
    kji_sink sink;
    kji_event_reader reader;
    kji_event_file *file;
    kji_read_point *points;
    size_t n_points, capacity;
} kji_reading;

/* An empty file; the reader waits for what is damaged. */
void kji_reading_begin(kji_reading *reading);
void kji_reading_end(kji_reading *reading);

/* Another reader of the same bytes: nothing has been read, no tag is known. */
void kji_reading_restart(kji_reading *reading);

/* Makes the file `size` bytes long, with these contents, in place. */
void kji_reading_write(kji_reading *reading, const void *bytes, size_t size);

/* One look. */
void kji_reading_look(kji_reading *reading);

/* Two readings gave the same points; the generation aside. */
void kji_reading_assert_same(const kji_reading *got, const kji_reading *expected);

#endif
