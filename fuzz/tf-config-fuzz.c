/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG: a rank below the world size, or a refusal that says why and changes nothing. */
#include "ranks.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    kji_ranks ranks = KJI_RANKS_INIT;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_ranks_parse_tf_config((const char *)bytes, size, &ranks, &err);
    check(ranks.rank >= 0 && ranks.rank < ranks.world_size);
    check(r == 0 || (*err.message && ranks.world_size == 1));
    return 0;
}
