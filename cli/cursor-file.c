/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --cursor FILE: where the reader is, and how long the output was then. FILE is replaced after the
 * output has been flushed, so after a death the output may be longer than FILE says, never shorter;
 * the next call cuts off what is beyond and prints that again. So a file gets each row once. Into a
 * pipe, what was printed since FILE was last replaced comes a second time.
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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    struct json_object *call = cli_check_memory(json_object_new_object());
    json_object_object_add(call, "version", json_object_new_int(1));
    json_object_object_add(call, "place", json_object_new_string(cli_events_given.place));
    json_object_object_add(call, "tags", words_of(cli_events_given.tags));
    json_object_object_add(call, "runs", words_of(cli_events_given.runs));
    json_object_object_add(call, "format", json_object_new_int(cli.format));
    return call;
}

static int cannot_save(const char *path)
{
    cli_error("cannot write the cursor %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static int write_text(const char *text, size_t size)
{
    char path[4200];
    if (snprintf(path, sizeof path, "%s.new", cli_events_given.cursor) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return cannot_save(cli_events_given.cursor);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return cannot_save(path);
    ssize_t n = 1;
    for (; size > 0 && n > 0; text += n, size -= (size_t)n)
        n = write(fd, text, size);
    if (close(fd) < 0 || n <= 0 || rename(path, cli_events_given.cursor) < 0)
        return cannot_save(path);
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
    json_object_object_add(call, "reader",
                           cli_check_memory(json_object_new_string_len(reader, (int)size)));
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

static int not_this_call(void)
{
    return cli_usage("the cursor %s is of a call with another place, format, --tag or --run",
                     cli_events_given.cursor);
}

/* Cuts off what was printed and is not known to the cursor. */
static int cut_output(struct json_object *then, bool *ret_goes_on)
{
    struct json_object *now = output_now();
    int64_t bytes = json_object_get_int64(json_object_object_get(then, "bytes"));
    int status = CLI_DONE;
    bool same = now && then;
    for (int k = 0; k < 2 && same; k++) {
        const char *name = k ? "inode" : "device";
        same = json_object_equal(json_object_object_get(now, name),
                                 json_object_object_get(then, name));
    }
    *ret_goes_on = same && bytes > 0;
    if (same && json_object_get_int64(json_object_object_get(now, "bytes")) > bytes &&
        (ftruncate(STDOUT_FILENO, bytes) < 0 || lseek(STDOUT_FILENO, bytes, SEEK_SET) < 0)) {
        cli_error("cannot cut off what was printed behind the cursor: %s", strerror(errno));
        status = CLI_FAILED;
    }
    json_object_put(now);
    return status;
}

static int go_on(struct json_object *saved, char **ret_cursor, bool *ret_goes_on)
{
    struct json_object *call = call_now();
    bool same = true;
    json_object_object_foreach(call, key, value)
    {
        same = same && json_object_equal(value, json_object_object_get(saved, key));
    }
    json_object_put(call);
    if (!same)
        return not_this_call();
    const char *reader = json_object_get_string(json_object_object_get(saved, "reader"));
    *ret_cursor = cli_check_memory(strdup(reader ? reader : ""));
    return cut_output(json_object_object_get(saved, "output"), ret_goes_on);
}

int cli_events_cursor_begin(char **ret_cursor, bool *ret_goes_on)
{
    const char *path = cli_events_given.cursor;
    *ret_cursor = NULL;
    *ret_goes_on = false;
    if (!path)
        return CLI_DONE;
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return CLI_DONE;
    struct json_object *saved = json_object_from_file(path);
    if (!json_object_is_type(saved, json_type_object)) {
        cli_error("the cursor %s cannot be read, or is none", path);
        json_object_put(saved);
        return CLI_FAILED;
    }
    int status = go_on(saved, ret_cursor, ret_goes_on);
    json_object_put(saved);
    return status;
}
