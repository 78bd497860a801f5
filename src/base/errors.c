/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors are caller-owned structs that are filled once, where the failure begins. Text that comes
 * from outside (file names, commands) may hold control bytes; they are replaced here, so that a
 * message is always one printable line.
 */
#include "errors.h"

#include "strbuf.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *kj_error_text(int code)
{
    switch (code) {
    case 0:
        return "success";
#define CASE(name, number, text) \
    case name:                   \
        return text;
        KJ_ERROR_MAP(CASE)
#undef CASE
    }
    return "unknown error";
}

const char *kj_version(void)
{
    return KJI_VERSION;
}

void kj_free(void *pointer)
{
    free(pointer);
}

static void blank_control_bytes(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

static void fill(kj_error *err, int code, const char *domain, int native, const char *format,
                 va_list args)
{
    err->code = code;
    err->native = native;
    snprintf(err->domain, sizeof err->domain, "%s", domain);
    vsnprintf(err->message, sizeof err->message, format, args);
    blank_control_bytes(err->message);
}

int kji_fail(kj_error *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, "", 0, format, args);
        va_end(args);
    }
    return code;
}

int kji_fail_native(kj_error *err, int code, const char *domain, int native, const char *format,
                    ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, domain, native, format, args);
        va_end(args);
    }
    return code;
}

int kji_fail_errno(kj_error *err, int code, int errnum, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, "errno", errnum, format, args);
        va_end(args);
        char buffer[128];
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof err->message - used, ": %s",
                 strerror_r(errnum, buffer, sizeof buffer));
    }
    return code;
}

int kji_forward(kj_error *err, const kj_error *failure)
{
    if (err) {
        uint32_t size = err->size;
        *err = *failure;
        err->size = size;
    }
    return failure->code;
}

int kji_fail_prefix(kj_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    blank_control_bytes(err->message);
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, ": %s", old);
    return err->code;
}

int kji_fail_memory(kj_error *err)
{
    return kji_fail(err, KJ_EMEM, "%s", kj_error_text(KJ_EMEM));
}

int kji_check_size(uint32_t size, size_t known, const char *type, kj_error *err)
{
    if (size >= known)
        return 0;
    return kji_fail(err, KJ_EARG, "%s.size is %u; it must be %zu", type, size, known);
}

void kji_give_struct(void *to, const void *from, size_t size)
{
    uint32_t given;
    memcpy(&given, to, sizeof given);
    if (given > size)
        given = (uint32_t)size;
    if (given < sizeof given) /* not even room for it */
        return;
    memcpy(to, from, given);
    memcpy(to, &given, sizeof given);
}

/* The hook is read without a lock, so that a child of fork never waits for a thread that it does
 * not have. Hence a record is never changed or freed; one that is set again is used again. */
typedef struct hook_record {
    kj_log_fn log;
    void *userdata;
    struct hook_record *next;
} hook_record;

static _Atomic(hook_record *) current_hook;
static hook_record *known_hooks;
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER; /* of those who set */

static hook_record *need_hook(kj_log_fn log, void *userdata)
{
    for (hook_record *hook = known_hooks; hook; hook = hook->next)
        if (hook->log == log && hook->userdata == userdata)
            return hook;
    hook_record *hook = malloc(sizeof *hook);
    if (!hook)
        return NULL;
    *hook = (hook_record){log, userdata, known_hooks};
    known_hooks = hook;
    return hook;
}

void kj_log_set(kj_log_fn log, void *userdata)
{
    pthread_mutex_lock(&hooks_lock);
    hook_record *hook = log ? need_hook(log, userdata) : NULL;
    if (hook || !log)
        atomic_store(&current_hook, hook);
    pthread_mutex_unlock(&hooks_lock);
}

void kji_log(int level, const char *format, ...)
{
    const hook_record *hook = atomic_load(&current_hook);
    if (!hook)
        return;
    char message[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    blank_control_bytes(message);
    hook->log(hook->userdata, level, message);
}

/* Levenshtein distance of two short names, at most `limit`. */
static size_t edit_distance(const char *a, const char *b, size_t limit)
{
    enum { MAX = 64 };
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX || n > m + limit || m > n + limit)
        return limit + 1;
    size_t row[MAX + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t cost = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < cost)
                cost = row[j] + 1;
            if (row[j - 1] + 1 < cost)
                cost = row[j - 1] + 1;
            row[j] = cost;
        }
    }
    return row[m];
}

const char *kji_nearest(const char *name, const char *const *known, size_t n_known)
{
    size_t limit = strlen(name) <= 3 ? 1 : 2;
    const char *best = NULL;
    size_t best_distance = limit + 1;
    for (size_t k = 0; k < n_known; k++) {
        size_t distance = edit_distance(name, known[k], limit);
        if (distance < best_distance) {
            best_distance = distance;
            best = known[k];
        }
    }
    return best;
}

int kji_fail_unknown(kj_error *err, int code, const char *kind, const char *name,
                     const char *const *known, size_t n_known)
{
    enum { ROOM = 600 };
    kji_strbuf list = KJI_STRBUF_INIT;
    size_t k = 0;
    for (; k < n_known && list.size < ROOM; k++)
        kji_strbuf_printf(&list, "%s%s", k ? ", " : "", known[k]);
    if (k < n_known)
        kji_strbuf_printf(&list, " and %zu more", n_known - k);
    const char *nearest = kji_nearest(name, known, n_known);
    int r = kji_fail(err, code, "no %s \"%.80s\"%s%s%s; there %s %s", kind, name,
                     nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "",
                     n_known == 1 ? "is" : "are", n_known ? list.text : "none");
    kji_strbuf_done(&list);
    return r;
}
