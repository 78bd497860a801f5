/* SPDX-License-Identifier: Apache-2.0 */
/* A journal that is there already, damaged in whatever way: its whole lines stay as they are, the
 * numbers go on, and the line that is added is read back. */
#include "files.h"
#include "journal.h"
#include "json.h"
#include "mem.h"

#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/kajitori-fuzz-XXXXXX";
static int dir_fd = -1;

static void remove_folder(void)
{
    unlinkat(dir_fd, "journal.jsonl", 0);
    rmdir(folder);
}

static void write_file(const uint8_t *bytes, size_t size)
{
    if (dir_fd < 0) {
        check(mkdtemp(folder) != NULL);
        dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        check(dir_fd >= 0 && atexit(remove_folder) == 0);
    }
    int fd = openat(dir_fd, "journal.jsonl", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void check_kept(const uint8_t *bytes, size_t whole)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    size_t size;
    check(kji_read_file(dir_fd, "journal.jsonl", 64 << 20, &text, &size, NULL) >= 0);
    check(size > whole && memcmp(text, bytes, whole) == 0 && text[size - 1] == '\n');
    check(memchr(text + whole, '\n', size - whole) == text + size - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t whole = 0;
    int64_t lines = 0, n;
    for (size_t k = 0; k < size; k++)
        if (bytes[k] == '\n') {
            lines++;
            whole = k + 1;
        }
    write_file(bytes, size);
    kji_journal journal;
    check(kji_journal_open(&journal, dir_fd, NULL) == 0 && journal.last == lines);
    struct json_object *record = json_object_new_object(), *read = NULL, *all = NULL;
    json_object_object_add(record, "seq", json_object_new_int64(lines));
    KJI_CLEANUP(kji_freep) char *line = NULL;
    check(kji_journal_append(&journal, record, &line, NULL) == 0);
    check(kji_journal_read_back(&journal, lines, 10, 1 << 20, &read, NULL) == 0);
    check(json_object_array_length(read) == 1);
    check(kji_json_int(json_object_array_get_idx(read, 0), "n", &n) && n == lines + 1);
    check(kji_journal_read_back(&journal, 0, INT64_MAX, SIZE_MAX, &all, NULL) == 0);
    size_t count = json_object_array_length(all);
    check(count >= 1 && count <= (size_t)lines + 1);
    json_object_put(all);
    json_object_put(read);
    json_object_put(record);
    kji_journal_done(&journal);
    check_kept(bytes, whole);
    return 0;
}
