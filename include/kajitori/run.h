/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training side: a run that can be steered from outside while it goes on.
 *
 *     kj_run *run;
 *     if (kj_run_open(NULL, &run, &err) < 0) ...
 *     kj_run_add_param(run, &(kj_param){.size = sizeof(kj_param), .name = "lr", ...}, &err);
 *     for (epoch = 0; epoch < epochs && !kj_run_should_stop(run); epoch++) {
 *         kj_run_begin_epoch(run, epoch);
 *         for (...; ...; step++) {
 *             if (kj_run_begin_step(run, step) & KJ_RUN_STOP) break;
 *             train_one_batch();
 *         }
 *         kj_run_report(run, "loss", step, loss, NULL);
 *         kj_run_end_epoch(run, epoch);
 *     }
 *     kj_run_close(run);
 *
 * A helper thread owns the doors (FIFO, sockets, mailbox) and answers questions at once, also while
 * the training is inside a long call. Commands that change something are carried out in the thread
 * that calls kj_run_begin_step, kj_run_poll or kj_run_end_epoch, and only there: callbacks
 * (setters, verbs) never run anywhere else. kj_run_poll costs one atomic load while there is
 * nothing to do, kj_run_begin_step a store and two.
 *
 * All functions of one run are for one thread, the training thread, unless said otherwise. Inside a
 * callback the safe points below carry nothing out, and kj_run_close must not be called. After
 * fork() the child's copy of a run is deaf: its calls do nothing, the doors stay with the parent.
 */
#ifndef KAJITORI_RUN_H
#define KAJITORI_RUN_H

#include <kajitori/error.h>
#include <kajitori/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_run kj_run;

enum kj_run_flag {
    KJ_RUN_STRICT = 1, /* a door that cannot be opened is an error of kj_run_open, not a warning */
    KJ_RUN_INTERRUPTIBLE = 2, /* a signal handler that ran ends the wait of a paused run: see
                                 KJ_RUN_INTERRUPTED */
    KJ_RUN_LISTEN_LATER = 4,  /* what comes to the doors waits there until kj_run_listen */
    KJ_RUN_THREADLESS = 8,    /* no helper thread: the safe points serve the doors, at most 20 times
                                 a second; questions are answered only there */
    KJ_RUN_RANK_ALONE = 16    /* each rank of a distributed training is a run of its own, since none
                                 waits for another [also by $KAJITORI_RANK_ALONE=1] */
};

/* Every pointer may be NULL, every number 0: the default in brackets. Strings are copied. */
typedef struct kj_run_options {
    uint32_t size;
    uint32_t flags;          /* enum kj_run_flag */
    const char *name;        /* what `kajitori ps` shows [the program's file name] */
    const char *run_id;      /* 1 to 64 of [A-Za-z0-9._-], not beginning with "." or "-"
                                [$KAJITORI_RUN_ID if free, else made up] */
    const char *fifo_path;   /* a FIFO at this path too; made (mode 0600) when missing, an existing
                                FIFO is used as it is */
    const char *framework;   /* shown by status, for example "keras 3.15.1 (tensorflow)" */
    const char *runtime_dir; /* folder of the doors [$KAJITORI_RUNTIME_DIR,
                                $XDG_RUNTIME_DIR/kajitori, /tmp/kajitori-UID] */
    const char *state_dir; /* folder of the journals [$KAJITORI_STATE_DIR, $XDG_STATE_HOME/kajitori,
                              ~/.local/state/kajitori] */
    int64_t total_steps;   /* for progress; 0 = not known */
    int64_t total_epochs;
    const char *mailbox_dir;   /* mailboxes too, for file systems that sockets do not cross
                                  [$KAJITORI_MAILBOX_DIR, else none] */
    const char *schedule_path; /* text commands that are taken in before the first step
                                  [$KAJITORI_SCHEDULE, else none] */
    const char *signals;       /* "INT,TERM,USR1=checkpoint": signals that are commands
                                  (docs/protocol.md, section 8) [none] */
    const char *events_dir;    /* what the run reports is written there as event files too
                                  [$KAJITORI_EVENTS_DIR, else none] */
    int64_t rank;       /* with world_size > 0: what the framework says of the processes that */
    int64_t world_size; /* train together, 0 <= rank < world_size <= 2^24 [0, 0: by the
                           environment, kj_run_rank] */
} kj_run_options;

#define KJ_RUN_OPTIONS_INIT                                                                    \
    {                                                                                          \
        sizeof(kj_run_options), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, \
            NULL, 0, 0                                                                         \
    }

