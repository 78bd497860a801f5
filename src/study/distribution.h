/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributions with Optuna's rules. Inside, a value is a double: the number itself, or the index
 * of a choice. Outside it is a kj_value.
 */
#ifndef KJI_DISTRIBUTION_H
#define KJI_DISTRIBUTION_H

#include <kajitori/study.h>

#include <stdbool.h>

/* Optuna's classes; those from UNIFORM on are old ones that only exist in stored studies. */
enum kji_distribution_class {
    KJI_CLASS_FLOAT,
    KJI_CLASS_INT,
    KJI_CLASS_CATEGORICAL,
    KJI_CLASS_UNIFORM,
    KJI_CLASS_LOG_UNIFORM,
    KJI_CLASS_DISCRETE_UNIFORM,
    KJI_CLASS_INT_UNIFORM,
    KJI_CLASS_INT_LOG_UNIFORM
};

/* A checked one that owns its choices; never changed, shared by count within one thread. */
typedef struct kji_distribution {
    kj_distribution is;
    int32_t class_id; /* enum kji_distribution_class */
    uint32_t refs;
} kji_distribution;

/*
 * Checks `from` and makes a copy of it. As in Optuna, `high` is lowered to the last value that the
 * step reaches. KJ_EARG says which bound is wrong.
 */
int kji_distribution_new(const kj_distribution *from, kji_distribution **ret, kj_error *err);
kji_distribution *kji_distribution_ref(const kji_distribution *distribution);
void kji_distribution_unref(kji_distribution *distribution);

/*
 * From Optuna's JSON text, also of the old classes and the short form. Integer bounds beyond 64
 * bits are cut to the nearest that fits. KJ_EDATA.
 */
int kji_distribution_parse(const char *json, kji_distribution **ret, kj_error *err);

/* Exactly the text that Optuna writes; for free. NULL when memory is gone. */
char *kji_distribution_text(const kji_distribution *distribution);

/* KJ_EARG: not a number, NaN, not above 0 with log, not one of the choices. */
int kji_distribution_to_internal(const kji_distribution *distribution, const kj_value *value,
                                 double *ret_internal, kj_error *err);
/* KJ_EDATA for the index of no choice. A string is borrowed from the distribution. */
int kji_distribution_to_external(const kji_distribution *distribution, double internal,
                                 kj_value *ret_value, kj_error *err);

bool kji_distribution_contains(const kji_distribution *distribution, double internal);
/* Only one value is possible: kji_distribution_first. */
bool kji_distribution_is_single(const kji_distribution *distribution);
double kji_distribution_first(const kji_distribution *distribution);

/* Whether a study that has `old` under `name` may get `wanted`: KJ_EARG says what differs. */
int kji_distribution_check_compatible(const char *name, const kji_distribution *old,
                                      const kji_distribution *wanted, kj_error *err);

#endif
