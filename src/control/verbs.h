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

/* The standard verbs that a program may refuse, and what they are to it. */
enum kji_standard {
    KJI_NOT_STANDARD,
    KJI_CHECKPOINT, /* these three it provides itself */
    KJI_EVALUATE,
    KJI_EXTEND,
    KJI_PAUSE,
    KJI_N_STANDARD
};

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
    bool has_kept_room;    /* is taken in although the queue is full */
    bool takes_params;     /* its keys are names of parameters, checked by its own `check` */
    bool takes_save;       /* save=yes */
    bool is_remark;        /* its line in the journal is what it is for: never only counted */
    bool at_epoch_end;     /* the program can do it there only */
    bool is_for_all_ranks; /* one rank of several must not do it without the others */
    int standard;          /* enum kji_standard; nobody provides it while carry_out is NULL */
    int ending;            /* enum kj_ending; of pause only with level=leave */
    const kji_verb_arg *args;
    size_t n_args;

    /* Why the program cannot do it, borrowed from the run; NULL when it can. May be NULL: any can.
     */
    const char *(*why_not)(const kj_run *run, const struct kji_verb *verb);

    /* Helper thread. Checks what the declared words and arguments do not say; may be NULL.
     * KJ_EREJECTED, or KJ_EUNSUPPORTED for what this program cannot do. */
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
    kji_verb *provided[KJI_N_STANDARD]; /* NULL where the program provides none */
} kji_own_verbs;

void kji_own_verbs_done(kji_own_verbs *verbs);
/* KJ_EEXIST, KJ_EARG, KJ_ERANGE, KJ_EMEM. */
int kji_own_verbs_add(kji_own_verbs *verbs, const kj_verb *from, kj_error *err);

/* NULL when there is none. */
const kji_verb *kji_verb_find(const kji_own_verbs *own, const char *name);
/* KJ_EREJECTED with the nearest name and the list. */
int kji_verb_fail_unknown(const kji_own_verbs *own, const char *name, kj_error *err);

/* KJ_EUNSUPPORTED with the reason when the program cannot do it, or one rank must not. */
int kji_verb_check_can(const kj_run *run, const kji_verb *verb, kj_error *err);

/* KJ_EREJECTED when a required argument is missing in `args`. */
int kji_verb_check_required(const kji_verb *verb, struct json_object *args, kj_error *err);

/* Finds the verb of a command and checks words and arguments against it; arguments get their types.
 * KJ_EREJECTED, or KJ_EUNSUPPORTED for what this program cannot do. */
int kji_verb_check(kj_run *run, const kji_own_verbs *own, kji_command *command, kj_error *err);

/* The protocol's answer to help: of all verbs, or of one. KJ_EREJECTED for an unknown one. */
int kji_verbs_describe(const kj_run *run, const kji_own_verbs *own, const char *name,
                       struct json_object **ret_result, kj_error *err);

#endif