/*
 * Opens the doors, starts the helper thread, publishes the run. `options` may be NULL.
 * A channel that cannot be had (no writable folder, a regular file where the FIFO should be, ...)
 * is one warning to the log hook, and the call succeeds with a run whose other doors work, or with
 * a deaf run if none does: a training never dies of its rudder. With KJ_RUN_STRICT it is an error.
 * KJ_EARG for options that cannot be meant (a malformed run_id), KJ_EMEM.
 */
KJ_API int kj_run_open(const kj_run_options *options, kj_run **ret_run, kj_error *err);

/*
 * The process's number among those of a distributed training, and how many these are: 0 and 1 for a
 * training of one. Found in the environment that a launcher makes (docs/protocol.md, section 9),
 * unless the options say it.
 * With several, rank 0 refuses what all would have to do, and the others are deaf; see
 * KJ_RUN_RANK_ALONE. Any thread.
 */
KJ_API int64_t kj_run_rank(const kj_run *run);
KJ_API int64_t kj_run_world_size(const kj_run *run);

/* Nonzero when this process may be steered alone: it is the only one, or KJ_RUN_RANK_ALONE holds.
 * Any thread. */
KJ_API int kj_run_rank_alone(const kj_run *run);

/*
 * With KJ_RUN_LISTEN_LATER: from now on the doors are served. A program that registers parameters
 * and verbs first is never asked for one that is about to come. Whoever writes or connects before
 * waits meanwhile, so call it soon. Nothing to do, and 0, for a run that listens or is deaf. Errors
 * as of kj_run_open.
 */
KJ_API int kj_run_listen(kj_run *run, kj_error *err);

/*
 * Ends the run: commands that were accepted and never applied are journalled and answered as such,
 * waiting clients are told, the doors are removed, the thread is joined. NULL is fine.
 */
KJ_API void kj_run_close(kj_run *run);

/* The run's id, valid until kj_run_close. Any thread. */
KJ_API const char *kj_run_id(const kj_run *run);

/* The folder of the doors (without one, the mailbox), "" when the run is deaf; valid until
 * kj_run_close. Any thread. */
KJ_API const char *kj_run_dir(const kj_run *run);

/*
 * What the calls below return, as bits. A stop stays set once it was applied.
 */
enum kj_run_bits {
    KJ_RUN_STOP = 1,        /* a stop was applied: leave the training loop */
    KJ_RUN_INTERRUPTED = 2, /* only with KJ_RUN_INTERRUPTIBLE: the run is still paused; look at the
                               signal, then call again */
    KJ_RUN_PRUNED = 4,      /* with KJ_RUN_STOP: a rule pruned it */
    KJ_RUN_LEFT = 8,        /* with KJ_RUN_STOP: a checkpoint was saved; end the process soon, with
                               kj_run_exit_status, to be started again later */
    KJ_RUN_ABORTED = 16     /* with KJ_RUN_STOP: leave at once, without validation or saving */
};

/* What ends a training, by kj_run_ending. */
enum kj_ending {
    KJ_ENDING_NONE = 0, /* nothing yet, or its own end */
    KJ_ENDING_STOP = 1,
    KJ_ENDING_PRUNE = 2,
    KJ_ENDING_LEAVE = 3, /* pause level=leave */
    KJ_ENDING_ABORT = 4
};

enum kj_exit { KJ_EXIT_LEFT = 75, KJ_EXIT_PRUNED = 76, KJ_EXIT_ABORTED = 77 };

/*
 * What this program does with some commands, as bits. Without its bit the command is refused:
 * nothing is answered "ok" and then ignored.
 */
enum kj_ability {
    KJ_CAN_SKIP_VALIDATION = 1, /* looks at kj_run_stop_validate: stop validate=... */
    KJ_CAN_LEAVE = 2,           /* looks at KJ_RUN_LEFT: pause level=leave */
    KJ_CAN_ABORT = 4,           /* looks at KJ_RUN_ABORTED: abort */
    KJ_SKIPS_VALIDATION = 8 /* with KJ_CAN_SKIP_VALIDATION: skips it where the stop says nothing */
};

/*
 * A safe point: carries out the commands that are due (at=now), waits in it while paused, and
 * returns enum kj_run_bits. One atomic load when there is nothing to do. Errors of callbacks go to
 * the sender, not to the training.
 */
KJ_API int kj_run_poll(kj_run *run);

/*
 * Step number `step` (0-based, counted over the whole training) begins: publishes the counter,
 * carries out what was scheduled for this or an earlier step, then as kj_run_poll.
 */
