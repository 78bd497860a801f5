/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are numbered by their place in the file, so the numbers need not be read back: the offset
 * of every KJI_JOURNAL_MARKth line is remembered, and a reader that asks for what comes after line
 * N starts at the mark before it.
 */
#include "journal.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Called when line last+1 is about to begin at `offset`. */
static bool mark_line(kji_journal *journal, int64_t offset)
{
    if (journal->last % KJI_JOURNAL_MARK != 0)
        return true;
    if (!kji_reserve(&journal->mark, &journal->marks_capacity, journal->n_marks + 1,
                     sizeof *journal->mark))
        return false;
    journal->mark[journal->n_marks++] = offset;
    return true;
}

/* Counts the whole lines that are there. */
static int count_lines(kji_journal *journal, kj_error *err)
{
    char block[16384];
    int64_t offset = 0, start = 0;
    for (;;) {
        ssize_t n = pread(journal->fd, block, sizeof block, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot read the journal");
        if (n == 0)
            break;
        for (char *at = block; (at = memchr(at, '\n', (size_t)(block + n - at))); at++) {
            if (!mark_line(journal, start))
                return kji_fail_memory(err);
            journal->last++;
            start = offset + (at - block) + 1;
        }
        offset += n;
    }
    journal->size = start;
    if (start < offset && ftruncate(journal->fd, start) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot cut a torn line off the journal");
    return 0;
}

int kji_journal_open(kji_journal *journal, int dir_fd, kj_error *err)
{
    *journal = (kji_journal)KJI_JOURNAL_INIT;
    enum { FLAGS = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY };
    if (kji_forks_open(&journal->fd, dir_fd, "journal.jsonl", FLAGS, 0600) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open journal.jsonl");
    int r = 0;
    if (flock(journal->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        r = kji_fail(err, KJ_EBUSY, "a live run of this id, in another runtime folder, writes it");
    if (r >= 0)
        r = count_lines(journal, err);
    if (r < 0)
        kji_journal_done(journal);
    return r;
}

void kji_journal_done(kji_journal *journal)
{
    kji_forks_close(&journal->fd);
    free(journal->mark);
    *journal = (kji_journal)KJI_JOURNAL_INIT;
}

/* {"n": …, "time": …, members of record}, for free. */
static char *line_text(int64_t n, double time, struct json_object *record)
{
    struct json_object *line = json_object_new_object();
    json_object_object_add(line, "n", json_object_new_int64(n));
    json_object_object_add(line, "time", kji_json_new_double(round(time * 1e6) / 1e6));
    json_object_object_foreach(record, key, value)
        json_object_object_add(line, key, json_object_get(value));
    char *text = kji_json_text(line);
    json_object_put(line);
    return text;
}

static int write_line(kji_journal *journal, const char *text, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf line = KJI_STRBUF_INIT;
    kji_strbuf_puts(&line, text);
    kji_strbuf_putc(&line, '\n');
    if (line.failed || !mark_line(journal, journal->size))
        return kji_fail_memory(err);
    int r = kji_write_all(journal->fd, line.text, line.size, err);
    if (r >= 0)
        journal->size += (int64_t)line.size;
    return r;
}

int kji_journal_append(kji_journal *journal, struct json_object *record, char **ret_line,
                       kj_error *err)
{
    char *text = line_text(journal->last + 1, kji_wall_time(), record);
    if (!text)
        return kji_fail_memory(err);
    int r = 0;
    if (journal->fd >= 0 && !journal->failed) {
        r = write_line(journal, text, err);
        journal->failed = r < 0;
    }
    journal->last++;
    *ret_line = text;
    return r < 0 ? kji_fail_prefix(err, r, "journal.jsonl ends here") : 0;
}

/* Adds the lines of `text` whose number, counted from `first`, is above `after`; true = enough. */
static bool take_lines(const char *text, size_t size, int64_t *number, int64_t after, int64_t limit,
                       size_t limit_bytes, struct json_object *lines, size_t *used)
{
    while (size) {
        const char *end = memchr(text, '\n', size);
        size_t length = (size_t)(end - text);
        struct json_object *line = NULL;
        if (*number > after && kji_json_parse(text, length, &line, NULL) >= 0) {
            json_object_array_add(lines, line);
            *used += length;
        }
        (*number)++;
        if ((int64_t)json_object_array_length(lines) >= limit || *used >= limit_bytes)
            return true;
        text = end + 1;
        size -= length + 1;
    }
    return false;
}

int kji_journal_read_back(const kji_journal *journal, int64_t after, int64_t limit,
                          size_t limit_bytes, struct json_object **ret_lines, kj_error *err)
{
    struct json_object *lines = json_object_new_array();
    if (!lines)
        return kji_fail_memory(err);
    *ret_lines = lines;
    if (after < 0)
        after = 0;
    if (journal->fd < 0 || after >= journal->last || limit <= 0 || journal->n_marks == 0)
        return 0;
    size_t mark = (size_t)(after / KJI_JOURNAL_MARK);
    size_t used = 0;
    for (; mark < journal->n_marks; mark++) {
        int64_t from = journal->mark[mark];
        int64_t to = mark + 1 < journal->n_marks ? journal->mark[mark + 1] : journal->size;
        KJI_CLEANUP(kji_freep) char *text = malloc((size_t)(to - from) + 1);
        if (!text || pread(journal->fd, text, (size_t)(to - from), from) != to - from)
            return 0;
        int64_t number = (int64_t)mark * KJI_JOURNAL_MARK + 1;
        if (take_lines(text, (size_t)(to - from), &number, after, limit, limit_bytes, lines, &used))
            return 0;
    }
    return 0;
}
