/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metric sources: whatever a training writes, as one stream of points. A source is named
 * SOURCE:WHERE[:TAG]:
 *
 *     events:logs/7:validation/epoch_loss   TensorBoard event files below a folder, one tag
 *     events:logs/7                         all tags
 *     jsonl:metrics.jsonl:loss              JSON objects, one a line
 *     csv:metrics.csv:val_loss              a table with a header
 *     trainer:out/trainer_state.json:loss   the state file of the Hugging Face Trainer
 *     text:train.log:/loss=(?<value>\S+)/   a PCRE2 pattern over the lines of a text
 *     stdout:/val_loss=(\S+)/               the same over the output of the program that is run
 *
 * docs/metrics.md has the whole grammar. A source is followed for ever: a file that is not there
 * yet, torn at its end, or damaged is never given up. Points are taken one by one (kj_events_step),
 * as columns (kj_events_next), or afterwards as history (KJ_EVENTS_KEEP, kj_events_get_history).
 *
 * One reader is for one thread at a time; several readers are independent; columns may be read and
 * released in any thread. Nothing is allocated for a single point.
 */
#ifndef KAJITORI_EVENTS_H
#define KAJITORI_EVENTS_H

#include <kajitori/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_events kj_events;

enum kj_point_flag {
    KJ_POINT_RESTART =
        1 /* the writer says that what follows starts again at `step`; value is NaN, tag is empty */
};

/* One point. All pointers are valid during the callback only. */
typedef struct kj_point {
    uint32_t size;
    uint32_t flags;  /* enum kj_point_flag */
    const char *run; /* folder relative to WHERE, "." for itself */
    const char *tag; /* tag_size bytes and a NUL; any bytes, not always UTF-8 */
    uint64_t tag_size;
    int64_t step;
    double wall_time;    /* seconds since 1970 as the writer said, NaN where it said none; never use
                            it to judge liveness */
    double value;        /* NaN and infinities are values */
    const char *file;    /* path of the file it came from */
    uint64_t record;     /* 0-based number of the record (line) in that file */
    uint32_t generation; /* how often that file has been replaced or truncated and was read again
                            from its beginning: what comes with a higher one may have come before */
    uint32_t dtype;      /* as it was written, by TensorFlow's DataType number (1 float, 2 double,
                            9 int64, ...); 0: text */
    uint32_t series;     /* number of its run and tag: kj_events_get_series; RESTART: UINT32_MAX */
    uint32_t reserved;
} kj_point;

/* A nonzero return ends kj_events_step early; the rest comes with the next call. */
typedef int (*kj_point_fn)(void *userdata, const kj_point *point);

enum kj_events_flag {
    KJ_EVENTS_FINISHED = 1,  /* nothing will be appended any more: do not wait for a torn or damaged
                                record, skip it */
    KJ_EVENTS_POLL = 2,      /* no inotify, as on network file systems */
    KJ_EVENTS_CHECK_ALL = 4, /* check the payload checksum of every record. Without it, records that
                                hold no scalar (images, graphs, ...) are passed over unread when
                                they are large */
    KJ_EVENTS_KEEP = 8       /* keep all points that are selected, for kj_events_get_history */
};

typedef struct kj_events_options {
    uint32_t size;
    uint32_t flags;        /* enum kj_events_flag */
    const char *text_path; /* the file that a stdout: source reads */
    uint32_t poll_ms;      /* safety poll [10000 with inotify, 500 without; more when a look at all
                              files takes longer than 1/300 of that] */
    uint32_t grace_ms;     /* how long a damaged record may still heal before it is skipped [10000;
                              120000 on network file systems] */
    const char *cursor;    /* go on where this one was: from kj_events_get_cursor [begin] */
    const char *run;       /* deliver and keep the points of this run only, as kj_point.run [all] */
} kj_events_options;

#define KJ_EVENTS_OPTIONS_INIT                               \
    {                                                        \
        sizeof(kj_events_options), 0, NULL, 0, 0, NULL, NULL \
    }

