/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler.h"

#include "errors.h"
#include "mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const kji_sampler_ops *const registry[] = {
#define KJI_SAMPLER_ROW(name) &kji_sampler_##name,
    KJI_SAMPLER_MAP(KJI_SAMPLER_ROW)
#undef KJI_SAMPLER_ROW
};

enum { N_SAMPLERS = sizeof registry / sizeof *registry };

struct kji_sampler {
    const kji_sampler_ops *ops;
    void *instance;
    kji_rng rng;
    bool has_seed;
    uint32_t seed;
};

const kji_sampler_ops *kji_sampler_at(size_t index)
{
    return index < N_SAMPLERS ? registry[index] : NULL;
}

static int unknown_name(const char *name, kj_error *err)
{
    const char *known[N_SAMPLERS];
    for (size_t k = 0; k < N_SAMPLERS; k++)
        known[k] = registry[k]->name;
    return kji_fail_unknown(err, KJ_EARG, "sampler", name, known, N_SAMPLERS);
}

static int set_up(kji_sampler *sampler, const char *options, const uint32_t *seed, kj_error *err)
{
    const kji_sampler_ops *ops = sampler->ops;
    assert(ops->size == sizeof *ops && ops->name && ops->help && ops->sample);
    sampler->instance = calloc(1, ops->instance_size ? ops->instance_size : 1);
    if (!sampler->instance)
        return kji_fail_memory(err);
    char who[80];
    snprintf(who, sizeof who, "sampler %s", ops->name);
    int r = kji_options_parse(ops->options, ops->n_options, who, options, sampler->instance, err);
    if (r < 0 || !seed)
        return r < 0 ? r : kji_rng_seed_randomly(&sampler->rng, err);
    sampler->has_seed = true;
    sampler->seed = *seed;
    kji_rng_seed(&sampler->rng, *seed);
    return 0;
}

int kji_sampler_new(const char *name, const char *options, const uint32_t *seed,
                    kji_sampler **ret_sampler, kj_error *err)
{
    const kji_sampler_ops *ops = name ? NULL : registry[0];
    for (size_t k = 0; !ops && k < N_SAMPLERS; k++)
        if (strcmp(name, registry[k]->name) == 0)
            ops = registry[k];
    if (!ops)
        return unknown_name(name, err);
    kji_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return kji_fail_memory(err);
    sampler->ops = ops;
    int r = set_up(sampler, options, seed, err);
    if (r < 0)
        kji_sampler_free(sampler);
    else
        *ret_sampler = sampler;
    return r;
}

void kji_sampler_free(kji_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->instance);
    free(sampler);
}

/* The finalizer of splitmix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
 * generators", 2014) spreads neighbouring seeds and numbers. */
void kji_sampler_go_on(kji_sampler *sampler, int64_t number)
{
    if (!sampler->has_seed)
        return;
    uint64_t x = ((uint64_t)sampler->seed << 32) + (uint64_t)number + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    kji_rng_seed(&sampler->rng, (uint32_t)((x ^ (x >> 31)) >> 32));
}

int kji_sampler_sample(kji_sampler *sampler, const kji_history *history, const kji_trial *trial,
                       const char *name, const kji_distribution *distribution, double *ret_internal,
                       kj_error *err)
{
    return sampler->ops->sample(sampler->instance, &sampler->rng, history, trial, name,
                                distribution, ret_internal, err);
}
