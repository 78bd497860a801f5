/* SPDX-License-Identifier: Apache-2.0 */
/* A value of a parameter, of an argument, or of a hyperparameter. */
#ifndef KAJITORI_VALUE_H
#define KAJITORI_VALUE_H

#include <kajitori/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kj_type {
    KJ_TYPE_NONE = 0,  /* no value; null in JSON */
    KJ_TYPE_BOOL = 1,  /* in `i`, 0 or 1 */
    KJ_TYPE_INT = 2,   /* in `i` */
    KJ_TYPE_FLOAT = 3, /* in `f` */
    KJ_TYPE_STRING = 4 /* in `s`, UTF-8, borrowed: see the function that gave it */
};

typedef struct kj_value {
    int32_t type; /* enum kj_type */
    int32_t reserved;
    int64_t i;
    double f;
    const char *s;
} kj_value;

#ifdef __cplusplus
}
#endif

#endif
