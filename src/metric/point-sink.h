/* SPDX-License-Identifier: Apache-2.0 */
/* Where every kind of source puts what it finds: counted, selected, handed to the caller. */
#ifndef KJI_POINT_SINK_H
#define KJI_POINT_SINK_H

#include "tag-table.h"

struct kji_value;

typedef struct kji_sink {
    kji_tag_table *tags;
    kj_events_stats *stats;
    kj_point_fn fn; /* NULL: count only */
    void *userdata;
    int64_t delivered;  /* since kj_events_step began */
    bool keep;          /* in the histories of the tags */
    kji_columns *block; /* in place of fn: filled up to block_limit points */
    uint64_t block_limit;
    bool ended; /* set by the source: nothing more can come (the end of a pipe) */
    bool waits; /* set by the source: it is finished only at that end */
} kji_sink;

/* What a point has beside its tag and value. */
typedef struct kji_origin {
    kji_run *run;
    const char *file;
    uint64_t record;
    int64_t step;
    double wall_time;
    uint32_t generation;               /* of the file */
    uint32_t dtype;                    /* 0: text */
    const struct kji_value *described; /* a value that may have metadata, or NULL */
} kji_origin;

/* 0: go on; 1: done with this one, but the caller wants no more now; KJ_EMEM: nothing has been done
 * with it. */
int kji_sink_scalar(kji_sink *sink, const kji_origin *origin, const char *tag, size_t tag_size,
                    double value);
int kji_sink_restart(kji_sink *sink, const kji_origin *origin);

#endif
