/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a verb is: one const table of the built-in ones, and the program's own, in the same form.
 * The run's lock is held around every slot; carry_out lets go of it around callbacks.
 */
#ifndef KJI_VERBS_H
#define KJI_VERBS_H

#include "command.h"
#include "domain.h"

#include <kajitori/run.h>

enum { KJI_VERBS_MAX = 256, KJI_ARGS_MAX = 64 };

typedef struct kji_verb_arg {
    const char *name;
    const char *help;
    bool required;
    kji_domain domain;
} kji_verb_arg;

typedef struct kji_verb {
    const char *name;
    const char *help;
    bool own;
    size_t max_words;
    bool has_kept_room; /* is taken in although the queue is full */
    bool takes_params;  /* its keys are names of parameters, checked by its own `check` */
    const kji_verb_arg *args;
    size_t n_args;

    /* Helper thread. Checks what the declared words and arguments do not say; may be NULL.
     * KJ_EREJECTED. */
    int (*check)(kj_run *run, kji_command *command, kj_error *err);

    /* Helper thread. Not NULL for a verb that is a question: its answer, at once. */
    int (*answer)(kj_run *run, kji_command *command, struct json_object **ret_result,
                  kj_error *err);

    /* Helper thread; may be NULL. 1 when the command needs nothing to be done: *ret_result says
     * why. */
    int (*settle)(kj_run *run, kji_command *command, struct json_object **ret_result);

    /* Training thread, at a safe point. Fills old_values, new_values, result of the command; calls
     * kji_run_record(KJI_APPLIED) when what it does begins (or, where there is something to read
     * back, is in force). */
    int (*carry_out)(kj_run *run, kji_command *command, kj_error *err);

    int (*user_run)(void *userdata, kj_call *call, kj_error *err); /* of an own verb */
    void *userdata;
} kji_verb;

typedef struct kji_own_verbs {
    kji_verb **item;
    size_t n;
    size_t capacity;
} kji_own_verbs;

void kji_own_verbs_done(kji_own_verbs *verbs);
/* KJ_EEXIST, KJ_EARG, KJ_ERANGE, KJ_EMEM. */
int kji_own_verbs_add(kji_own_verbs *verbs, const kj_verb *from, kj_error *err);

/* NULL when there is none. */
const kji_verb *kji_verb_find(const kji_own_verbs *own, const char *name);
/* KJ_EREJECTED with the nearest name and the list. */
int kji_verb_fail_unknown(const kji_own_verbs *own, const char *name, kj_error *err);

/* Finds the verb of a command and checks words and arguments against it; arguments get their types.
 * KJ_EREJECTED. */
int kji_verb_check(kj_run *run, const kji_own_verbs *own, kji_command *command, kj_error *err);

/* The protocol's answer to help: of all verbs, or of one. KJ_EREJECTED for an unknown one. */
int kji_verbs_describe(const kji_own_verbs *own, const char *name, struct json_object **ret_result,
                       kj_error *err);

#endif