/* Opens a source. The place need not exist yet. `options` may be NULL. KJ_EARG says which part of
 * `spec` is wrong and what would be right; KJ_EDATA that the cursor is malformed, or of another
 * spec. */
KJ_API int kj_events_open(const char *spec, const kj_events_options *options,
                          kj_events **ret_events, kj_error *err);
KJ_API void kj_events_close(kj_events *events);

/* Checks a spec without opening it: 0, or the error kj_events_open would give. */
KJ_API int kj_events_check(const char *spec, kj_error *err);

/* The names that a spec may begin with, "events" first: that of number `index`, NULL behind the
 * last.
 */
KJ_API const char *kj_events_source_name(uint32_t index);

/* For poll(2): readable when kj_events_step has something to look at. Borrowed, constant over the
 * life of the reader. */
KJ_API int kj_events_get_fd(const kj_events *events);

/*
 * Delivers what is new since the last call, waiting at most timeout_ms (0 = do not wait, < 0 = for
 * ever) until there is something. Returns the number of points delivered, 0 at the timeout, when a
 * signal came, or when the source is finished and nothing is left. Order: runs by path, in a run
 * files by name, in a file record by record. `fn` NULL: points are counted (and kept, with
 * KJ_EVENTS_KEEP), not delivered. Errors are those that a wait cannot heal (KJ_EMEM, KJ_EPERM on
 * WHERE itself).
 */
KJ_API int kj_events_step(kj_events *events, int timeout_ms, kj_point_fn fn, void *userdata,
                          kj_error *err);

/* Nothing will be appended any more: from now on as with KJ_EVENTS_FINISHED. Call kj_events_step
 * until it returns 0. */
KJ_API void kj_events_finish(kj_events *events);

/* 1 when nothing can come any more but what is there: KJ_EVENTS_FINISHED, kj_events_finish, or the
 * end of standard input has been seen. Then 0 points from kj_events_step are the end; else 0. The
 * end of standard input that is a pipe is waited for (up to timeout_ms) in any case. */
KJ_API int kj_events_is_finished(const kj_events *events);

/*
 * Points as columns of `n` elements each, immutable, reference counted. They do not depend on their
 * reader and may outlive it. A column that the call does not give is NULL.
 */
typedef struct kj_columns {
    uint32_t size;
    uint32_t reserved;
    uint64_t n;
    const int64_t *step;
    const double *wall_time;
    const double *value;
    const uint32_t *series; /* kj_events_next only; UINT32_MAX with RESTART */
    const uint32_t *flags;  /* kj_events_next only: enum kj_point_flag */
} kj_columns;

/* As kj_events_step, for at most max_points at a time (0: 65536; more than 16,777,216: KJ_EARG).
 * The columns are the caller's, one reference; n is 0 when the call returns 0. Their memory is used
 * again when they are released. */
KJ_API int kj_events_next(kj_events *events, int timeout_ms, uint64_t max_points,
                          kj_columns **ret_columns, kj_error *err);

/* In any thread. NULL is taken by unref. */
KJ_API kj_columns *kj_columns_ref(kj_columns *columns);
KJ_API void kj_columns_unref(kj_columns *columns);

/* What to do where a run has several points of one step, or was resumed at an earlier one. */
enum kj_merge {
    KJ_MERGE_ALL,  /* everything in the order in which it was read */
    KJ_MERGE_LAST, /* by step, one point each: the last one read. A RESTART at step s takes back
                      the points of its run read before it at s and beyond */
    KJ_MERGE_FIRST /* by step, one point each: the first one read, as Optuna keeps reports */
};

/* All points of one tag of one run so far, of a reader opened with KJ_EVENTS_KEEP. With
 * KJ_MERGE_ALL nothing is copied. KJ_ENOENT: no such run and tag; the message lists the nearest
 * ones. KJ_ESTATE: without KJ_EVENTS_KEEP. KJ_EARG: a merge that is none. */
KJ_API int kj_events_get_history(kj_events *events, const char *run, const char *tag,
                                 uint64_t tag_size, enum kj_merge merge, kj_columns **ret_columns,
                                 kj_error *err);

