/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the processes of a distributed training this one is (docs/protocol.md, section 9). */
#ifndef KJI_RANKS_H
#define KJI_RANKS_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <stddef.h>

enum { KJI_RANKS_MAX = 1 << 24 };

typedef struct kji_ranks {
    int64_t rank;
    int64_t world_size;   /* 1: no other */
    const char *launcher; /* what says so, a constant; "" for a process of its own */
    bool is_alone;        /* each rank is a run of its own: the program or its user said so */
} kji_ranks;

#define KJI_RANKS_INIT  \
    {                   \
        0, 1, "", false \
    }

/*
 * Asks the environment. The launcher that is nearest to the program counts: torchrun, the MPIs,
 * Keras, JAX, a step of Slurm, TF_CONFIG, in this order. What cannot be meant is left out, and the
 * first such thing is told in `ret_note` (message "" for none).
 */
void kji_ranks_find(kji_ranks *ret_ranks, kj_error *ret_note);

/*
 * The place of a task in a TF_CONFIG: chief, master, the workers, then the others by name; an
 * evaluator that the cluster does not name comes last. launcher and is_alone are left as they are.
 * KJ_EDATA.
 */
int kji_ranks_parse_tf_config(const char *text, size_t size, kji_ranks *ranks, kj_error *err);

/* Other ranks go on beside this one, and are not steered. */
bool kji_ranks_are_several(const kji_ranks *ranks);
/* One of these: it opens no doors. */
bool kji_ranks_is_quiet(const kji_ranks *ranks);

/* Why a command that all ranks would have to carry out is refused; for free. NULL when memory is
 * gone. */
char *kji_ranks_refusal(const kji_ranks *ranks);

#endif
