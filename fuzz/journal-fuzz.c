/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal that is there already, damaged in whatever way, in one file or two (a NUL divides the
 * input: before it the older one): its whole lines stay as they are, the numbers go on, the line
 * that is added is read back, and what is open fits its limits.
 */
#include "files.h"
#include "journal.h"
#include "json.h"
#include "mem.h"

#include "fuzz.h"

#include <kajitori/client.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/kajitori-fuzz-XXXXXX", folder[60];
static int dir_fd = -1;
static const char older_name[] = "journal-000000000005.jsonl";

static void remove_files(void)
{
    unlinkat(dir_fd, KJI_JOURNAL_NAME, 0);
    unlinkat(dir_fd, older_name, 0);
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
    snprintf(folder, sizeof folder, "%s/runs", root);
    rmdir(folder);
    rmdir(root);
}

static void make_folder(void)
{
    check(mkdtemp(root) != NULL);
    snprintf(folder, sizeof folder, "%s/runs", root);
    check(mkdir(folder, 0700) == 0);
    strcat(folder, "/x");
    check(mkdir(folder, 0700) == 0);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(dir_fd >= 0 && atexit(remove_folder) == 0);
}

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static size_t whole_lines(const uint8_t *bytes, size_t size)
{
    while (size && bytes[size - 1] != '\n')
        size--;
    return size;
}

static void check_kept(const char *name, const uint8_t *bytes, size_t whole)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    size_t size;
    check(kji_read_file(dir_fd, name, 64 << 20, &text, &size, NULL) >= 0);
    check(size >= whole && memcmp(text, bytes, whole) == 0);
}

static void check_pending(const kji_pending *pending)
{
    size_t n_old = 0;
    int64_t seq = 0;
    for (size_t k = 0; k < pending->n; seq = pending->item[k++].seq) {
        check(pending->item[k].seq > seq && pending->item[k].seq <= KJI_JOURNAL_NUMBER_MAX);
        check(strchr(pending->item[k].line, '\n') == NULL);
        n_old += pending->item[k].is_old;
    }
    check(n_old == pending->n_old && pending->n <= KJI_PENDING_MAX);
}

/* Adds a line, and finds it as the last one. */
static void add_line(kji_journal *journal)
{
    struct json_object *record = json_object_new_object(), *read = NULL, *all = NULL;
    int64_t last = journal->last, n;
    json_object_object_add(record, "event", json_object_new_string("note"));
    KJI_CLEANUP(kji_freep) char *line = NULL;
    check(kji_journal_append(journal, record, &line, NULL) == 0);
    check(kji_journal_read_back(journal, last, 10, 1 << 20, &read, NULL) == 0);
    check(journal->last > last && json_object_array_length(read) >= 1);
    struct json_object *newest =
        json_object_array_get_idx(read, json_object_array_length(read) - 1);
    check(kji_json_int(newest, "n", &n) && n == journal->last);
    check(kji_journal_read_back(journal, 0, INT64_MAX, SIZE_MAX, &all, NULL) == 0);
    json_object_put(all);
    json_object_put(read);
    json_object_put(record);
}

static int count(void *userdata, const char *line)
{
    (void)line;
    ++*(size_t *)userdata;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const uint8_t *nul = size ? memchr(bytes, 0, size) : NULL;
    const uint8_t *newest = nul ? nul + 1 : bytes;
    size_t newest_size = (size_t)(bytes + size - newest), n_read = 0;
    if (dir_fd < 0)
        make_folder();
    remove_files();
    if (nul)
        write_file(older_name, bytes, (size_t)(nul - bytes));
    write_file(KJI_JOURNAL_NAME, newest, newest_size);
    check(kj_journal_read(root, "x", count, &n_read, NULL, NULL) == 0);
    kji_journal journal;
    check(kji_journal_open(&journal, folder, NULL) == 0);
    check(journal.last >= (nul ? 4 : 0));
    check_pending(&journal.pending);
    add_line(&journal);
    kji_journal_done(&journal);
    check_kept(KJI_JOURNAL_NAME, newest, whole_lines(newest, newest_size));
    if (nul)
        check_kept(older_name, bytes, (size_t)(nul - bytes));
    return 0;
}
