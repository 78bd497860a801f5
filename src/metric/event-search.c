/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record can begin at any byte. Of most places the upper half of the length says that none does.
 * Zeros are passed over in words, and where the file system has no blocks at all, unread: a file
 * that was extended in vain can claim terabytes of them.
 */
#include "event-search.h"

#include "event-frame.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    VAIN_FROM = 1 << 10, /* payloads that are larger are checked within the budget */
    ZEROS_FROM = 4096    /* of so many it is asked whether they are a hole in the file */
};

static uint64_t load64(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

/* Index of the first thing that may be the head of a record; none: of the bytes that are too few to
 * be one. */
static size_t next_head(const unsigned char *bytes, size_t n, size_t *ret_size)
{
    size_t k = 0;
    for (; k + KJI_FRAME_HEAD <= n; k++) {
        if (load64(bytes + k) > KJI_FRAME_LIMIT)
            continue;
        enum kji_head head = kji_frame_head(bytes + k, ret_size);
        if (head == KJI_HEAD_GOOD)
            return k;
        if (head == KJI_HEAD_HOLE)
            while (k + KJI_FRAME_HEAD + 8 <= n && load64(bytes + k + KJI_FRAME_HEAD) == 0)
                k += 8;
    }
    return k;
}

static enum kj_damage_kind check(int fd, uint64_t payload, size_t size, uint64_t file_size,
                                 uint64_t *budget)
{
    if (payload > file_size || file_size - payload < size + 4)
        return KJ_DAMAGE_PARTIAL;
    if (size > VAIN_FROM && size > *budget)
        return KJ_DAMAGE_PAYLOAD;
    enum kj_damage_kind state = kji_check_payload(fd, payload, size);
    if (state != KJ_DAMAGE_NONE && size > VAIN_FROM)
        *budget -= size;
    return state;
}

static bool are_zeros(const unsigned char *bytes, size_t n)
{
    return n >= ZEROS_FROM && bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* Where a record may begin that is the first one behind zeros which begin before `offset`. */
static uint64_t behind_hole(int fd, uint64_t offset, uint64_t file_size)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
    uint64_t end = data >= 0 ? (uint64_t)data : errno == ENXIO ? file_size : offset;
    return end > offset + KJI_FRAME_HEAD ? end - KJI_FRAME_HEAD : offset;
}

/* Looks at what the window holds. KJI_SEARCH_LATER: go on behind it, at `at`. */
static enum kji_search_end search_held(kji_event_search *search, kji_window *window,
                                       uint64_t file_size, uint64_t *budget)
{
    size_t held = kji_window_held(window, search->at), size;
    const unsigned char *bytes = kji_window_at(window, search->at);
    size_t k = next_head(bytes, held, &size);
    search->at += k;
    if (k + KJI_FRAME_HEAD > held) {
        if (are_zeros(bytes, held))
            search->at = behind_hole(window->fd, search->at, file_size);
        return KJI_SEARCH_LATER;
    }
    switch (check(window->fd, search->at + KJI_FRAME_HEAD, size, file_size, budget)) {
    case KJ_DAMAGE_NONE:
        return KJI_SEARCH_FOUND;
    case KJ_DAMAGE_UNREADABLE:
        return KJI_SEARCH_UNREADABLE;
    case KJ_DAMAGE_PARTIAL:
        if (!search->unfinished)
            search->unfinished = search->at;
        break;
    default:
        break;
    }
    search->at++;
    return KJI_SEARCH_LATER;
}

enum kji_search_end kji_event_search_on(kji_event_search *search, kji_window *window,
                                        uint64_t file_size, uint64_t most, uint64_t *budget)
{
    if (!search->running)
        search->unfinished = 0;
    search->running = true;
    for (uint64_t n_read = 0; n_read < most;) {
        uint64_t window_end = window->offset + window->filled;
        if (!kji_window_fill(window, search->at, KJI_FRAME_HEAD))
            return KJI_SEARCH_UNREADABLE;
        if (window->offset + window->filled != window_end)
            n_read += window->filled;
        enum kji_search_end end = KJI_SEARCH_NONE;
        if (kji_window_held(window, search->at) >= KJI_FRAME_HEAD)
            end = search_held(search, window, file_size, budget);
        if (end == KJI_SEARCH_LATER)
            continue;
        search->running = false;
        if (end == KJI_SEARCH_NONE && search->unfinished)
            search->at = search->unfinished;
        return end;
    }
    return KJI_SEARCH_LATER;
}
