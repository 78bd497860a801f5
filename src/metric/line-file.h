/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing file of lines, or standard input ("-"), followed for the kinds of source that read
 * text. It need not exist yet, and may be appended to, replaced, rewritten and deleted. A line is
 * used once it has its end, or once nothing will be appended any more. Between two looks no file is
 * held open.
 */
#ifndef KJI_LINE_FILE_H
#define KJI_LINE_FILE_H

#include "line-cut.h"
#include "point-batch.h"
#include "source-kind.h"

#include <sys/stat.h>

enum { KJI_LINE_HEAD = 4096, KJI_LINE_TAIL = 256, KJI_LINE_BUFFER = 64 << 10 };

enum { KJI_LINE_DAMAGE = 1000 }; /* ranges that are kept of a file */

typedef struct kji_line_file kji_line_file;

typedef struct kji_line_user {
    /* Puts the points of the line (file->lines.line, number file->n_lines) into file->batch, or
     * refuses it by kji_line_file_reject. batch.origin has run ".", file, record and the time of
     * reading; the step is the user's to set. */
    void (*use)(void *userdata);

    /* What follows is the file from its beginning again. */
    void (*restart)(void *userdata);

    void *userdata;
} kji_line_user;

/* Bytes [begin, end) that were skipped. */
typedef struct kji_line_damage {
    uint32_t kind; /* enum kj_damage_kind */
    uint32_t generation;
    uint64_t begin, end, record;
} kji_line_damage;

struct kji_line_file {
    char *path;   /* "-": standard input */
    char *folder; /* that it is in */
    bool is_input;
    bool is_piped;   /* standard input that cannot be read again */
    bool is_watched; /* that one: by the epoll descriptor */
    bool ended;      /* that one */
    const kj_events_options *options;
    kj_events_stats *stats;
    kji_watch *watch;
    int wd;
    kji_line_user user;
    kji_run *root; /* the run "." */

    struct stat last; /* at the last look */
    uint64_t offset;  /* of the first byte that has not been read */
    uint64_t n_lines; /* complete ones, also those that were skipped */
    uint32_t generation;
    bool present;
    bool told;         /* that it cannot be read */
    int64_t changed;   /* monotonic: when it was last seen to grow */
    uint64_t n_points; /* that its lines had */
    uint64_t skipped_records, skipped_bytes;
    kji_line_damage *damage;
    size_t n_damage, damage_capacity;
    int n_warnings;

    kji_lines lines;
    bool in_use; /* the line has been used, its points are being handed over */
    kji_batch batch;

    size_t skip_points; /* of the next line: they were delivered by the reader of the cursor */
    bool again;         /* kji_line_file_again was called */

    /* As read by the reader of the cursor: hashes of its first bytes, and of those before `end`. */
    struct {
        bool pending;
        uint64_t end, head_size, tail_size, head_hash, tail_hash;
    } mark;

    /* To know it again: its first bytes, and those before `offset`. */
    size_t head_size, tail_size;
    char head[KJI_LINE_HEAD], tail[KJI_LINE_TAIL];

    size_t from, to; /* of what was read and not yet taken */
    char buffer[KJI_LINE_BUFFER];
};

int kji_line_file_init(kji_line_file *file, const char *path, const kji_source_context *context,
                       enum kji_cut cut, const kji_line_user *user, kj_error *err);
void kji_line_file_done(kji_line_file *file);

/* The step slot of a source that is one file of lines. */
int kji_line_file_step(kji_line_file *file, kji_sink *sink, bool finished, kj_error *err);

/* The line that is being used is skipped: counted, and told (the first ten). */
void kji_line_file_reject(kji_line_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Something about the line that does not skip it; told with those. */
void kji_line_file_warn(kji_line_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* All that was read is read again from the beginning, after this line. */
void kji_line_file_again(kji_line_file *file);

/* Offset behind the last line that was used or skipped. */
static inline uint64_t kji_line_file_committed(const kji_line_file *file)
{
    return file->offset - (file->to - file->from) - file->lines.n_bytes;
}

/* Within the slots of these names. The user's own state belongs to the line at which the file is
 * taken up again, which is the one in use (file->in_use). */
void kji_line_file_save(const kji_line_file *file, kji_strbuf *to);
void kji_line_file_restore(kji_line_file *file, kji_cursor_items *items);

/* The slots of these names. */
void kji_line_file_count(const kji_line_file *file, kj_events_stats *stats);
int kji_line_file_list(const kji_line_file *file, kj_file_fn fn, void *userdata);
int kji_line_file_list_damage(const kji_line_file *file, kj_damage_fn fn, void *userdata);

#endif
