/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of the channel: find runs and talk to them. docs/protocol.md specifies what goes
 * over the socket; results and events are handed over as its JSON texts. A list and a client are
 * for one thread at a time; a client is not for both sides of a fork. Every call may fail with
 * KJ_EMEM.
 */
#ifndef KAJITORI_CLIENT_H
#define KAJITORI_CLIENT_H

#include <kajitori/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_run_list kj_run_list;

typedef struct kj_run_info {
    uint32_t size;
    int32_t pid; /* of the training process */
    const char *id;
    const char *name;
    const char *dir;       /* folder of the doors, or the mailbox */
    const char *framework; /* "" when not said */
    const char *study;     /* label, "" for a run outside a study */
    int64_t trial;         /* label, -1 for a run outside a study */
    double start_time;     /* seconds since 1970 */
    const char *json;      /* the whole run.json */
} kj_run_info;

/*
 * The live runs, oldest first, of `runtime_dir` or, when that is NULL, of every place where a run
 * of this user may be, and of the mailboxes in $KAJITORI_MAILBOX_DIR (runs of other hosts). Doors
 * of dead runs are removed on the way. No folder at all is an empty list.
 */
KJ_API int kj_run_list_load(const char *runtime_dir, kj_run_list **ret_list, kj_error *err);
KJ_API void kj_run_list_free(kj_run_list *list);
KJ_API uint64_t kj_run_list_size(const kj_run_list *list);
/* Borrowed from the list. `index` < size. */
KJ_API const kj_run_info *kj_run_list_get(const kj_run_list *list, uint64_t index);
/*
 * The one run whose id begins with `prefix` (an exact id wins), or the only one when `prefix` is
 * NULL or "". KJ_ENORUN, or KJ_EAMBIGUOUS with the candidates in the message.
 */
KJ_API int kj_run_list_find(const kj_run_list *list, const char *prefix,
                            const kj_run_info **ret_info, kj_error *err);

typedef struct kj_client kj_client;

/* Connects to the run's socket and says hello. `dir` = kj_run_info.dir. KJ_ENORUN when nobody
 * listens, KJ_EPROTO for an unknown version, KJ_ETIMEOUT when the run takes no connection or does
 * not answer for 5 s (its process is stopped). */
KJ_API int kj_client_open(const char *dir, kj_client **ret_client, kj_error *err);
/* The same, but KJ_ETIMEOUT after timeout_ms, which counts from 1 to 5000. */
KJ_API int kj_client_open_within(const char *dir, int timeout_ms, kj_client **ret_client,
                                 kj_error *err);

enum kj_client_flag {
    KJ_CLIENT_READ_ONLY = 1 /* by the monitor socket: questions only. KJ_EUNSUPPORTED when the run
                               is older and has none */
};

typedef struct kj_client_options {
    uint32_t size;
    uint32_t flags;     /* enum kj_client_flag */
    int32_t timeout_ms; /* 1 to 5000; 0 = 5000 */
    int32_t reserved;
} kj_client_options;

#define KJ_CLIENT_OPTIONS_INIT             \
    {                                      \
        sizeof(kj_client_options), 0, 0, 0 \
    }

/* The same with options (may be NULL). A folder without a socket that has a mailbox is talked to
 * by that (docs/mailbox.md): the calls below are the same but slower, and "subscribe" is
 * KJ_EUNSUPPORTED. A request that was not taken within its time-out is taken back. KJ_ENORUN when
 * the run shows no sign of life, KJ_EUNSUPPORTED with KJ_CLIENT_READ_ONLY: a mailbox has one door.
 */
KJ_API int kj_client_open_with(const char *dir, const kj_client_options *options,
                               kj_client **ret_client, kj_error *err);
KJ_API void kj_client_close(kj_client *client);
/* The version of the run's library, from its hello; valid until kj_client_close. */
KJ_API const char *kj_client_get_version(const kj_client *client);
/* For poll(2): readable when an event may be there. Borrowed. */
KJ_API int kj_client_get_fd(const kj_client *client);

/*
 * For bindings to languages that handle signals in a way of their own: while a call below waits,
 * `look` is called after each signal and ten times a second, and when it returns nonzero the call
 * ends with KJ_EINTERRUPTED. A command that was sent may still be applied; the connection can be
 * used further. NULL, the default: a wait is not interrupted.
 */
KJ_API void kj_client_set_interrupt(kj_client *client, int (*look)(void *userdata), void *userdata);

