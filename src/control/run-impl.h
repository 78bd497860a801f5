/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a run. Two threads work on it: the training thread (every public call) and the
 * helper thread. `lock` covers everything that is not said to be constant or atomic; it is never
 * held while a callback of the program runs.
 */
#ifndef KJI_RUN_IMPL_H
#define KJI_RUN_IMPL_H

#include "door-signal.h"
#include "feed.h"
#include "helper.h"
#include "journal.h"
#include "metrics.h"
#include "params.h"
#include "publish.h"
#include "ranks.h"
#include "run-events.h"
#include "schedule-file.h"
#include "seen.h"
#include "verbs.h"

#include <kajitori/run.h>

#include <pthread.h>

/* Bits of kj_run_cell.pending. */
enum {
    KJI_PENDING_COMMAND = 1,   /* a command is due at the next safe point */
    KJI_PENDING_REFRESH = 2,   /* a parameter is to be read anew */
    KJI_PENDING_WARNING = 4,   /* a warning waits for the log hook */
    KJI_PENDING_LOOK = 8,      /* somebody asked whether the training still moves */
    KJI_PENDING_STOPPED = 16,  /* an ending was applied: for ever, so that every poll returns it */
    KJI_PENDING_DOORS = 32,    /* without a helper thread, for ever: the doors are served here */
    KJI_PENDING_SCHEDULE = 64, /* a schedule is to be taken in */
    KJI_PENDING_DUE = 128,     /* due_step or due_epoch became smaller since the last safe point */
    KJI_PENDING_FIRST_STEP = 256 /* the first step is to be known */
};

enum {
    KJI_QUEUE_MAX = 10000,
    KJI_WARNINGS_MAX = 8,
    KJI_PHASE_MAX = 63,
    KJI_RESULT_MAX = 65536,
    KJI_NOTE_MAX = 4096
};

/* The newest checkpoint. */
typedef struct kji_checkpoint {
    char *path; /* NULL: none */
    int64_t step;
    int64_t epoch;
} kji_checkpoint;

/* A pause that holds. */
typedef struct kji_hold {
    int64_t seq;      /* of the command */
    int64_t since_ms; /* by kji_monotonic_ms */
    int64_t until_ms; /* then it is over by itself; 0: until somebody ends it */
} kji_hold;

struct kj_run {
    kj_run_cell cell; /* atomic */

    /* constant once kj_run_open has returned */
    char *id;
    char *name;
    char *framework;
    double start_time;
    struct json_object *json; /* run.json; read under the lock, since json-c keeps texts inside */
    kji_publication place;
    uint32_t flags;
    kji_ranks ranks;
    char *rank_refusal; /* of what all ranks would have to do; NULL: this is the only one */

    bool forked;             /* this is the copy in a child process: deaf */
    struct kj_run *next_run; /* forks.c */

    pthread_mutex_t lock;
    int n_waiting; /* atomic: the training thread wants the lock */
    pthread_cond_t has_had_it;
    bool is_second_waiting; /* for the above */
    bool is_waiting;        /* the training thread waits for wake_fd */
    int wake_fd; /* eventfd: for the training thread that waits in a pause; -1 without helper */

    kji_command *queue; /* accepted, not yet carried out; by seq */
    kji_command **queue_end;
    size_t n_queued;
    size_t queued_bytes;
    int64_t last_seq;
    kji_seen seen; /* command ids */
    kji_schedule_file schedule;
    int64_t total_steps;
    int64_t total_epochs;
    int ending;         /* enum kj_ending; atomic; an abort may follow, nothing takes it back */
    int64_t stop_seq;   /* of the command that ended the training */
    char *stop_reason;  /* atomic */
    char *first_reason; /* the stop's before an abort; somebody may still read it */
    bool stop_saved;    /* a checkpoint was saved with it */
    int stop_validate;  /* as kj_run_stop_validate */
    uint32_t abilities; /* enum kj_ability */
    struct json_object *remarks;   /* by verb: what its senders are told; NULL: none yet */
    char *refusal[KJI_N_STANDARD]; /* why the program refuses a standard verb; NULL: it does not */
    kji_checkpoint checkpoint;
    char *resumed_from; /* constant */
    char *mailbox_root; /* constant; NULL: none was asked for */
    bool paused;
    kji_hold hold;   /* while paused */
    bool is_visited; /* the training thread is at a safe point */
    bool is_ended;   /* kj_run_close has begun: no command is taken any more */
    char phase[KJI_PHASE_MAX + 1];

    kji_params params;
    kji_own_verbs own_verbs;
    kji_metrics metrics;
    kji_journal journal;
    kji_feed feed;

    int64_t moved_ms;   /* when the training was last known to be at a safe point */
    int64_t moved_step; /* cell.step at that time */

    char *warnings[KJI_WARNINGS_MAX];
    size_t n_warnings;

    kji_signals signals;
    kji_run_events events; /* the training thread's own */

    kji_helper helper; /* the helper thread's own; its descriptors are closed in a forked child */
};

/*
 * Takes `command` over (from kji_command_from_…, which returned `parsed` and filled `err`): numbers
 * it, checks it, journals it, and answers or queues it. Returns 0 and the record in *ret_record, or
 * KJ_EREJECTED with the record there, too (NULL when the line was only counted, see flood.h).
 */
