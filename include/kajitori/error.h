/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors.
 *
 * Every function that can fail returns an int: 0 or positive is success or an outcome that the
 * function's own comment lists, negative is one of enum kj_error_code. The last parameter,
 * `kj_error *err`, may be NULL; otherwise it is filled once, where the failure begins, and is
 * untouched on success. Nothing is allocated for it, so it also works when memory is gone.
 */
#ifndef KAJITORI_ERROR_H
#define KAJITORI_ERROR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef KJ_API
#define KJ_API __attribute__((visibility("default")))
#endif

/* X(name, number, text): the one list of error codes. Numbers never change; new ones are appended.
 */
#define KJ_ERROR_MAP(X)                             \
    X(KJ_EARG, -1, "invalid argument")              \
    X(KJ_EMEM, -2, "out of memory")                 \
    X(KJ_EIO, -3, "input/output error")             \
    X(KJ_ERANGE, -4, "value out of range")          \
    X(KJ_ENOENT, -5, "not found")                   \
    X(KJ_EEXIST, -6, "exists already")              \
    X(KJ_ENORUN, -7, "no such run")                 \
    X(KJ_EAMBIGUOUS, -8, "name fits several")       \
    X(KJ_EREJECTED, -9, "rejected")                 \
    X(KJ_ETIMEOUT, -10, "timed out")                \
    X(KJ_EENDED, -11, "the run ended first")        \
    X(KJ_EPROTO, -12, "protocol error")             \
    X(KJ_ESTATE, -13, "not possible in this state") \
    X(KJ_EUNSUPPORTED, -14, "not supported")        \
    X(KJ_EBUSY, -15, "busy or locked")              \
    X(KJ_EPERM, -16, "permission denied")           \
    X(KJ_EREVISION, -17, "unknown schema revision") \
    X(KJ_EDATABASE, -18, "database error")          \
    X(KJ_EDATA, -19, "damaged or malformed data")   \
    X(KJ_EFAILED, -20, "failed")                    \
    X(KJ_EINTERRUPTED, -21, "interrupted")

enum kj_error_code {
#define KJ_ERROR_ENUM(name, number, text) name = number,
    KJ_ERROR_MAP(KJ_ERROR_ENUM)
#undef KJ_ERROR_ENUM
};

/* One failure. `domain` says whose number `native` is: "errno", "sqlite", "" for none. `message` is
 * one line, without newline. */
typedef struct kj_error {
    uint32_t size; /* sizeof(kj_error) of the caller */
    int32_t code;  /* enum kj_error_code, or 0 when nothing failed */
    int32_t native;
    char domain[12];
    char message[1000];
} kj_error;

#define KJ_ERROR_INIT                  \
    {                                  \
        sizeof(kj_error), 0, 0, "", "" \
    }

/* The fixed English text of a code ("no such run"); "unknown error" for a number that is not in the
 * list. Never NULL. */
KJ_API const char *kj_error_text(int code);

/* "0.1.0", the version of the library that is loaded. */
KJ_API const char *kj_version(void);

/* Frees a string that a function of this library handed over through a `char **ret_…` parameter.
 * NULL is fine. */
KJ_API void kj_free(void *pointer);

enum kj_log_level { KJ_LOG_ERROR = 3, KJ_LOG_WARNING = 4, KJ_LOG_INFO = 6, KJ_LOG_DEBUG = 7 };

/*
 * Where warnings go, those of libkajitori-engine too. The libraries print nothing by themselves:
 * without a hook their warnings are dropped. The hook may be called from any thread, for example
 * the control thread of a run; it must not call back into the run. NULL switches it off.
 * Process-wide; the newest call wins; when memory is gone the former hook stays.
 */
typedef void (*kj_log_fn)(void *userdata, int level, const char *message);
KJ_API void kj_log_set(kj_log_fn log, void *userdata);

/* Hands a message to that hook, as one printable line: for what is built upon the library. Any
 * thread. */
KJ_API void kj_log_write(int level, const char *message);

#ifdef __cplusplus
}
#endif

#endif
