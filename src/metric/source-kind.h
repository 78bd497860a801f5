/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kind of metric source is to the rest: one const table. A new kind is a .c with its table,
 * one line in the registry of metric-spec.c, one in meson.build and a paragraph in docs/metrics.md.
 */
#ifndef KJI_SOURCE_KIND_H
#define KJI_SOURCE_KIND_H

#include "cursor-text.h"
#include "point-sink.h"
#include "watch.h"

/* "SOURCE:WHERE[:TAG]", taken apart. */
typedef struct kji_spec {
    const struct kji_source_kind *kind;
    char *where; /* as the kind's split slot left it */
    char *tag;   /* NULL: all */
} kji_spec;

/* What the framework gives to an instance; all of it outlives the instance. */
typedef struct kji_source_context {
    const kji_spec *spec;
    const kj_events_options *options;
    kji_watch *watch;
    kji_tag_table *tags;
    kj_events_stats *stats;
} kji_source_context;

typedef struct kji_source_kind {
    size_t size;
    const char *name;     /* before the first colon */
    const char *syntax;   /* for messages */
    size_t instance_size; /* the framework allocates it, zeroed */

    /* Takes apart what stands behind "name:": *ret_where, and *ret_tag or NULL, for free. Checks
     * all that can be checked without opening anything. Does not block. Mandatory. */
    int (*split)(const char *rest, char **ret_where, char **ret_tag, kj_error *err);

    /* The place need not exist yet. May touch the file system, may not wait. After a failure
     * `close` is called all the same. Mandatory. */
    int (*open)(void *instance, const kji_source_context *context, kj_error *err);

    /* Releases what `open` and `step` took; the instance itself is the framework's. Mandatory. */
    void (*close)(void *instance);

    /* Gives all that is new to the sink, without waiting, and arms the watch for the next time.
     * Ends early (and arms the watch for at once) when the sink says so. `finished`: nothing will
     * be appended any more. Errors: only what a wait cannot heal. Mandatory. */
    int (*step)(void *instance, kji_sink *sink, bool finished, kj_error *err);

    /* Brings the figures up to date that are not counted as they happen (files, runs,
     * waiting_files). Mandatory. */
    void (*count)(const void *instance, kj_events_stats *stats);

    /* For kj_events_list_files. NULL: there are no files. */
    int (*list_files)(void *instance, kj_file_fn fn, void *userdata);

    /* For kj_events_list_damage. NULL: nothing is ever damaged. */
    int (*list_damage)(void *instance, kj_damage_fn fn, void *userdata);

    /* Appends to a cursor where it is, as one array (cursor-text.h): what `restore` needs in a new
     * instance so that nothing delivered comes again and all else comes once. The tags, the runs
     * and the figures of kj_events_stats are saved by the framework. NULL, both: it has no cursor.
     */
    void (*save)(const void *instance, kji_strbuf *to);

    /* Takes an array of `save`, of which nothing can be trusted, after `open` and before the first
     * `step`; the tags, runs and figures are there again. What is wrong stays in `items`. */
    void (*restore)(void *instance, kji_cursor_items *items);
} kji_source_kind;

/* The registry, one line for each kind: its table is kji_source_NAME. */
#define KJI_SOURCE_MAP(X) \
    X(events)             \
    X(jsonl)              \
    X(csv)                \
    X(trainer)            \
    X(text)               \
    X(stdout)

#define KJI_SOURCE_DECLARE(name) extern const kji_source_kind kji_source_##name;
KJI_SOURCE_MAP(KJI_SOURCE_DECLARE)
#undef KJI_SOURCE_DECLARE

/* All kinds; ends with NULL. */
extern const kji_source_kind *const kji_source_kinds[];

enum { KJI_POLL_WITH_INOTIFY_MS = 10000, KJI_POLL_MS = 500 };

/* Poll and grace times as asked for, or the defaults; `network`: for a network file system. */
uint32_t kji_source_poll_ms(const kj_events_options *options, const kji_watch *watch, bool network);
uint32_t kji_source_grace_ms(const kj_events_options *options, bool network);

/*
 * Takes WHERE off the front of "WHERE[:REST]", for free: it ends at the first colon that has no
 * backslash before it; \: and \\ stand for themselves. *ret_rest is behind that colon, or NULL.
 * KJ_EARG when it is empty: `what` ("file") says what it should be.
 */
int kji_spec_split_where(const char *text, const char *what, const char *syntax, char **ret_where,
                         const char **ret_rest, kj_error *err);

/* The split slot of sources that are NAME:WHERE[:TAG]; `field` is what TAG is called there. */
int kji_spec_split_tag(const char *text, const char *what, const char *syntax, const char *field,
                       char **ret_where, char **ret_tag, kj_error *err);

/* Those at the end of a folder's path. */
void kji_spec_trim_slashes(char *where);

int kji_spec_parse(const char *text, kji_spec *ret_spec, kj_error *err);
void kji_spec_done(kji_spec *spec);

#endif
