/* SPDX-License-Identifier: Apache-2.0 */
#include "event-window.h"

#include "crc32c.h"
#include "event-frame.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { CAPACITY = 256 << 10, BEHIND_GAP = 16 << 10, PIECE = 32 << 10 };

bool kji_window_init(kji_window *window)
{
    *window = (kji_window){.buffer = malloc(CAPACITY), .capacity = CAPACITY, .fd = -1};
    return window->buffer != NULL;
}

void kji_window_done(kji_window *window)
{
    free(window->buffer);
    *window = (kji_window){.fd = -1};
}

void kji_window_open(kji_window *window, int fd)
{
    window->fd = fd;
    window->offset = window->filled = 0;
    window->ahead = window->capacity;
}

bool kji_window_enlarge(kji_window *window, size_t size)
{
    unsigned char *grown = realloc(window->buffer, size);
    if (!grown)
        return false;
    window->buffer = grown;
    window->capacity = size;
    window->filled = 0;
    return true;
}

void kji_window_restore(kji_window *window)
{
    if (window->capacity != CAPACITY)
        kji_window_enlarge(window, CAPACITY);
}

/* Reads until `need` bytes are there, and up to `size` when they come at once. */
static ssize_t read_some(int fd, unsigned char *bytes, size_t need, size_t size, uint64_t offset)
{
    size_t done = 0;
    while (done < need) {
        ssize_t n = pread(fd, bytes + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t kji_read_at(int fd, void *bytes, size_t size, uint64_t offset)
{
    return read_some(fd, bytes, size, size, offset);
}

bool kji_window_move(kji_window *window, uint64_t offset, size_t need)
{
    bool gap = offset < window->offset || offset > window->offset + window->filled;
    size_t ahead = gap && window->filled ? BEHIND_GAP : window->ahead * 2;
    if (ahead < need)
        ahead = need;
    if (ahead > window->capacity)
        ahead = window->capacity;
    ssize_t n = read_some(window->fd, window->buffer, need, ahead, offset);
    window->offset = offset;
    window->filled = n < 0 ? 0 : (size_t)n;
    window->ahead = ahead;
    return n >= 0;
}

enum kj_damage_kind kji_check_payload(int fd, uint64_t offset, size_t size)
{
    unsigned char piece[PIECE];
    uint32_t crc = 0;
    while (size) {
        size_t want = size < sizeof piece ? size : sizeof piece;
        ssize_t n = kji_read_at(fd, piece, want, offset);
        if (n < 0)
            return KJ_DAMAGE_UNREADABLE;
        if ((size_t)n < want)
            return KJ_DAMAGE_PARTIAL;
        crc = kji_crc32c_extend(crc, piece, want);
        offset += want;
        size -= want;
    }
    ssize_t n = kji_read_at(fd, piece, 4, offset);
    if (n != 4)
        return n < 0 ? KJ_DAMAGE_UNREADABLE : KJ_DAMAGE_PARTIAL;
    return kji_frame_crc_matches(crc, piece) ? KJ_DAMAGE_NONE : KJ_DAMAGE_PAYLOAD;
}