/* What has been seen of one tag, whether it was asked for or not. Pointers are valid until the
 * reader is closed. */
typedef struct kj_tag_info {
    uint32_t size;
    uint32_t series;
    const char *run;
    const char *tag;
    uint64_t tag_size;
    uint64_t count;
    int64_t first_step;
    int64_t last_step;
    double last_value;
    double min_value; /* NaN when every value was NaN */
    double max_value;
    /* Of the first metadata that the run had for this tag; "" for none. */
    const char *plugin;
    const char *display_name;
    const char *description;
    uint32_t selected; /* whether its points are delivered */
    uint32_t dtype;    /* of the last value */
} kj_tag_info;

#define KJ_TAG_INFO_INIT                                                                      \
    {                                                                                         \
        sizeof(kj_tag_info), 0, NULL, NULL, 0, 0, 0, 0, 0.0, 0.0, 0.0, NULL, NULL, NULL, 0, 0 \
    }

typedef int (*kj_tag_fn)(void *userdata, const kj_tag_info *tag);

/* Calls fn for every tag seen so far, sorted by run, then tag, until it returns nonzero. 0, what fn
 * returned, or KJ_EMEM. */
KJ_API int kj_events_list_tags(kj_events *events, kj_tag_fn fn, void *userdata, kj_error *err);

/* The run and tag of a series, numbered from 0 as they are first seen. ret_info->size must be set.
 * KJ_ENOENT: there is no such number. */
KJ_API int kj_events_get_series(kj_events *events, uint32_t series, kj_tag_info *ret_info,
                                kj_error *err);

/* X(NAME, number, "text"): what the values of event files are, as they are counted. */
#define KJ_EVENT_KIND_MAP(X)                                                               \
    X(SCALAR, 0, "scalar")                                                                 \
    X(TENSOR, 1, "tensor") /* of several elements, or of no number type */                 \
    X(IMAGE, 2, "image")                                                                   \
    X(HISTOGRAM, 3, "histogram")                                                           \
    X(AUDIO, 4, "audio")                                                                   \
    X(TEXT, 5, "text")                                                                     \
    X(GRAPH, 6, "graph") /* graph_def, meta_graph_def, a Keras model */                    \
    X(RUN_METADATA, 7, "run_metadata")                                                     \
    X(HPARAMS, 8, "hparams")                                                               \
    X(SESSION, 9, "session") /* START, STOP, CHECKPOINT */                                 \
    X(FILE_VERSION, 10, "file_version")                                                    \
    X(NO_VALUE, 11, "no_value")       /* a value or an event without any content */        \
    X(UNDECODABLE, 12, "undecodable") /* a tensor of one number with too few bytes, ... */ \
    X(OTHER, 13, "other")             /* PR curves, log messages, other plugins */

enum kj_event_kind {
#define KJ_EVENT_KIND_ENUM(name, number, text) KJ_EVENT_##name = number,
    KJ_EVENT_KIND_MAP(KJ_EVENT_KIND_ENUM)
#undef KJ_EVENT_KIND_ENUM
        KJ_EVENT_KINDS = 16 /* room in kj_events_stats */
};

/* "scalar", "image", ...; NULL for a number that is none. */
KJ_API const char *kj_event_kind_name(uint32_t kind);

typedef struct kj_events_stats {
    uint32_t size;
    uint32_t reserved;
    uint64_t files;
    uint64_t bytes; /* committed, that is read and understood or skipped */
    uint64_t records;
    uint64_t points;          /* scalars seen, delivered or not */
    uint64_t skipped_records; /* damaged */
    uint64_t skipped_bytes;
    uint64_t
        waiting_files; /* files that end in an unfinished or damaged record that may still heal */
    uint64_t runs;     /* folders that hold, or held, files */
    uint64_t kinds[KJ_EVENT_KINDS]; /* values by enum kj_event_kind; lines: all are scalars */
} kj_events_stats;

