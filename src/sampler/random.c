/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Independent uniform draws; with a seed, exactly those of Optuna's RandomSampler (the vectors in
 * tests/data/vectors/sampler_random.json). A range with steps is widened by half a step at both
 * ends, so that the end values are as likely as the others; a choice is the largest of one draw
 * per choice.
 */
#include "sampler.h"

#include <math.h>

static double clip(double value, double low, double high)
{
    return fmin(fmax(value, low), high);
}

static double draw_float(const kj_distribution *d, kji_rng *rng)
{
    double below_high = nextafter(d->high, -INFINITY);
    if (d->log)
        return clip(exp(kji_rng_uniform(rng, log(d->low), log(d->high))), d->low, below_high);
    if (d->step == 0)
        return clip(kji_rng_uniform(rng, d->low, d->high), d->low, below_high);
    double half = 0.5 * d->step;
    double x = kji_rng_uniform(rng, d->low - half, d->high + half);
    return clip(rint((x - d->low) / d->step) * d->step + d->low, d->low, d->high);
}

static double draw_int(const kj_distribution *d, kji_rng *rng)
{
    double low = (double)d->int_low, high = (double)d->int_high, step = (double)d->int_step;
    double half = 0.5 * step;
    if (d->log)
        return clip(rint(exp(kji_rng_uniform(rng, log(low - half), log(high + half)))), low, high);
    double x = kji_rng_uniform(rng, low - half, high + half);
    return clip(floor((x - low) / step + 0.5) * step + low, low, high);
}

static double draw_choice(const kj_distribution *d, kji_rng *rng)
{
    uint64_t best = 0;
    double highest = -1;
    for (uint64_t k = 0; k < d->n_choices; k++) {
        double x = kji_rng_double(rng);
        if (x > highest) {
            highest = x;
            best = k;
        }
    }
    return (double)best;
}

static int random_sample(const void *self, kji_rng *rng, const kji_history *history,
                         const kji_trial *trial, const char *name,
                         const kji_distribution *distribution, double *ret_internal, kj_error *err)
{
    (void)self, (void)history, (void)trial, (void)name, (void)err;
    const kj_distribution *d = &distribution->is;
    *ret_internal = d->kind == KJ_DISTRIBUTION_FLOAT ? draw_float(d, rng)
                    : d->kind == KJ_DISTRIBUTION_INT ? draw_int(d, rng)
                                                     : draw_choice(d, rng);
    return 0;
}

const kji_sampler_ops kji_sampler_random = {
    .size = sizeof(kji_sampler_ops),
    .name = "random",
    .help = "independent uniform draws",
    .sample = random_sample,
};
