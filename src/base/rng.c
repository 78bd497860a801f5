/* SPDX-License-Identifier: Apache-2.0 */
/*
 * M. Matsumoto, T. Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform
 * pseudo-random number generator", 1998, with the initialisation of 2002. NumPy makes a double of
 * two words: 27 and 26 high bits.
 */
#include "rng.h"

#include "errors.h"

#include <errno.h>
#include <sys/random.h>

enum { SHIFT = 397 };

void kji_rng_seed(kji_rng *rng, uint32_t seed)
{
    rng->state[0] = seed;
    for (uint32_t k = 1; k < KJI_RNG_WORDS; k++) {
        uint32_t last = rng->state[k - 1];
        rng->state[k] = 1812433253u * (last ^ (last >> 30)) + k;
    }
    rng->next = KJI_RNG_WORDS;
}

int kji_rng_seed_randomly(kji_rng *rng, kj_error *err)
{
    uint32_t seed;
    ssize_t got;
    do
        got = getrandom(&seed, sizeof seed, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof seed)
        return kji_fail_errno(err, KJ_EIO, errno, "no random seed from the kernel");
    kji_rng_seed(rng, seed);
    return 0;
}

static void make_words(kji_rng *rng)
{
    uint32_t *s = rng->state;
    for (int k = 0; k < KJI_RNG_WORDS; k++) {
        uint32_t mixed = (s[k] & 0x80000000u) | (s[(k + 1) % KJI_RNG_WORDS] & 0x7fffffffu);
        s[k] = s[(k + SHIFT) % KJI_RNG_WORDS] ^ (mixed >> 1) ^ (mixed & 1 ? 0x9908b0dfu : 0);
    }
    rng->next = 0;
}

uint32_t kji_rng_uint32(kji_rng *rng)
{
    if (rng->next >= KJI_RNG_WORDS)
        make_words(rng);
    uint32_t y = rng->state[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

double kji_rng_double(kji_rng *rng)
{
    uint32_t high = kji_rng_uint32(rng) >> 5;
    uint32_t low = kji_rng_uint32(rng) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

double kji_rng_uniform(kji_rng *rng, double low, double high)
{
    double range = high - low;
    return low + range * kji_rng_double(rng);
}
