/* SPDX-License-Identifier: Apache-2.0 */
/* The points of one line or entry: gathered first, so that they can be handed over in several goes.
 */
#ifndef KJI_POINT_BATCH_H
#define KJI_POINT_BATCH_H

#include "point-sink.h"
#include "strbuf.h"

typedef struct kji_batch_point {
    size_t tag; /* where it begins in `names` */
    size_t tag_size;
    double value;
} kji_batch_point;

typedef struct kji_batch {
    kji_origin origin; /* of all of them */
    kji_strbuf names;
    kji_batch_point *points;
    size_t n, capacity;
    size_t next; /* the first one that has not been handed over */
    bool failed; /* memory was gone: some are missing */
} kji_batch;

#define KJI_BATCH_INIT           \
    {                            \
        .names = KJI_STRBUF_INIT \
    }

void kji_batch_done(kji_batch *batch);
void kji_batch_clear(kji_batch *batch); /* memory is kept */

void kji_batch_add(kji_batch *batch, const char *tag, size_t tag_size, double value);

/* 0: all are handed over; 1: the caller wants no more now; KJ_EMEM. */
int kji_batch_deliver(kji_batch *batch, kji_sink *sink);

#endif
