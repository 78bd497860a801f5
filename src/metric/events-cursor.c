/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"

#include <kajitori/events.h>

int kj_events_get_cursor(const kj_events *events, char **ret_text, uint64_t *ret_size,
                         kj_error *err)
{
    (void)events, (void)ret_text, (void)ret_size;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}