KJ_API int kj_run_begin_step(kj_run *run, int64_t step);

/* Epoch number `epoch` (0-based) begins: publishes the counter, then as kj_run_poll. */
KJ_API int kj_run_begin_epoch(kj_run *run, int64_t epoch);

/* The epoch ends (and is published, where kj_run_begin_epoch was not called): reads all parameters
 * anew, carries out what was scheduled for the end of this or an earlier epoch (at=epoch), then as
 * kj_run_poll. */
KJ_API int kj_run_end_epoch(kj_run *run, int64_t epoch);

/* Nonzero once a stop was applied. Any thread. */
KJ_API int kj_run_should_stop(const kj_run *run);

/* Says what the program can do, enum kj_ability; adds to what was said before. */
KJ_API void kj_run_declare(kj_run *run, uint32_t abilities);

/* What ended the training, enum kj_ending. Any thread. */
KJ_API int kj_run_ending(const kj_run *run);

/* The exit status that tells a supervisor how the training ended: 0, or one of enum kj_exit. */
KJ_API int kj_run_exit_status(const kj_run *run);

/* What the stop said about the validation: 1 wanted, 0 not wanted, -1 nothing said. */
KJ_API int kj_run_stop_validate(const kj_run *run);

/* The checkpoint that `kajitori resume` wants the training to go on from ($KAJITORI_CHECKPOINT), ""
 * for a fresh start; valid until kj_run_close. */
KJ_API const char *kj_run_resumed_from(const kj_run *run);

/* The reason given with the stop that was applied, "" when none was given or nothing was applied;
 * valid until kj_run_close. */
KJ_API const char *kj_run_stop_reason(const kj_run *run);

/* How long the training is to be, when that is known only now or has changed; 0 = not known. */
KJ_API void kj_run_set_totals(kj_run *run, int64_t total_steps, int64_t total_epochs);

/* What the training is doing now, for status and records: "train", "validation", "checkpoint", ...
 * Copied, at most 63 bytes. In "validation" a stop is answered with what becomes of the rest of it,
 * by a program that can skip it. */
KJ_API void kj_run_set_phase(kj_run *run, const char *phase);

/*
 * Reports metric `tag` (1 to 512 bytes of UTF-8) at `step`. NaN and infinities are values. It
 * reaches status and those who watch; a slow reader loses the oldest reports and is told so, the
 * training never waits. KJ_EARG for another tag, KJ_ERANGE for the 1025th.
 */
KJ_API int kj_run_report(kj_run *run, const char *tag, int64_t step, double value, kj_error *err);

/* Writes a remark of the program (1 to 4096 bytes of UTF-8) into the journal. KJ_EARG. */
KJ_API int kj_run_note(kj_run *run, const char *text, kj_error *err);

enum kj_effect { KJ_EFFECT_STEP = 0, KJ_EFFECT_EPOCH = 1, KJ_EFFECT_RESTART = 2 };

enum kj_param_flag {
    KJ_PARAM_MIN = 1,           /* `min` holds */
    KJ_PARAM_MAX = 2,           /* `max` holds */
    KJ_PARAM_MIN_EXCLUSIVE = 4, /* value > min instead of >= */
    KJ_PARAM_READ_ONLY = 8      /* get only; `set` is NULL */
};

/*
 * Parameters: what `kajitori get` and `set` see. NaN and infinities are always refused, so a setter
 * sees finite values of the declared type and range only. Both callbacks run in the training
 * thread, at a safe point.
 */
typedef struct kj_param {
    uint32_t size;
    int32_t type;     /* enum kj_type, not KJ_TYPE_NONE */
    const char *name; /* a letter, then letters, digits, "_", "-", "." up to 64 bytes; not one of
                         the reserved keys of docs/protocol.md */
    const char *unit; /* "1/s", ...; NULL = none */
    const char *help; /* one line; NULL = none */
    uint32_t flags;   /* enum kj_param_flag */
    int32_t effect;   /* enum kj_effect: when a new value takes effect */
    double min;       /* for KJ_TYPE_INT and KJ_TYPE_FLOAT */
    double max;
    /* Fills *ret_value with the value in force. A string stays valid until the next call. */
    int (*get)(void *userdata, kj_value *ret_value, kj_error *err);
    /* Puts `value` in force. It is read back through `get`, and both old and new go into the reply.
     */
    int (*set)(void *userdata, const kj_value *value, kj_error *err);
    void *userdata;
} kj_param;

/* Registers a parameter, calls its getter once. Strings are copied. KJ_EEXIST for a name that is
 * taken, KJ_EARG, KJ_ERANGE for more than 1024, or the getter's error. */
