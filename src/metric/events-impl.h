/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader consists of, for the files that implement <kajitori/events.h>. */
#ifndef KJI_EVENTS_IMPL_H
#define KJI_EVENTS_IMPL_H

#include "columns.h"
#include "source-kind.h"

struct kj_events {
    char *text; /* the spec as given */
    kji_spec spec;
    kj_events_options options;
    char *text_path; /* what options.text_path points to */
    char *run;       /* what options.run points to */
    kji_watch watch;
    kji_tag_table tags;
    kj_events_stats stats;
    kji_columns_pool pool; /* of kj_events_next */
    bool finished;
    bool waits; /* for the end of a pipe, though it is finished */
    void *instance;
};

/* kj_events_step into any sink; its own fields besides the destination are set here. */
int kji_events_step_into(kj_events *events, int timeout_ms, kji_sink *sink, kj_error *err);

/* Goes on where a cursor was made: before the first step. KJ_EDATA, KJ_EUNSUPPORTED, KJ_EMEM. */
int kji_events_restore(kj_events *events, const char *cursor, kj_error *err);

#endif
