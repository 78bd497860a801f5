/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"

#include <kajitori/events.h>

int kj_events_next(kj_events *events, int timeout_ms, uint64_t max_points, kj_columns **ret_columns,
                   kj_error *err)
{
    (void)events, (void)timeout_ms, (void)max_points, (void)ret_columns;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

kj_columns *kj_columns_ref(kj_columns *columns)
{
    return columns;
}

void kj_columns_unref(kj_columns *columns)
{
    (void)columns;
}

int kj_events_get_history(kj_events *events, const char *run, const char *tag, uint64_t tag_size,
                          enum kj_merge merge, kj_columns **ret_columns, kj_error *err)
{
    (void)events, (void)run, (void)tag, (void)tag_size, (void)merge, (void)ret_columns;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}
