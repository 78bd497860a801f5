/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a journal: their names, and the lines of one of them. A line is what a newline ends;
 * what follows the last newline was torn by a crash, or is being written now, and is no line.
 */
#ifndef KJI_JOURNAL_PART_H
#define KJI_JOURNAL_PART_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KJI_JOURNAL_NAME        "journal.jsonl"
#define KJI_JOURNAL_HIDDEN_NAME ".journal.new" /* of a file that is being begun */

enum {
    KJI_JOURNAL_NAME_MAX = 40,
    KJI_JOURNAL_LINE_MAX = 4 * 1024 * 1024,
    KJI_JOURNAL_MARK_BYTES = 65536
};

/* No line has a higher number, and no command a higher one: more is a damaged file. */
#define KJI_JOURNAL_NUMBER_MAX INT64_C(999999999999)

/* "journal-000000000012.jsonl". Returns `name`. */
char *kji_journal_part_name(int64_t first, char name[KJI_JOURNAL_NAME_MAX]);
/* The number in such a name; 0 for any other name. */
int64_t kji_journal_part_number(const char *name);
/* The numbers of the older files of a folder, ascending; for free. */
int kji_journal_list_parts(int dir_fd, int64_t **ret_numbers, size_t *ret_n, kj_error *err);

/* `text` ends with a NUL and may be changed; NULL for a line beyond KJI_JOURNAL_LINE_MAX. Nonzero
 * ends the reading. */
typedef int (*kji_line_fn)(void *userdata, char *text, size_t size);

/*
 * Calls fn for each line of the file from `offset` on, which is the beginning of one. 1 when fn
 * ended it, 0 at the end of the file with *ret_end (may be NULL), the offset behind the last line.
 * KJ_EIO, KJ_EMEM.
 */
int kji_each_line(int fd, int64_t offset, kji_line_fn fn, void *userdata, int64_t *ret_end,
                  kj_error *err);

/* The number of the first line, as far as that line says it (`continued`): 1 with *ret_first, else
 * untouched; 0 when there is no line. */
int kji_journal_first_number(int fd, int64_t *ret_first, kj_error *err);

typedef struct kji_journal_mark {
    int64_t n;      /* number of the line that begins */
    int64_t offset; /* here */
} kji_journal_mark;

/* One file. The lines are numbered by their place in it. */
typedef struct kji_journal_part {
    int64_t first;          /* number of its first line */
    int64_t last;           /* of the newest one; first - 1 when there is none */
    int64_t size;           /* bytes of its lines */
    kji_journal_mark *mark; /* a line for every 64 KiB, so that not all need be read */
    size_t n_marks;
    size_t marks_capacity;
} kji_journal_part;

void kji_journal_part_done(kji_journal_part *part);
/* One more line, of `size` bytes with its newline. False when memory is gone. */
bool kji_journal_part_grow(kji_journal_part *part, size_t size);
/* Where to begin reading for line n: the offset, and in *ret_n the number of the line there. */
int64_t kji_journal_part_seek(const kji_journal_part *part, int64_t n, int64_t *ret_n);

#endif
