/* SPDX-License-Identifier: Apache-2.0 */
#include "event-tail.h"

#include "crc32c.h"
#include "errors.h"
#include "event-frame.h"
#include "mem.h"

#include <errno.h>
#include <unistd.h>

/* The size of the record at `bytes`, with its frame, or 0 when there is no whole one. */
static size_t whole_record(const unsigned char *bytes, size_t size)
{
    size_t payload;
    if (size < KJI_FRAME_EXTRA || kji_frame_head(bytes, &payload) != KJI_HEAD_GOOD ||
        payload > size - KJI_FRAME_EXTRA)
        return 0;
    const unsigned char *tail = bytes + KJI_FRAME_HEAD + payload;
    uint32_t crc = kji_crc32c(bytes + KJI_FRAME_HEAD, payload);
    return kji_frame_crc_matches(crc, tail) ? KJI_FRAME_EXTRA + payload : 0;
}

static int read_at(int fd, unsigned char *bytes, size_t size, off_t offset, kj_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, bytes + done, size - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return kji_fail_errno(err, KJ_EIO, n < 0 ? errno : EIO, "read");
        done += (size_t)n;
    }
    return 0;
}

/* The end of the last whole record in the last `window` bytes; -1: none. */
static int look_in_window(int fd, off_t from, off_t size, size_t window, off_t *ret_end,
                          kj_error *err)
{
    off_t begin = size - from > (off_t)window ? size - (off_t)window : from;
    size_t n = (size_t)(size - begin), end = 0;
    bool found = begin == from;
    KJI_CLEANUP(kji_freep) unsigned char *bytes = malloc(n + 1);
    if (!bytes)
        return kji_fail_memory(err);
    int r = read_at(fd, bytes, n, begin, err);
    if (r < 0)
        return r;
    for (size_t at = 0; at < n;) {
        size_t record = whole_record(bytes + at, n - at);
        at += record ? record : 1;
        end = record ? at : end;
        found = found || record;
    }
    *ret_end = found ? begin + (off_t)end : -1;
    return 0;
}

int kji_event_tail(int fd, off_t from, off_t size, off_t *ret_end, kj_error *err)
{
    int r = look_in_window(fd, from, size, KJI_TAIL_WINDOW, ret_end, err);
    if (r >= 0 && *ret_end < 0)
        r = look_in_window(fd, from, size, KJI_TAIL_WIDE, ret_end, err);
    return r;
}
