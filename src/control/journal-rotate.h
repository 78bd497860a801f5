/* SPDX-License-Identifier: Apache-2.0 */
/* New files of a journal. */
#ifndef KJI_JOURNAL_ROTATE_H
#define KJI_JOURNAL_ROTATE_H

#include "journal.h"

/* Numbers of lines; none when `last` is 0. */
typedef struct kji_journal_range {
    int64_t first;
    int64_t last;
} kji_journal_range;

/* journal.jsonl gets the name of an older file, and a new one is begun; the oldest ones go when all
 * together are too large. When it fails, everything is as it was. */
int kji_journal_rotate(kji_journal *journal, kj_error *err);

/* Puts a new journal.jsonl, with its first lines, in the place of the one that is there. `removed`:
 * the lines that it says are gone. */
int kji_journal_begin_file(kji_journal *journal, kji_journal_range removed, kj_error *err);

/* The files were deleted: makes the folder and the newest one anew, and says so in *err. */
int kji_journal_begin_anew(kji_journal *journal, kj_error *err);

/* The time for a record. */
double kji_journal_time(const kji_journal *journal);

#endif
