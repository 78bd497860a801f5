/* SPDX-License-Identifier: Apache-2.0 */
/* When: an `at` that is understood says itself again in the same words, a duration is within its
 * limits; everything else is refused with a reason. */
#include "schedule.h"

#include "fuzz.h"

#include <string.h>

static void try_at(const char *text)
{
    kji_at at, again;
    kj_error err = KJ_ERROR_INIT;
    char shown[KJI_AT_TEXT];
    int r = kji_at_parse(text, &at, &err);
    check(r == 0 || (r == KJ_EREJECTED && *err.message));
    if (r < 0)
        return;
    check(at.n >= 0);
    check(kji_at_parse(kji_at_text(&at, shown), &again, NULL) == 0);
    check(again.kind == at.kind && again.n == at.n);
}

static void try_duration(const char *text)
{
    int64_t ms;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_duration_parse(text, &ms, &err);
    check(r == 0 || (r == KJ_EREJECTED && *err.message));
    check(r < 0 || (ms > 0 && ms <= KJI_DURATION_DAYS_MAX * INT64_C(86400000)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char text[200];
    if (size >= sizeof text)
        return 0;
    memcpy(text, bytes, size);
    text[size] = 0;
    try_at(text);
    try_duration(text);
    return 0;
}
