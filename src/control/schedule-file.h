/* SPDX-License-Identifier: Apache-2.0 */
/* A text file of commands that a run is given (docs/protocol.md, section 5). It is read when the
 * run is opened, and taken in once, when the program's parameters and verbs are known. */
#ifndef KJI_SCHEDULE_FILE_H
#define KJI_SCHEDULE_FILE_H

#include <kajitori/run.h>

enum { KJI_SCHEDULE_BYTES = 16 << 20, KJI_SCHEDULE_WARNINGS = 100 };

typedef struct kji_schedule_file {
    char *path;
    char *text; /* NULL: none, or taken in */
    size_t size;
} kji_schedule_file;

/* KJ_ENOENT, KJ_EIO, KJ_EDATA for more than KJI_SCHEDULE_BYTES; *schedule is untouched then. */
int kji_schedule_file_read(kji_schedule_file *schedule, const char *path, kj_error *err);
void kji_schedule_file_done(kji_schedule_file *schedule);

/* Training thread, lock held; it is let go of for warnings, one for each line that is rejected (at
 * most KJI_SCHEDULE_WARNINGS, and one for the others). Nothing to do when there is no file. */
void kji_schedule_file_take_in(kj_run *run);

#endif
