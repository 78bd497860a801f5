/* SPDX-License-Identifier: Apache-2.0 */
/* Where the last whole record of an event file ends. */
#ifndef KJI_EVENT_TAIL_H
#define KJI_EVENT_TAIL_H

#include <kajitori/error.h>

#include <sys/types.h>

enum { KJI_TAIL_WINDOW = 64 * 1024, KJI_TAIL_WIDE = 2 * 1024 * 1024 };

/*
 * The offset behind the last whole record in [from, size), where `from` is the beginning of a
 * record; `size` itself when the file is whole. Only the last 64 KiB are read, or 2 MiB, which is
 * more than any record of ours, when there is no record in those: a record in the midst of a file
 * is known by its two checksums. -1: none was found. KJ_EIO, KJ_EMEM.
 */
int kji_event_tail(int fd, off_t from, off_t size, off_t *ret_end, kj_error *err);

#endif
