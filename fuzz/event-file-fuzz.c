/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are an event file; behind a first byte of 0xff they are payloads, each behind its
 * length in one byte, and the checksums are made here, so that the fuzzer gets past them. Read at
 * once and finished, every byte is accounted for: committed, or an unfinished record at the end;
 * and what is delivered while the file grows in two steps is a beginning of what is delivered when
 * it is read at once, as long as nothing is damaged.
 */
#include "event-file.h"

#include "mem.h"

#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct tally {
    uint64_t n, sum;
};

static int count(void *userdata, const kj_point *point)
{
    struct tally *tally = userdata;
    uint64_t bits;
    memcpy(&bits, &point->value, sizeof bits);
    tally->n++;
    tally->sum =
        tally->sum * 31 + bits + (uint64_t)point->step + kji_hash(point->tag, point->tag_size);
    return 0;
}

struct reading {
    kji_tag_table tags;
    kj_events_stats stats;
    kji_sink sink;
    kji_event_reader reader;
    kji_event_file *file;
    struct tally tally;
};

static void begin(struct reading *reading, int fd)
{
    *reading = (struct reading){.reader = {.grace_ms = 1000}};
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!kji_tag_table_init(&reading->tags, NULL) || !kji_event_reader_init(&reading->reader))
        abort();
    kji_run *run = kji_tag_table_run(&reading->tags, ".");
    reading->file = kji_event_file_new(strdup(path), run);
    reading->file->present = true;
    reading->sink = (kji_sink){
        .tags = &reading->tags, .stats = &reading->stats, .fn = count, .userdata = &reading->tally};
    reading->reader.sink = &reading->sink;
}

static void end(struct reading *reading)
{
    kji_event_file_free(reading->file);
    kji_event_reader_done(&reading->reader);
    kji_tag_table_done(&reading->tags);
}

static void check_file(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct reading whole, grown;
    if (fd < 0 || write(fd, data, size / 2) != (ssize_t)(size / 2))
        abort();
    begin(&grown, fd);
    kji_event_file_read(grown.file, &grown.reader);
    if (write(fd, data + size / 2, size - size / 2) != (ssize_t)(size - size / 2))
        abort();
    kji_event_file_read(grown.file, &grown.reader);
    begin(&whole, fd);
    kji_event_file_read(whole.file, &whole.reader);
    if (grown.tally.n != whole.tally.n || grown.tally.sum != whole.tally.sum)
        abort();
    whole.reader.finished = true;
    kji_event_file_read(whole.file, &whole.reader);
    if (whole.stats.bytes != whole.file->mark.committed || whole.file->mark.committed > size)
        abort();
    if (whole.file->mark.committed != size && whole.file->state != KJ_DAMAGE_PARTIAL)
        abort();
    end(&whole);
    end(&grown);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != 0xff) {
        check_file(data, size);
        return 0;
    }
    uint8_t *file = malloc(size * (KJI_FRAME_EXTRA + 1)), *to = file;
    if (!file)
        abort();
    for (const uint8_t *from = data + 1, *stop = data + size; from < stop;) {
        size_t n = *from++;
        if (n > (size_t)(stop - from))
            n = (size_t)(stop - from);
        kji_frame_seal(from, n, to, to + KJI_FRAME_HEAD + n);
        memcpy(to + KJI_FRAME_HEAD, from, n);
        to += KJI_FRAME_EXTRA + n;
        from += n;
    }
    check_file(file, (size_t)(to - file));
    free(file);
    return 0;
}
