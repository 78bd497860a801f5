/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of an open file that is in memory: one buffer that moves forward with what is read. As
 * long as a file is read without gaps it is filled by the whole; behind a gap little is read at
 * first, for another gap may follow.
 */
#ifndef KJI_EVENT_WINDOW_H
#define KJI_EVENT_WINDOW_H

#include <kajitori/events.h>

#include <stdbool.h>
#include <sys/types.h>

typedef struct kji_window {
    unsigned char *buffer;
    size_t capacity;
    int fd;
    uint64_t offset; /* of the buffer's first byte in the file */
    size_t filled;
    size_t ahead; /* how much was read last time */
} kji_window;

bool kji_window_init(kji_window *window);
void kji_window_done(kji_window *window);

/* Another file, or the same one after a while: nothing is held. */
void kji_window_open(kji_window *window, int fd);

/* Makes the buffer `size` bytes large, and empty; false when memory is gone. `restore` gives back
 * what it then has too much. */
bool kji_window_enlarge(kji_window *window, size_t size);
void kji_window_restore(kji_window *window);

/* How many bytes from `offset` on are held. */
static inline size_t kji_window_held(const kji_window *window, uint64_t offset)
{
    if (offset < window->offset || offset > window->offset + window->filled)
        return 0;
    return (size_t)(window->offset + window->filled - offset);
}

static inline const unsigned char *kji_window_at(const kji_window *window, uint64_t offset)
{
    return window->buffer + (offset - window->offset);
}

/* The slow half of kji_window_fill. */
bool kji_window_move(kji_window *window, uint64_t offset, size_t need);

/* Sees to it that `need` bytes (at most the capacity) from `offset` on are held, or all up to the
 * end of the file. false: read error, with errno. */
static inline bool kji_window_fill(kji_window *window, uint64_t offset, size_t need)
{
    return kji_window_held(window, offset) >= need || kji_window_move(window, offset, need);
}

/* All of `size` bytes at `offset`, or fewer at the end of the file; -1 with errno. */
ssize_t kji_read_at(int fd, void *bytes, size_t size, uint64_t offset);

/*
 * Compares a payload at `offset`, of any size, with the checksum behind it: KJ_DAMAGE_NONE,
 * PAYLOAD, PARTIAL when the file ends before, or UNREADABLE with errno. The window stays as it is.
 */
enum kj_damage_kind kji_check_payload(int fd, uint64_t offset, size_t size);

#endif
