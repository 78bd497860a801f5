/* SPDX-License-Identifier: Apache-2.0 */
/* Filling a kj_error, and the log hook. A function forwards a filled error unchanged or prefixes
 * context. */
#ifndef KJI_ERRORS_H
#define KJI_ERRORS_H

#include <kajitori/error.h>

#define KJI_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* Fills *err (may be NULL) and returns `code`, so that `return kji_fail(err, KJ_EARG, ...)` reads
 * well. Control bytes are blanked. */
int kji_fail(kj_error *err, int code, const char *format, ...) KJI_PRINTF(3, 4);

/* The same for a failed system call: domain "errno", native errnum, and ": " strerror behind the
 * text. */
int kji_fail_errno(kj_error *err, int code, int errnum, const char *format, ...) KJI_PRINTF(4, 5);

/* The same for another library's number. */
int kji_fail_native(kj_error *err, int code, const char *domain, int native, const char *format,
                    ...) KJI_PRINTF(5, 6);

/* Hands on a failure that was kept back, because it might have been overcome; returns its code. */
int kji_forward(kj_error *err, const kj_error *failure);

/* Puts "text: " before the message of a filled *err; returns err->code, or `code` when err is NULL.
 */
int kji_fail_prefix(kj_error *err, int code, const char *format, ...) KJI_PRINTF(3, 4);

int kji_fail_memory(kj_error *err);

/* A public struct that comes in: KJ_EARG when its `size` is less than what we know of it. */
int kji_check_size(uint32_t size, size_t known, const char *type, kj_error *err);

/* A public struct that goes out: fills *to as far as its caller knows it by the `size` that was set
 * there, and sets it to what was filled. */
void kji_give_struct(void *to, const void *from, size_t size);

/* To the log hook (dropped without one). Any thread. */
void kji_log(int level, const char *format, ...) KJI_PRINTF(2, 3);

/* The known name that is nearest to `name` by edit distance, for "did you mean": NULL when none is
 * near. */
const char *kji_nearest(const char *name, const char *const *known, size_t n_known);

/* Refuses a name, with the nearest one and those there are: `no verb "stpo" (did you mean stop?);
 * there are …`. */
int kji_fail_unknown(kj_error *err, int code, const char *kind, const char *name,
                     const char *const *known, size_t n_known);

#endif
