/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are an event file; behind a first byte of 0xff they are payloads, each behind its
 * length in one byte, and what is left over is put behind them as it is. The place where its last
 * whole record ends is found again in the file that is cut there, whether the search begins at the
 * beginning or there; and a record that is put there makes a whole file.
 */
#include "event-tail.h"

#include "event-frame.h"

#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OPEN_END = 200 }; /* a length from here on begins what is left over */

static void append(int fd, const void *bytes, size_t size)
{
    check(write(fd, bytes, size) == (ssize_t)size);
}

static void append_record(int fd, const uint8_t *payload, size_t size)
{
    unsigned char head[KJI_FRAME_HEAD], tail[4];
    kji_frame_seal(payload, size, head, tail);
    append(fd, head, sizeof head);
    append(fd, payload, size);
    append(fd, tail, sizeof tail);
}

static void fill(int fd, const uint8_t *data, size_t size)
{
    const uint8_t *from = data, *stop = data + size;
    if (size > 0 && *from == 0xff)
        for (from++; from < stop && *from < OPEN_END && *from < stop - from; from += 1 + *from)
            append_record(fd, from + 1, *from);
    append(fd, from, (size_t)(stop - from));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    off_t end, again;
    check(fd >= 0);
    fill(fd, data, size);
    off_t whole = lseek(fd, 0, SEEK_CUR);
    check(kji_event_tail(fd, 0, whole, &end, NULL) == 0 && end <= whole);
    if (end >= 0) {
        check(kji_event_tail(fd, 0, end, &again, NULL) == 0 && again == end);
        check(kji_event_tail(fd, end, end, &again, NULL) == 0 && again == end);
        check(ftruncate(fd, end) == 0 && lseek(fd, end, SEEK_SET) == end);
        append_record(fd, data, size < 100 ? size : 100);
        whole = lseek(fd, 0, SEEK_CUR);
        check(kji_event_tail(fd, 0, whole, &end, NULL) == 0 && end == whole);
    }
    close(fd);
    return 0;
}
