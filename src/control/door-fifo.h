/* SPDX-License-Identifier: Apache-2.0 */
/* A FIFO as a door: the run's own `ctl`, and the one that the user names. */
#ifndef KJI_DOOR_FIFO_H
#define KJI_DOOR_FIFO_H

#include "flood.h"
#include "text-line.h"

#include <kajitori/run.h>

#include <sys/types.h>

typedef struct kji_fifo {
    const char *door; /* as in the journal: "ctl", "fifo" */
    char *path;       /* for messages, and for removing what we made */
    int fd;           /* -1: closed. Read and write, so that it never sees an end of file */
    int lock_fd;      /* of the user's FIFO: keeps a second run away */
    int watch;        /* inotify's number, -1 for none */
    int64_t due_ms;   /* without a watch: when a line that waits for its end is taken; 0: never */
    int64_t look_ms;  /* without a watch: when to look whether the path is still there */
    bool is_made;     /* by us: removed at the end */
    bool is_gone;     /* the path was deleted, and this was said */
    bool writer_left; /* a last line without newline ends where the FIFO is empty */
    bool skipping;    /* inside a line that is too long */
    size_t size;      /* of the beginning of a line that waits for its end */
    char line[KJI_LINE_MAX + 1];
    kji_flood flood;
    int64_t rests_until_ms; /* not looked at until then; 0: it is */
} kji_fifo;

void kji_fifo_init(kji_fifo *fifo, const char *door);
void kji_fifo_done(kji_fifo *fifo);
void kji_fifo_close_fds(kji_fifo *fifo);

/* Makes dir_fd/ctl and opens it. `dir` is for messages. KJ_EUNSUPPORTED where the file system has
 * no FIFOs. */
int kji_fifo_open_own(kji_fifo *fifo, int dir_fd, const char *dir, kj_error *err);

/*
 * Opens the FIFO at `path`, or makes one. Waits at most a quarter of a second of silence (and 2 s
 * in all) for a writer that was there before, and hands what it says over in *ret_stale (for free,
 * NULL when there was nothing). KJ_EARG for what is no FIFO, KJ_EUNSUPPORTED where none can be,
 * KJ_ENOENT for a missing folder, KJ_EBUSY when another run reads it.
 */
int kji_fifo_open_user(kji_fifo *fifo, const char *path, char **ret_stale, kj_error *err);

int kji_fifo_watch(const kji_fifo *fifo, int inotify_fd, uint32_t events);

/* Helper thread, the run's lock held: */

/* Takes a part of what is there, line by line: true when the FIFO is empty now. */
bool kji_fifo_read(kji_fifo *fifo, kj_run *run);
/* How long the FIFO is to be let alone, since it has said enough for now; 0: not at all. Its
 * writers wait in write(2). */
int64_t kji_fifo_rest_ms(kji_fifo *fifo, const kj_run *run);
/* A writer has closed: a last line without newline counts, once all that was written is read. */
void kji_fifo_writer_closed(kji_fifo *fifo, kj_run *run);
/* Warns, once, when the FIFO has no name any more. */
void kji_fifo_check_path(kji_fifo *fifo, kj_run *run);

/* Bytes of one read; each whole line goes to kji_run_take_line. For the above and for tests. */
void kji_fifo_feed(kji_fifo *fifo, kj_run *run, const char *bytes, size_t size);

#endif
