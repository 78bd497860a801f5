/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metric sources: whatever a training writes, as one stream of points. A source is named
 * SOURCE:WHERE[:TAG]:
 *
 *     events:logs/7:validation/epoch_loss   TensorBoard event files below a folder, one tag
 *     events:logs/7                         all tags
 *     stdout:/val_loss=(\S+)/               a PCRE2 pattern over the lines of a text
 *     stdout:/step=(?<step>\d+).*loss=(?<value>\S+)/
 *
 * docs/metrics.md has the whole grammar. A source is followed for ever: a file that is not there
 * yet, torn at its end, or damaged is never given up. One source is for one thread at a time;
 * several sources are independent.
 */
#ifndef KAJITORI_METRIC_H
#define KAJITORI_METRIC_H

#include <kajitori/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_source kj_source;

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
    double wall_time; /* seconds since 1970 as the writer said; never use it to judge liveness */
    double value;     /* NaN and infinities are values */
    const char *file; /* path of the file it came from */
    uint64_t record;  /* 0-based number of the record (line) in that file */
} kj_point;

/* A nonzero return ends kj_source_step early; the rest comes with the next call. */
typedef int (*kj_point_fn)(void *userdata, const kj_point *point);

enum kj_source_flag {
    KJ_SOURCE_FINISHED = 1, /* nothing will be appended any more: do not wait for a torn or damaged
                               record, skip it */
    KJ_SOURCE_POLL = 2      /* no inotify, as on network file systems */
};

typedef struct kj_source_options {
    uint32_t size;
    uint32_t flags;        /* enum kj_source_flag */
    const char *text_path; /* the file that a stdout: source reads */
    uint32_t poll_ms;      /* safety poll [10000 with inotify, 500 without] */
    uint32_t grace_ms;     /* how long a damaged record may still heal before it is skipped [10000;
                              120000 on network file systems] */
} kj_source_options;

#define KJ_SOURCE_OPTIONS_INIT                   \
    {                                            \
        sizeof(kj_source_options), 0, NULL, 0, 0 \
    }

/* Opens a source. The place need not exist yet. `options` may be NULL. KJ_EARG says which part of
 * `spec` is wrong and what would be right. */
KJ_API int kj_source_open(const char *spec, const kj_source_options *options,
                          kj_source **ret_source, kj_error *err);
KJ_API void kj_source_close(kj_source *source);

/* Checks a spec without opening it: 0, or the error kj_source_open would give. */
KJ_API int kj_source_check(const char *spec, kj_error *err);

/* For poll(2): readable when kj_source_step has something to look at. Borrowed, constant over the
 * life of the source. */
KJ_API int kj_source_get_fd(const kj_source *source);

/*
 * Delivers what is new since the last call, waiting at most timeout_ms (0 = do not wait, < 0 = for
 * ever) until there is something. Returns the number of points delivered, 0 at the timeout, when a
 * signal came, or when the source is finished and nothing is left. Order: runs by path, in a run
 * files by name, in a file record by record. Errors are those that a wait cannot heal
 * (KJ_EMEM, KJ_EPERM on WHERE itself).
 */
KJ_API int kj_source_step(kj_source *source, int timeout_ms, kj_point_fn fn, void *userdata,
                          kj_error *err);

/* Nothing will be appended any more: from now on as with KJ_SOURCE_FINISHED. Call kj_source_step
 * until it returns 0. */
KJ_API void kj_source_finish(kj_source *source);

/* What has been seen of one tag, whether it was asked for or not. Pointers are valid during the
 * callback. */
typedef struct kj_tag_info {
    uint32_t size;
    uint32_t reserved;
    const char *run;
    const char *tag;
    uint64_t tag_size;
    uint64_t count;
    int64_t first_step;
    int64_t last_step;
    double last_value;
    double min_value; /* NaN when every value was NaN */
    double max_value;
} kj_tag_info;

typedef int (*kj_tag_fn)(void *userdata, const kj_tag_info *tag);

/* Calls fn for every tag seen so far, sorted by run, then tag, until it returns nonzero. Needs no
 * earlier kj_source_step: it reads up to the end first. 0, what fn returned, or as kj_source_open.
 */
KJ_API int kj_source_list_tags(kj_source *source, kj_tag_fn fn, void *userdata, kj_error *err);

typedef struct kj_source_stats {
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
} kj_source_stats;

#define KJ_SOURCE_STATS_INIT                            \
    {                                                   \
        sizeof(kj_source_stats), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* ret_stats->size must be set. */
KJ_API void kj_source_get_stats(const kj_source *source, kj_source_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
