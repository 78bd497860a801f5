/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.json: who this is. It is readable by our user only, but it is copied into journals and bug
 * reports, so what looks like a secret on the command line is masked.
 */
#include "files.h"
#include "json.h"
#include "mask.h"
#include "mem.h"
#include "number.h"
#include "publish.h"
#include "rpc.h"
#include "utf8.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { ARGS_MAX = 256, ARG_MAX_BYTES = 1024, CMDLINE_MAX = 1 << 20 };

/* As it is, for what is to be used again; made readable where it is too long or no text, which
 * leaves another one. */
static struct json_object *exact_text(const char *text, size_t limit, bool *ret_cut)
{
    size_t size = strlen(text);
    if (size <= limit && kji_utf8_valid(text, size))
        return json_object_new_string(text);
    *ret_cut = true;
    return kji_json_new_text(text, limit);
}

struct json_object *kji_describe_argv(const char *cmdline, size_t size, bool *ret_cut)
{
    struct json_object *words = json_object_new_array();
    size_t at = 0;
    while (at < size && json_object_array_length(words) < ARGS_MAX) {
        json_object_array_add(words, json_object_new_string(cmdline + at));
        at += strlen(cmdline + at) + 1;
    }
    *ret_cut = at < size;
    struct json_object *masked = kji_mask_words(words);
    json_object_put(words);
    struct json_object *list = json_object_new_array();
    for (size_t k = 0; k < json_object_array_length(masked); k++) {
        const char *word = json_object_get_string(json_object_array_get_idx(masked, k));
        json_object_array_add(list, exact_text(word, ARG_MAX_BYTES, ret_cut));
    }
    json_object_put(masked);
    return list;
}

char *kji_read_cmdline(size_t *ret_size)
{
    char *text = NULL;
    if (kji_read_file(AT_FDCWD, "/proc/self/cmdline", CMDLINE_MAX, &text, ret_size, NULL) < 0)
        return NULL;
    return text;
}

static void add_text(struct json_object *object, const char *key, const char *text)
{
    if (text && *text)
        json_object_object_add(object, key, kji_json_new_text(text, 4096));
}

static void add_path(struct json_object *object, const char *key, const char *path)
{
    bool cut;
    if (path && *path)
        json_object_object_add(object, key, exact_text(path, 4096, &cut));
}

static void add_argv(struct json_object *object)
{
    size_t size = 0;
    bool cut;
    KJI_CLEANUP(kji_freep) char *cmdline = kji_read_cmdline(&size);
    json_object_object_add(object, "argv", kji_describe_argv(cmdline ? cmdline : "", size, &cut));
    if (cut)
        json_object_object_add(object, "argv_cut", json_object_new_boolean(true));
}

static void add_boot_id(struct json_object *object)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    if (kji_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 100, &text, NULL, NULL) < 0)
        return;
    text[strcspn(text, "\n")] = 0;
    add_text(object, "boot_id", text);
}

static void add_labels(struct json_object *object)
{
    const char *trial = getenv("KAJITORI_TRIAL");
    int64_t number;
    add_text(object, "study", getenv("KAJITORI_STUDY"));
    if (trial && kji_parse_int64(trial, strlen(trial), &number))
        json_object_object_add(object, "trial", json_object_new_int64(number));
}

struct json_object *kji_describe_run(const char *id, const char *name, const char *framework,
                                     const char *fifo, double start_time)
{
    struct json_object *object = json_object_new_object();
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    KJI_CLEANUP(kji_freep) char *cwd = getcwd(NULL, 0);
    json_object_object_add(object, "protocol", json_object_new_int(KJI_PROTOCOL));
    json_object_object_add(object, "version", json_object_new_string(KJI_VERSION));
    json_object_object_add(object, "id", json_object_new_string(id));
    json_object_object_add(object, "name", kji_json_new_text(name, 4096));
    json_object_object_add(object, "pid", json_object_new_int64(getpid()));
    json_object_object_add(object, "uid", json_object_new_int64(geteuid()));
    add_text(object, "host", host);
    add_boot_id(object);
    json_object_object_add(object, "start_time", kji_json_new_double(start_time));
    add_argv(object);
    add_path(object, "cwd", cwd);
    add_text(object, "framework", framework);
    add_text(object, "fifo", fifo);
    add_path(object, "checkpoint", getenv("KAJITORI_CHECKPOINT"));
    add_labels(object);
    return object;
}
