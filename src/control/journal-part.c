/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-part.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_SIZE = 65536, DIGITS = 12 };

static const char prefix[] = "journal-", suffix[] = ".jsonl";

char *kji_journal_part_name(int64_t first, char name[KJI_JOURNAL_NAME_MAX])
{
    snprintf(name, KJI_JOURNAL_NAME_MAX, "%s%0*" PRId64 "%s", prefix, DIGITS, first, suffix);
    return name;
}

int64_t kji_journal_part_number(const char *name)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    const char *digits = name + sizeof prefix - 1;
    if (strspn(digits, "0123456789") != DIGITS || strcmp(digits + DIGITS, suffix) != 0)
        return 0;
    return strtoll(digits, NULL, 10);
}

static int by_number(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

int kji_journal_list_parts(int dir_fd, int64_t **ret_numbers, size_t *ret_n, kj_error *err)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        kji_closep(&fd);
        return kji_fail_errno(err, KJ_EIO, errno, "cannot list the files of the journal");
    }
    int64_t *numbers = NULL;
    size_t n = 0, capacity = 0;
    int r = 0;
    for (struct dirent *item; r >= 0 && (item = readdir(listing));) {
        int64_t number = kji_journal_part_number(item->d_name);
        if (number == 0)
            continue;
        if (!kji_reserve(&numbers, &capacity, n + 1, sizeof *numbers))
            r = kji_fail_memory(err);
        else
            numbers[n++] = number;
    }
    closedir(listing);
    if (r < 0) {
        free(numbers);
        return r;
    }
    if (n > 1)
        qsort(numbers, n, sizeof *numbers, by_number);
    *ret_numbers = numbers;
    *ret_n = n;
    return 0;
}

typedef struct line_reader {
    kji_strbuf buffer;
    size_t skipped; /* bytes of a line that is too long, not kept */
    int64_t end;
    kji_line_fn fn;
    void *userdata;
} line_reader;

/* Hands over the lines of the buffer, whose last `fresh` bytes are new, and keeps the rest. */
static int deliver(line_reader *reader, size_t fresh)
{
    kji_strbuf *buffer = &reader->buffer;
    size_t begin = 0, from = buffer->size - fresh;
    int stop = 0;
    for (char *newline;
         !stop && (newline = memchr(buffer->text + from, '\n', buffer->size - from));) {
        char *text = buffer->text + begin;
        size_t size = (size_t)(newline - text);
        *newline = 0;
        bool too_long = reader->skipped > 0 || size > KJI_JOURNAL_LINE_MAX;
        stop = reader->fn(reader->userdata, too_long ? NULL : text, size + reader->skipped);
        reader->end += (int64_t)(size + reader->skipped + 1);
        reader->skipped = 0;
        begin = from = (size_t)(newline - buffer->text) + 1;
    }
    kji_strbuf_consume(buffer, begin);
    if (buffer->size > KJI_JOURNAL_LINE_MAX) {
        reader->skipped += buffer->size;
        kji_strbuf_clear(buffer);
    }
    return stop;
}

static int read_blocks(line_reader *reader, int fd, int64_t offset, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *block = malloc(BLOCK_SIZE);
    if (!block)
        return kji_fail_memory(err);
    for (;;) {
        ssize_t n = pread(fd, block, BLOCK_SIZE, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot read the journal");
        if (n == 0)
            return 0;
        offset += n;
        kji_strbuf_add(&reader->buffer, block, (size_t)n);
        if (reader->buffer.failed)
            return kji_fail_memory(err);
        if (deliver(reader, (size_t)n))
            return 1;
    }
}

int kji_each_line(int fd, int64_t offset, kji_line_fn fn, void *userdata, int64_t *ret_end,
                  kj_error *err)
{
    line_reader reader = {.buffer = KJI_STRBUF_INIT, .end = offset, .fn = fn, .userdata = userdata};
    int r = read_blocks(&reader, fd, offset, err);
    kji_strbuf_done(&reader.buffer);
    if (r >= 0 && ret_end)
        *ret_end = reader.end;
    return r;
}

static int read_first_number(void *userdata, char *text, size_t size)
{
    struct json_object *line = NULL;
    int64_t n;
    if (text && kji_json_parse(text, size, &line, NULL) >= 0) {
        const char *event = kji_json_string(line, "event");
        if (event && strcmp(event, "continued") == 0 && kji_json_int(line, "n", &n) && n > 0 &&
            n <= KJI_JOURNAL_NUMBER_MAX)
            *(int64_t *)userdata = n;
    }
    json_object_put(line);
    return 1;
}

int kji_journal_first_number(int fd, int64_t *ret_first, kj_error *err)
{
    return kji_each_line(fd, 0, read_first_number, ret_first, NULL, err);
}

void kji_journal_part_done(kji_journal_part *part)
{
    free(part->mark);
    *part = (kji_journal_part){0};
}

bool kji_journal_part_grow(kji_journal_part *part, size_t size)
{
    int64_t marked = part->n_marks ? part->mark[part->n_marks - 1].offset : -KJI_JOURNAL_MARK_BYTES;
    if (part->size - marked >= KJI_JOURNAL_MARK_BYTES) {
        if (!kji_reserve(&part->mark, &part->marks_capacity, part->n_marks + 1, sizeof *part->mark))
            return false;
        part->mark[part->n_marks++] = (kji_journal_mark){part->last + 1, part->size};
    }
    part->last++;
    part->size += (int64_t)size;
    return true;
}

int64_t kji_journal_part_seek(const kji_journal_part *part, int64_t n, int64_t *ret_n)
{
    size_t low = 0, high = part->n_marks;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (part->mark[middle].n <= n)
            low = middle;
        else
            high = middle;
    }
    *ret_n = part->n_marks ? part->mark[low].n : part->first;
    return part->n_marks ? part->mark[low].offset : 0;
}
