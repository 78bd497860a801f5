/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of one run: append-only JSON lines in journal.jsonl and the older files that it was
 * renamed to (docs/protocol.md, section 5). One write(2) per line. Not thread-safe: the run's lock
 * is held.
 */
#ifndef KJI_JOURNAL_H
#define KJI_JOURNAL_H

#include "journal-part.h"
#include "pending.h"

#include <kajitori/error.h>

#include <json-c/json.h>
#include <stdbool.h>

typedef struct kji_journal {
    int fd;       /* -1: none; lines are numbered and dropped */
    int dir_fd;   /* its folder */
    int next_fd;  /* the file that is about to be the newest one */
    char *dir;    /* path of the folder */
    int64_t last; /* number of the newest line */
    bool failed;  /* a write failed: nothing more is written */

    kji_journal_part now;    /* journal.jsonl */
    kji_journal_part *older; /* journal-N.jsonl, oldest first */
    size_t n_older;
    size_t older_capacity;
    kji_pending pending;

    int64_t rotate_bytes;      /* journal.jsonl is renamed when it has so many; */
    int64_t keep_bytes;        /* when all have more than this, the oldest goes. 0: the defaults */
    int64_t rotate_again_at;   /* a new file could not be begun: not tried before this size */
    int64_t file_bytes_max;    /* RLIMIT_FSIZE: a byte more, and a signal ends the process */
    int64_t looked_ms;         /* when it was last seen to be where it was made */
    double (*wall_time)(void); /* NULL: kji_wall_time */
} kji_journal;

#define KJI_JOURNAL_INIT                      \
    {                                         \
        .fd = -1, .dir_fd = -1, .next_fd = -1 \
    }

/*
 * Opens the journal in the folder `dir`, which is made (0700) when missing. One that is there
 * already (the same run id, run again) goes on: a torn last line is cut off; `last` and
 * `pending.last_seq` are what they were, and what `pending` has is old. KJ_EBUSY while another run
 * writes it.
 */
int kji_journal_open(kji_journal *journal, const char *dir, kj_error *err);
void kji_journal_done(kji_journal *journal);
/* In a forked child: closes all descriptors, touches nothing else. */
void kji_journal_close_fds(kji_journal *journal);

/*
 * Adds "n" and "time" in front of the members of `record`, appends the line, and hands it over in
 * *ret_line (for free, without newline). KJ_EIO at the first line that cannot be written; from then
 * on the journal is closed, *ret_line is filled all the same. 1: it is written, and err->message
 * says what else is wrong: the files were deleted and are made anew, or no new file could be begun.
 */
int kji_journal_append(kji_journal *journal, struct json_object *record, char **ret_line,
                       kj_error *err);

/* The lines with n > after, at most `limit` of them and about `limit_bytes` bytes, as an array.
 * Lines that are gone are one `missing` among them. */
int kji_journal_read_back(kji_journal *journal, int64_t after, int64_t limit, size_t limit_bytes,
                          struct json_object **ret_lines, kj_error *err);

/* {"n": last, "event": "missing", "first": first, "text": why}: what readers say of lines that are
 * gone. */
struct json_object *kji_journal_missing(int64_t first, int64_t last, const char *why);

#endif
