/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"

#include <kajitori/client.h>

int kj_gc(const kj_gc_options *options, kj_gc_fn fn, void *userdata, kj_error *err)
{
    (void)options, (void)fn, (void)userdata;
    return kji_fail(err, KJ_EUNSUPPORTED, "gc");
}
