/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of one run: append-only JSON lines (docs/protocol.md, section 5). One write(2) per
 * line. Not thread-safe: the run's lock is held.
 */
#ifndef KJI_JOURNAL_H
#define KJI_JOURNAL_H

#include <kajitori/error.h>

#include <json-c/json.h>
#include <stdbool.h>

typedef struct kji_journal {
    int fd;        /* -1: none; lines are numbered and dropped */
    int64_t last;  /* number of the newest line */
    int64_t *mark; /* mark[k]: offset of line k * KJI_JOURNAL_MARK + 1 */
    size_t n_marks;
    size_t marks_capacity;
    int64_t size; /* bytes of whole lines */
    bool failed;  /* a write failed: nothing more is written */
} kji_journal;

enum { KJI_JOURNAL_MARK = 128 };

#define KJI_JOURNAL_INIT            \
    {                               \
        -1, 0, NULL, 0, 0, 0, false \
    }

/* Opens dir_fd/journal.jsonl, which may be there already (the same run id, run again): a torn last
 * line is cut off and the numbers go on. KJ_EBUSY while another run writes it. */
int kji_journal_open(kji_journal *journal, int dir_fd, kj_error *err);
void kji_journal_done(kji_journal *journal);

/*
 * Adds "n" and "time" in front of the members of `record`, appends the line, and hands it over in
 * *ret_line (for free, without newline). KJ_EIO at the first line that cannot be written; from then
 * on the journal is closed, *ret_line is filled all the same.
 */
int kji_journal_append(kji_journal *journal, struct json_object *record, char **ret_line,
                       kj_error *err);

/* The lines with n > after, at most `limit` of them and about `limit_bytes` bytes, as an array. */
int kji_journal_read_back(const kji_journal *journal, int64_t after, int64_t limit,
                          size_t limit_bytes, struct json_object **ret_lines, kj_error *err);

#endif
