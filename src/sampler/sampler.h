/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers: where in its range a hyperparameter is tried next. */
#ifndef KJI_SAMPLER_H
#define KJI_SAMPLER_H

#include "history.h"
#include "options.h"
#include "rng.h"

/* One algorithm. All of it is constant. */
typedef struct kji_sampler_ops {
    uint32_t size;
    const char *name; /* as in --sampler NAME */
    const char *help; /* one line */
    /* Size of the algorithm's options struct, allocated zeroed and filled from `options`; it is the
     * `self` of the slots. 0 = none. */
    size_t instance_size;
    const kji_option *options;
    size_t n_options;
    /*
     * Draws a value, in internal form, for parameter `name` of `trial`, which does not have it yet.
     * Mandatory. `distribution` has more than one value; the answer must lie in it. A pure function
     * of options, history, trial and generator state; no I/O, no clock. 0, or KJ_EMEM.
     */
    int (*sample)(const void *self, kji_rng *rng, const kji_history *history,
                  const kji_trial *trial, const char *name, const kji_distribution *distribution,
                  double *ret_internal, kj_error *err);
} kji_sampler_ops;

typedef struct kji_sampler kji_sampler;

/* By name [random], with "key=value,…"; the generator is seeded with *seed, or by the kernel when
 * it is NULL. KJ_EARG lists the names there are. */
int kji_sampler_new(const char *name, const char *options, const uint32_t *seed,
                    kji_sampler **ret_sampler, kj_error *err);
void kji_sampler_free(kji_sampler *sampler);

/* The first trial to draw for is `number`, others have been drawn for before: with a seed, what
 * follows depends on both, and is not the beginning of the seed's stream once more. */
void kji_sampler_go_on(kji_sampler *sampler, int64_t number);

int kji_sampler_sample(kji_sampler *sampler, const kji_history *history, const kji_trial *trial,
                       const char *name, const kji_distribution *distribution, double *ret_internal,
                       kj_error *err);

/* The registry, one line for each algorithm: its table is kji_sampler_NAME. The first is the
 * default. */
#define KJI_SAMPLER_MAP(X) X(random)

#define KJI_SAMPLER_DECLARE(name) extern const kji_sampler_ops kji_sampler_##name;
KJI_SAMPLER_MAP(KJI_SAMPLER_DECLARE)
#undef KJI_SAMPLER_DECLARE

/* NULL past its end. */
const kji_sampler_ops *kji_sampler_at(size_t index);

#endif
