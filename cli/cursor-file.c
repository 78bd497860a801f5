/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --cursor FILE: where the reader is, and how long the output was then. FILE is replaced after the
 * output has been flushed, so after a death the output may be longer than FILE says, never shorter;
 * the next call cuts off what is beyond and prints that again. So a file gets each row once. Into a
 * pipe, what was printed since FILE was last replaced comes a second time. A call keeps FILE locked
 * (flock), so that no other one prints the same.
 *
 * FILE is one object of JSON:
 *
 *     {"version": 1,
 *      "place": "logs", "tags": ["loss"], "runs": null, "format": "jsonl",
 *      "output": {"device": 2049, "inode": 4711, "bytes": 1234},   null for a pipe
 *      "reader": "..."}          of kj_events_get_cursor
 */
#include "events-verb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1 };

static int held = -1;                    /* FILE, locked; -1 before there is one */
static struct json_object *printed_then; /* "output" of FILE */

static struct json_object *words_of(const char **words)
{
    if (!words)
        return NULL;
    struct json_object *list = cli_check_memory(json_object_new_array());
    for (; *words; words++)
        json_object_array_add(list, cli_check_memory(json_object_new_string(*words)));
    return list;
}

static struct json_object *output_now(void)
{
    struct stat st;
    if (fstat(STDOUT_FILENO, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    struct json_object *output = cli_check_memory(json_object_new_object());
    json_object_object_add(output, "device", json_object_new_int64((int64_t)st.st_dev));
    json_object_object_add(output, "inode", json_object_new_int64((int64_t)st.st_ino));
    json_object_object_add(output, "bytes", json_object_new_int64((int64_t)st.st_size));
    return output;
}

/* What must be the same in the next call. */
static struct json_object *call_now(void)
{
    char format[CLI_FORMAT_LIST];
    struct json_object *call = cli_check_memory(json_object_new_object());
    json_object_object_add(call, "version", json_object_new_int(VERSION));
    json_object_object_add(call, "place", json_object_new_string(cli_events_given.place));
    json_object_object_add(call, "tags", words_of(cli_events_given.tags));
    json_object_object_add(call, "runs", words_of(cli_events_given.runs));
    json_object_object_add(call, "format",
                           json_object_new_string(cli_format_list((unsigned)cli.format, format)));
    return call;
}

static int cannot_save(const char *path)
{
    cli_error("cannot write the cursor %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static int is_used(void)
{
    cli_error("the cursor %s is in use by another call", cli_events_given.cursor);
    return CLI_FAILED;
}

/* Whether this call, and no other one, has what stands at `path`. A file system without locks does
 * without. */
static bool lock(int fd, const char *path)
{
    struct stat here, there;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

static int fill(int fd, const char *text, size_t size)
{
    ssize_t n = 1;
    if (ftruncate(fd, 0) < 0)
        return -1;
    for (; size > 0 && n > 0; text += n, size -= (size_t)n)
        n = write(fd, text, size);
    return n > 0 ? 0 : -1;
}

static int write_text(const char *text, size_t size)
{
    char path[4200];
    if (snprintf(path, sizeof path, "%s.new", cli_events_given.cursor) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return cannot_save(cli_events_given.cursor);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return cannot_save(path);
    if (!lock(fd, path) || (held < 0 && access(cli_events_given.cursor, F_OK) == 0)) {
        close(fd);
        return is_used();
    }
    if (fill(fd, text, size) < 0 || rename(path, cli_events_given.cursor) < 0) {
        int status = cannot_save(cli_events_given.cursor);
        unlink(path);
        close(fd);
        return status;
    }
    if (held >= 0)
        close(held);
    held = fd;
    return CLI_DONE;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int save(const kj_events *events)
{
    kj_error err = KJ_ERROR_INIT;
    char *reader = NULL;
    uint64_t size = 0;
    if (kj_events_get_cursor(events, &reader, &size, &err) < 0)
        return cli_fail(&err);
    struct json_object *call = call_now();
    json_object_object_add(call, "output", output_now());
    json_object_object_add(call, "reader", cli_json_bytes(reader, size));
    kj_free(reader);
    size_t length;
    const char *text = cli_check_memory(
        (void *)json_object_to_json_string_length(call, JSON_C_TO_STRING_PLAIN, &length));
    int status = write_text(text, length);
    json_object_put(call);
    return status;
}

int cli_events_cursor_save(const kj_events *events, bool at_once)
{
    static double next; /* the cursor of ten thousand files takes its time */
    struct stat st;
    if (!cli_events_given.cursor)
        return CLI_DONE;
    double begin = seconds_now();
    bool can_be_cut = fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode);
    if (!at_once && can_be_cut && begin < next)
        return CLI_DONE;
    int status = save(events);
    double end = seconds_now();
    next = end + 50 * (end - begin);
    return status;
}

/* Whether it is a cursor, and of a call like this one. */
static int check(struct json_object *saved)
{
    const char *path = cli_events_given.cursor;
    struct json_object *version = NULL, *call = call_now();
    bool same = true;
    json_object_object_foreach(call, key, value)
    {
        same = same && json_object_equal(value, json_object_object_get(saved, key));
    }
    json_object_put(call);
    if (!json_object_is_type(saved, json_type_object) ||
        !json_object_object_get_ex(saved, "version", &version)) {
        cli_error("the cursor %s cannot be read, or is none", path);
        return CLI_FAILED;
    }
    if (json_object_get_int(version) != VERSION) {
        cli_error("the cursor %s is of another version of kajitori", path);
        return CLI_FAILED;
    }
    return same ? CLI_DONE
                : cli_usage("the cursor %s is of a call with another place, format, --tag or --run",
                            path);
}

int cli_events_cursor_begin(char **ret_cursor)
{
    const char *path = cli_events_given.cursor;
    *ret_cursor = NULL;
    if (!path)
        return CLI_DONE;
    held = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (held < 0 && errno == ENOENT)
        return CLI_DONE;
    if (held < 0) {
        cli_error("cannot read the cursor %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    if (!lock(held, path))
        return is_used();
    struct json_object *saved = json_object_from_fd(held);
    int status = check(saved);
    if (status == CLI_DONE) {
        const char *reader = json_object_get_string(json_object_object_get(saved, "reader"));
        *ret_cursor = cli_check_memory(strdup(reader ? reader : ""));
        printed_then = json_object_get(json_object_object_get(saved, "output"));
    }
    json_object_put(saved);
    return status;
}

static bool is_same_file(struct json_object *a, struct json_object *b)
{
    return a && b &&
           json_object_equal(json_object_object_get(a, "inode"),
                             json_object_object_get(b, "inode")) &&
           json_object_equal(json_object_object_get(a, "device"),
                             json_object_object_get(b, "device"));
}

int cli_events_cursor_cut(bool *ret_goes_on)
{
    struct json_object *now = output_now();
    int64_t then_bytes = json_object_get_int64(json_object_object_get(printed_then, "bytes"));
    int64_t now_bytes = json_object_get_int64(json_object_object_get(now, "bytes"));
    int status = CLI_DONE;
    bool same = is_same_file(now, printed_then);
    *ret_goes_on = same && then_bytes > 0 && now_bytes > 0;
    if (same && now_bytes < then_bytes)
        cli_note("the output is shorter than when the cursor %s was written; what is missing does "
                 "not come again",
                 cli_events_given.cursor);
    if (same && now_bytes > then_bytes && ftruncate(STDOUT_FILENO, then_bytes) < 0) {
        cli_error("cannot cut off what was printed behind the cursor: %s", strerror(errno));
        status = CLI_FAILED;
    }
    if (same && status == CLI_DONE && now_bytes > then_bytes)
        lseek(STDOUT_FILENO, then_bytes, SEEK_SET);
    json_object_put(now);
    json_object_put(printed_then);
    printed_then = NULL;
    return status;
}
