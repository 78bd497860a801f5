/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes are one event. Tags lie within it, and a second scan gives the same. */
#include "event-wire.h"

#include "fuzz.h"

#include <string.h>

static int scan(const kji_event *event, const uint8_t *data, size_t size, size_t *ret_n)
{
    kji_scalar_iter iter;
    kji_scalar scalar;
    int r;
    *ret_n = 0;
    kji_scalar_begin(&iter, event);
    while ((r = kji_scalar_next(&iter, &scalar)) == 1) {
        const uint8_t *tag = (const uint8_t *)scalar.tag;
        if (scalar.tag_size && (tag < data || scalar.tag_size > (size_t)(data + size - tag)))
            abort();
        ++*ret_n;
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kji_event event;
    size_t first = 0, second = 0;
    bool good = kji_event_parse(data, size, &event);
    if (kji_event_is_blob(data, size, size) && good && event.kind == KJI_EVENT_SUMMARY)
        abort();
    if (!good || event.kind != KJI_EVENT_SUMMARY)
        return 0;
    if (scan(&event, data, size, &first) != scan(&event, data, size, &second) || first != second)
        abort();
    return 0;
}