#define KJ_EVENTS_STATS_INIT                                \
    {                                                       \
        sizeof(kj_events_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        {                                                   \
            0                                               \
        }                                                   \
    }

/* ret_stats->size must be set. */
KJ_API void kj_events_get_stats(const kj_events *events, kj_events_stats *ret_stats);

/* X(NAME, number, "text"): what may stand behind the last good record of a file. */
#define KJ_DAMAGE_MAP(X)                                                                       \
    X(NONE, 0, "none")                                                                         \
    X(PARTIAL, 1, "partial") /* the beginning of a record */                                   \
    X(HOLE, 2, "hole")       /* zeros where a record should begin */                           \
    X(HEADER, 3, "header")   /* no record: a wrong length checksum, or an impossible length */ \
    X(PAYLOAD, 4, "payload") /* a record whose content does not match its checksum */          \
    X(MESSAGE, 5, "message") /* right checksums around a malformed message, or a bad line */   \
    X(TOO_LARGE, 6, "large") /* a summary that is larger than is loaded */                     \
    X(SHRUNK, 7, "shrunk")   /* shorter than what was read: perhaps it is being rewritten */   \
    X(UNREADABLE, 8, "unreadable")

enum kj_damage_kind {
#define KJ_DAMAGE_ENUM(name, number, text) KJ_DAMAGE_##name = number,
    KJ_DAMAGE_MAP(KJ_DAMAGE_ENUM)
#undef KJ_DAMAGE_ENUM
};

/* "partial", "hole", ...; NULL for a number that is none. */
KJ_API const char *kj_damage_kind_name(uint32_t kind);

/* Bytes of a file that belong to no record that was understood: [begin, end). Pointers are valid
 * during the callback. */
typedef struct kj_damage {
    uint32_t size;
    uint32_t kind; /* enum kj_damage_kind */
    const char *run;
    const char *file; /* its path; UNREADABLE: also that of a folder that cannot be listed */
    uint64_t begin;
    uint64_t end;
    uint64_t record;  /* number of the record that should stand there */
    uint32_t skipped; /* 1: given up and passed over; 0: waited for, `end` is the file's end */
    uint32_t generation;
} kj_damage;

typedef int (*kj_damage_fn)(void *userdata, const kj_damage *damage);

/* Calls fn for what is damaged, file by file in the order of delivery, skipped ranges first, until
 * it returns nonzero. 1000 ranges are kept for each file, 100,000 in all; kj_events_get_stats
 * counts all. 0, or what fn returned. */
KJ_API int kj_events_list_damage(kj_events *events, kj_damage_fn fn, void *userdata);

/* One file. Pointers are valid during the callback. */
typedef struct kj_file_info {
    uint32_t size;
    uint32_t state; /* enum kj_damage_kind: what stands at `committed` */
    const char *run;
    const char *path;
    uint64_t file_size; /* at the last look */
    uint64_t committed; /* offset behind the last record that was read or skipped */
    uint64_t records;
    uint64_t points;
    uint64_t skipped_records;
    uint64_t skipped_bytes;
    uint32_t generation;
    uint32_t present; /* 0: it has been deleted */
    int64_t quiet_ms; /* since it changed last; before it was first read, as its file system says */
} kj_file_info;

typedef int (*kj_file_fn)(void *userdata, const kj_file_info *file);

/* Calls fn for every file, in the order of delivery, until it returns nonzero. 0, or what fn
 * returned. */
KJ_API int kj_events_list_files(kj_events *events, kj_file_fn fn, void *userdata);

/*
 * Where the reader is, as one line of JSON for kj_events_options.cursor; kj_free releases it. What
 * has been delivered before the call does not come again from a reader that is opened with it, in
 * this process or another one; all else comes once. Counts, minima and maxima of kj_tag_info, the
 * figures and the ranges of damage go on too; kept points do not. Not from within a callback.
 * `ret_size` may be NULL. KJ_ERANGE: it would be longer than the 256 MiB that are read back.
 */
KJ_API int kj_events_get_cursor(const kj_events *events, char **ret_text, uint64_t *ret_size,
                                kj_error *err);

#ifdef __cplusplus
}
#endif

#endif