int kji_run_submit(kj_run *run, kji_command *command, const kji_sender *sender, int parsed,
                   struct json_object **ret_record, kj_error *err);

/*
 * A line of text, from whatever door: 1 and the record, as above, 0 when there is no command in it.
 * `problem` not NULL: the line could not be read, and this is why.
 */
int kji_run_submit_line(kj_run *run, const kji_sender *sender, const char *text, size_t size,
                        const char *problem, struct json_object **ret_record, kj_error *err);

/* The same for a line of a FIFO, whose sender hears nothing. */
void kji_run_take_line(kj_run *run, kji_fifo *fifo, const char *text, size_t size,
                       const char *problem);

/* The command is in `state` from now on: journalled, told to those who watch, remembered under its
 * command_id. */
void kji_run_record(kj_run *run, kji_command *command, int state);
/* The same for the last state; takes the command over. */
void kji_run_finish(kj_run *run, kji_command *command, int state);

/* A line with "event" instead of "seq". Takes `fields` (may be NULL) over. */
void kji_run_event(kj_run *run, const char *event, struct json_object *fields);

/* Journals how many lines of the FIFO were only counted, if any were. */
void kji_run_tell_flood(kj_run *run, kji_fifo *fifo);

/* Writes run.json into a folder. Lock held, once the run is open. */
int kji_run_write_json(kj_run *run, int dir_fd, kj_error *err);

/* "running", "paused", "stopping". */
const char *kji_run_state(const kj_run *run);
/* Tells those who watch. */
void kji_run_tell_state(kj_run *run, const char *state);

/* Journals a warning at once; the log hook gets it from the training thread, at a safe point. */
void kji_run_warn(kj_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Journals the first `n` of the waiting warnings: they came before there was a journal. */
void kji_run_journal_warnings(kj_run *run, size_t n);

/* Hands the waiting warnings to the log hook. Training thread, lock NOT held. */
void kji_run_log_warnings(kj_run *run);

/* The slow path of kj_run_poll and its kin. */
int kji_run_visit(kj_run *run, kji_place place);
/* Wakes the training thread out of a pause, to look anew. */
void kji_run_wake_training(kj_run *run);
/* Works out cell.pending, cell.due_step and cell.due_epoch anew. Lock held. */
void kji_run_update_due(kj_run *run);
/* The training was seen at a safe point. Lock held. */
void kji_run_moved(kj_run *run);
/* Reads the parameters that are stale, or all. Training thread, lock held, let go of meanwhile. */
void kji_run_refresh(kj_run *run, bool all);

/* "stop", "prune", "leave", "abort"; NULL for KJ_ENDING_NONE. */
const char *kji_ending_name(int ending);
/* What the safe points return after it. */
int kji_ending_bits(int ending);
/* Ends a pause whose time is over. Training thread, lock held. */
void kji_run_look_at_hold(kj_run *run);
/* How long the pause still lasts; -1: until somebody ends it. Lock held. */
int64_t kji_run_hold_left_ms(const kj_run *run);
/* Whether it waits for the end of an epoch, since the program can do it there only. Lock held. */
bool kji_run_needs_epoch_end(const kj_run *run, const kji_command *command);

struct json_object *kji_run_describe_checkpoint(const kj_run *run);
struct json_object *kji_run_status(kj_run *run);
struct json_object *kji_run_describe_params(kj_run *run);

/*
 * The lock, for the training thread; and for the helper, who lets the training have it first:
 * a mutex that is given back and taken again at once is hardly ever had by anybody else, and a busy
 * client must not hold the training. He sleeps meanwhile, since the training may have to wait for a
 * processor, too.
 */
static inline void kji_run_lock(kj_run *run)
{
    __atomic_fetch_add(&run->n_waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&run->lock);
    __atomic_fetch_sub(&run->n_waiting, 1, __ATOMIC_RELAXED);
    if (run->is_second_waiting)
        pthread_cond_signal(&run->has_had_it);
}

static inline void kji_run_lock_second(kj_run *run)
{
    pthread_mutex_lock(&run->lock);
    while (__atomic_load_n(&run->n_waiting, __ATOMIC_RELAXED)) {
        run->is_second_waiting = true;
        pthread_cond_wait(&run->has_had_it, &run->lock);
    }
    run->is_second_waiting = false;
}

static inline void kji_run_unlock(kj_run *run)
{
    pthread_mutex_unlock(&run->lock);
}

/* A stop was applied, or another ending. */
static inline bool kji_run_is_stopping(const kj_run *run)
{
    return __atomic_load_n(&run->ending, __ATOMIC_RELAXED) != KJ_ENDING_NONE;
}

static inline int64_t kji_run_step(const kj_run *run)
{
    return __atomic_load_n(&run->cell.step, __ATOMIC_RELAXED);
}

static inline int64_t kji_run_epoch(const kj_run *run)
{
    return __atomic_load_n(&run->cell.epoch, __ATOMIC_RELAXED);
}

static inline void kji_run_pend(kj_run *run, uint32_t bits)
{
    __atomic_fetch_or(&run->cell.pending, bits, __ATOMIC_RELAXED);
}

#endif
