/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are an event file; behind a first byte of 0xff they are payloads, each behind its
 * length in one byte, and the checksums are made here, so that the fuzzer gets past them; behind
 * 0xfe the same, and the records are made so large that they are not read without need. Read at
 * once and finished, every byte is accounted for: committed, or an unfinished record at the end;
 * what is delivered while the file grows in two steps is a beginning of what is delivered when it
 * is read at once, as long as nothing is damaged; and with right checksums reading all payloads
 * gives nothing else.
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

/* Nothing is damaged, so it makes no difference whether large records are read. */
static void check_policies(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct reading some, all;
    check(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    begin(&some, fd);
    begin(&all, fd);
    all.reader.check_all = true;
    kji_event_file_read(some.file, &some.reader);
    kji_event_file_read(all.file, &all.reader);
    check(some.tally.n == all.tally.n && some.tally.sum == all.tally.sum);
    check(memcmp(&some.stats, &all.stats, sizeof some.stats) == 0);
    end(&some);
    end(&all);
    close(fd);
}

/* A record, with `filler` more bytes in an unknown field at its end. */
static uint8_t *put_record(uint8_t *to, const uint8_t *from, size_t n, size_t filler)
{
    uint8_t *payload = to + KJI_FRAME_HEAD, *end = mempcpy(payload, from, n);
    if (filler) {
        *end++ = 15 << 3 | 2;
        *end++ = (uint8_t)(filler | 0x80);
        *end++ = (uint8_t)(filler >> 7 | 0x80);
        *end++ = (uint8_t)(filler >> 14);
        memset(end, 0, filler);
        end += filler;
    }
    kji_frame_seal(payload, (size_t)(end - payload), to, end);
    return end + KJI_FRAME_EXTRA - KJI_FRAME_HEAD;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { FILLER = 40000, MAX_RECORDS = 16 };
    if (size == 0 || data[0] < 0xfe) {
        check_file(data, size);
        return 0;
    }
    size_t filler = data[0] == 0xfe ? FILLER : 0, room = filler ? MAX_RECORDS : size;
    uint8_t *file = malloc(size + room * (KJI_FRAME_EXTRA + 4 + filler)), *to = file;
    check(file != NULL);
    for (const uint8_t *from = data + 1, *stop = data + size; from < stop && room; room--) {
        size_t n = *from++;
        if (n > (size_t)(stop - from))
            n = (size_t)(stop - from);
        to = put_record(to, from, n, filler);
        from += n;
    }
    check_file(file, (size_t)(to - file));
    check_policies(file, (size_t)(to - file));
    free(file);
    return 0;
}
