/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes are a metric spec: it is taken apart, or refused with one printable line. */
#include "fuzz.h"

#include <kajitori/events.h>

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    kj_error err = KJ_ERROR_INIT;
    int r = kj_events_check(text, &err);
    free(text);
    if (r == 0)
        return 0;
    if (r != KJ_EARG || err.code != r || !*err.message)
        abort();
    for (const char *at = err.message; *at; at++)
        if ((unsigned char)*at < 0x20)
            abort();
    return 0;
}
