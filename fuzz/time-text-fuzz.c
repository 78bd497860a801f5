/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is read as a time is written as the same time (but for a leap second at the end of
 * the year 9999). */
#include "time-text.h"

#include "fuzz.h"

#include <string.h>

#define YEAR_10000_US INT64_C(253402300800000000)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    int64_t us, again;
    char *text = strndup((const char *)bytes, size), once[KJI_TIME_TEXT], twice[KJI_TIME_TEXT];
    check(text != NULL);
    if (kji_time_parse(text, &us) && us < YEAR_10000_US) {
        check(kji_time_parse(kji_time_text(us, once), &again));
        check(again == us && strcmp(kji_time_text(again, twice), once) == 0);
    }
    free(text);
    return 0;
}
