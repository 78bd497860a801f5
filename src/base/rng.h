/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator of samplers: MT19937 with the streams of NumPy's RandomState, so that a seed gives
 * the numbers that Optuna draws. The state is the caller's; one generator is for one thread.
 */
#ifndef KJI_RNG_H
#define KJI_RNG_H

#include <kajitori/error.h>

enum { KJI_RNG_WORDS = 624 };

typedef struct kji_rng {
    uint32_t state[KJI_RNG_WORDS];
    int32_t next; /* index of the next word; KJI_RNG_WORDS = make new ones first */
} kji_rng;

/* As numpy.random.RandomState(seed). */
void kji_rng_seed(kji_rng *rng, uint32_t seed);

/* With 32 bits of the kernel's randomness; KJ_EIO. */
int kji_rng_seed_randomly(kji_rng *rng, kj_error *err);

uint32_t kji_rng_uint32(kji_rng *rng);

/* Uniform in [0, 1) with 53 bits, as random_sample(). */
double kji_rng_double(kji_rng *rng);

/* low + (high - low) * u, as uniform(low, high). */
double kji_rng_uniform(kji_rng *rng, double low, double high);

#endif