/*
 * One request and its answer. `params_json` is an object, or NULL. timeout_ms < 0 waits for ever.
 * *ret_json: the JSON-RPC result, for kj_free. KJ_EREJECTED etc. with the run's own message when it
 * answers with an error, KJ_ETIMEOUT, KJ_EENDED when the run ended meanwhile, KJ_EARG for params
 * that are no object, KJ_EPROTO for an answer that is none: then the connection is of no further
 * use. Events that arrive meanwhile are kept for kj_client_next_event, the newest 4096; those that
 * are left out become one event "gap".
 */
KJ_API int kj_client_call(kj_client *client, const char *method, const char *params_json,
                          int timeout_ms, char **ret_json, kj_error *err);

/*
 * The next event (the `params` of an event notification) as JSON: 1 with *ret_json, 0 when none
 * came within timeout_ms, KJ_EENDED after the last one.
 */
KJ_API int kj_client_next_event(kj_client *client, int timeout_ms, char **ret_json, kj_error *err);

enum kj_wait {
    KJ_WAIT_ACCEPTED = 0, /* the run has checked, numbered and journalled it */
    KJ_WAIT_APPLIED = 1,  /* the training thread has carried it out */
    KJ_WAIT_DONE = 2      /* and what it started is finished */
};

/*
 * Sends a command and waits. `params_json`: the params of the protocol's "command" ({"verb": …,
 * "args": {…}, …} or {"line": "set lr=0.1"}). *ret_json: the newest state of the command: {"seq",
 * "state", "verb", "step", "old", "new", "result", …}; on KJ_EREJECTED and KJ_EFAILED err->message
 * is the run's reason and *ret_json is untouched. KJ_ETIMEOUT: it may still be applied; KJ_EENDED.
 */
KJ_API int kj_client_command(kj_client *client, const char *params_json, int wait, int timeout_ms,
                             char **ret_json, kj_error *err);

typedef int (*kj_journal_fn)(void *userdata, const char *json_line);

/*
 * Finds the journal of the run whose id begins with `prefix` (NULL: the newest one) and calls `fn`
 * for each line of all its files, oldest first; a nonzero return of `fn` ends it. A torn last line
 * is left out; lines that are gone, or in a file that cannot be read, are one line "missing" (with
 * "n", the number of the last of them, "first" and "text"). *ret_run_id, if not NULL, is for
 * kj_free. KJ_ENORUN, KJ_EAMBIGUOUS, KJ_EIO.
 */
KJ_API int kj_journal_read(const char *state_dir, const char *prefix, kj_journal_fn fn,
                           void *userdata, char **ret_run_id, kj_error *err);

/*
 * The run.json of a run that has left a journal, found as by kj_journal_read: *ret_json and
 * *ret_run_id are for kj_free. KJ_EPERM when it is not ours, or others may write there: what it
 * says may be started again. KJ_ENORUN, KJ_EAMBIGUOUS, KJ_EIO, KJ_EDATA.
 */
KJ_API int kj_past_run_load(const char *state_dir, const char *prefix, char **ret_json,
                            char **ret_run_id, kj_error *err);

enum kj_gc_flag { KJ_GC_DRY_RUN = 1 };

typedef struct kj_gc_options {
    uint32_t size;
    uint32_t flags;          /* enum kj_gc_flag */
    const char *runtime_dir; /* as elsewhere */
    const char *state_dir;
    double older_than_s; /* journals of runs that ended longer ago go; < 0: age does not count */
    int64_t keep_bytes;  /* then the oldest, until those that stay have no more; < 0: no limit */
} kj_gc_options;

#define KJ_GC_OPTIONS_INIT                             \
    {                                                  \
        sizeof(kj_gc_options), 0, NULL, NULL, -1.0, -1 \
    }

enum kj_gc_kind {
    KJ_GC_RUN = 1,  /* STATE/runs/RUN-ID of a run that has ended: journal, run.json, logs */
    KJ_GC_DOORS = 2 /* RUNTIME/RUN-ID of a dead run */
};

typedef struct kj_gc_item {
    uint32_t size;
    int32_t kind; /* enum kj_gc_kind */
    const char *path;
    const char *run_id;
    int64_t bytes;
    double age_s;       /* since the run ended, or was last heard of */
    const char *reason; /* "older than 30 days", ... */
} kj_gc_item;

/* Told of each thing that is removed (or would be); a nonzero return ends it, before that one is.
 */
typedef int (*kj_gc_fn)(void *userdata, const kj_gc_item *item);

/*
 * Removes what runs that have ended left behind. Live runs are never touched: they hold locks.
 * Files that are not kajitori's keep their folder. KJ_EARG, KJ_EIO, KJ_EPERM; what can be removed
 * is removed before the first error is returned.
 */
KJ_API int kj_gc(const kj_gc_options *options, kj_gc_fn fn, void *userdata, kj_error *err);

#ifdef __cplusplus
}
#endif

#endif