KJ_API int kj_run_add_param(kj_run *run, const kj_param *param, kj_error *err);

typedef struct kj_call kj_call;

enum kj_arg_flag { KJ_ARG_MIN = 1, KJ_ARG_MAX = 2, KJ_ARG_MIN_EXCLUSIVE = 4, KJ_ARG_REQUIRED = 16 };

/* One argument of an own verb, given as key=value. */
typedef struct kj_arg {
    uint32_t size;
    int32_t type;
    const char *name;
    const char *help;
    uint32_t flags; /* enum kj_arg_flag */
    int32_t reserved;
    double min;
    double max;
} kj_arg;

enum kj_verb_flag {
    KJ_VERB_AT_EPOCH_END = 1 /* only there: a command without at= waits for the end of the epoch */
};

/*
 * A verb of the program's own. `args` is an array of n_args; help shows it. Three names are those
 * of standard verbs, which a program that can do them provides in this way: `checkpoint` (result:
 * an object with "path"), `evaluate` (an object of metrics), and `extend` (the arguments `epochs`
 * and `steps`, one of which is given, are declared already; n_args = 0).
 */
typedef struct kj_verb {
    uint32_t size;
    uint32_t flags; /* enum kj_verb_flag */
    const char *name;
    const char *help;
    const kj_arg *args;
    uint64_t n_args;
    /* Carries it out, in the training thread. An error is the reply "failed" with its message. */
    int (*run)(void *userdata, kj_call *call, kj_error *err);
    void *userdata;
} kj_verb;

/* Registers an own verb. Strings are copied. KJ_EEXIST for a name that is taken (the built-in ones
 * too), KJ_EARG, KJ_ERANGE for more than 256. */
KJ_API int kj_run_add_verb(kj_run *run, const kj_verb *verb, kj_error *err);

/* A standard verb (checkpoint, evaluate, extend, pause) that this program cannot do, and the reason
 * that its senders get: one line. NULL takes it back. KJ_EARG for another verb. */
KJ_API int kj_run_refuse_verb(kj_run *run, const char *verb, const char *reason, kj_error *err);

/* What the program has to say to those who send `verb`, one that it carries out: from now on each
 * answer has it as its `remark`, the first one (accepted) and that of a dry run, too. 1 to 1024
 * bytes of UTF-8; NULL takes it back. KJ_EARG. */
KJ_API int kj_run_remark(kj_run *run, const char *verb, const char *text, kj_error *err);

/* The argument `name`: 1 and *ret_value (valid during the call), or 0 when it was not given. */
KJ_API int kj_call_get_arg(const kj_call *call, const char *name, kj_value *ret_value);

/* All arguments as one JSON object; valid during the call. */
KJ_API const char *kj_call_get_args_json(const kj_call *call);

/* The step and epoch at which the call is carried out. */
KJ_API int64_t kj_call_get_step(const kj_call *call);
KJ_API int64_t kj_call_get_epoch(const kj_call *call);

/* Sets the result that the sender sees, any JSON text. KJ_EDATA when it is not JSON, KJ_ERANGE for
 * more than 65536 bytes. */
KJ_API int kj_call_set_result(kj_call *call, const char *json, kj_error *err);

/*
 * For bindings. The counters that the helper thread shares with the training: naturally aligned
 * memory that lives as long as the run, read and written with plain (relaxed atomic) accesses. A
 * binding whose calls into C are slow does
 *
 *     cell->step = step; if (cell->pending || step >= cell->due_step) kj_run_begin_step(run, step);
 *
 * Where a step is an epoch, too, as an iteration of boosting is, and nothing else is to be done at
 * its end, it may leave out kj_run_end_epoch(run, epoch) while epoch < due_epoch. It may keep
 * due_step and due_epoch between two safe points in C: when one becomes smaller, pending is set.
 */
typedef struct kj_run_cell {
    uint32_t pending;  /* nonzero: something is to be done at the next safe point; read only */
    uint32_t reserved; /* written by the library */
    int64_t step;  /* newest step begun, -1 before the first; written by the training thread only */
    int64_t epoch; /* newest epoch begun, -1 before the first; likewise */
    int64_t due_step;  /* smallest step for which something is scheduled, INT64_MAX for none; read
                          only */
    int64_t due_epoch; /* smallest epoch for whose end something is scheduled, likewise */
} kj_run_cell;

KJ_API kj_run_cell *kj_run_get_cell(kj_run *run);

#ifdef __cplusplus
}
#endif

#endif
