/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.json: who this is. It is readable by our user only, but it is copied into journals and bug
 * reports, so what looks like a secret on the command line is masked.
 */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "number.h"
#include "publish.h"
#include "rpc.h"
#include "strbuf.h"
#include "utf8.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { ARGS_MAX = 256, ARG_MAX_BYTES = 1024, CMDLINE_MAX = 1 << 20 };

static bool names_a_secret(const char *text, size_t size)
{
    static const char *const secrets[] = {"key", "token", "secret", "password"};
    KJI_CLEANUP(kji_freep) char *name = strndup(text, size);
    for (size_t k = 0; name && k < sizeof secrets / sizeof *secrets; k++)
        if (strcasestr(name, secrets[k]))
            return true;
    return name == NULL;
}

/* Copies `arg`, with *** for the password of every URL (scheme://user:password@host). */
static void add_without_passwords(kji_strbuf *to, const char *arg)
{
    const char *scheme;
    while ((scheme = strstr(arg, "://"))) {
        const char *user = scheme + 3;
        const char *end = user + strcspn(user, "/?# \t\n\"'");
        const char *host = memrchr(user, '@', (size_t)(end - user));
        const char *colon = host ? memchr(user, ':', (size_t)(host - user)) : NULL;
        if (!colon) {
            kji_strbuf_add(to, arg, (size_t)(user - arg));
            arg = user;
            continue;
        }
        kji_strbuf_add(to, arg, (size_t)(colon + 1 - arg));
        kji_strbuf_puts(to, "***");
        arg = host;
    }
    kji_strbuf_puts(to, arg);
}

/* One argument. *next_is_secret: the one before was a flag like --token. */
static struct json_object *describe_arg(const char *arg, bool *next_is_secret)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    bool hide = *next_is_secret && *arg != '-';
    const char *equals = strchr(arg, '=');
    *next_is_secret = !equals && *arg == '-' && names_a_secret(arg, strlen(arg));
    if (hide) {
        kji_strbuf_puts(&text, "***");
    } else if (equals && names_a_secret(arg, (size_t)(equals - arg))) {
        kji_strbuf_add(&text, arg, (size_t)(equals + 1 - arg));
        kji_strbuf_puts(&text, "***");
    } else {
        add_without_passwords(&text, arg);
    }
    return kji_json_new_text(text.failed ? "***" : text.text, ARG_MAX_BYTES);
}

struct json_object *kji_describe_argv(const char *cmdline, size_t size)
{
    struct json_object *list = json_object_new_array();
    bool next_is_secret = false;
    size_t at = 0;
    while (at < size && json_object_array_length(list) < ARGS_MAX) {
        json_object_array_add(list, describe_arg(cmdline + at, &next_is_secret));
        at += strlen(cmdline + at) + 1;
    }
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
    size_t size = 0;
    KJI_CLEANUP(kji_freep) char *cmdline = kji_read_cmdline(&size);
    json_object_object_add(object, "protocol", json_object_new_int(KJI_PROTOCOL));
    json_object_object_add(object, "version", json_object_new_string(KJI_VERSION));
    json_object_object_add(object, "id", json_object_new_string(id));
    json_object_object_add(object, "name", kji_json_new_text(name, 4096));
    json_object_object_add(object, "pid", json_object_new_int64(getpid()));
    json_object_object_add(object, "uid", json_object_new_int64(geteuid()));
    add_text(object, "host", host);
    add_boot_id(object);
    json_object_object_add(object, "start_time", kji_json_new_double(start_time));
    json_object_object_add(object, "argv", kji_describe_argv(cmdline ? cmdline : "", size));
    add_text(object, "cwd", cwd);
    add_text(object, "framework", framework);
    add_text(object, "fifo", fifo);
    add_labels(object);
    return object;
}
