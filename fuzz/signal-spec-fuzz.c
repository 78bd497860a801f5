/* SPDX-License-Identifier: Apache-2.0 */
/* "INT,TERM,USR1=checkpoint": understood, or refused with a reason. */
#include "door-signal.h"

#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char text[5000];
    kji_signals signals = {0};
    kj_error err = KJ_ERROR_INIT;
    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, bytes, size);
    text[size] = 0;
    int r = kji_signals_parse(text, &signals, &err);
    check(r == 0 || (r == KJ_EARG && *err.message && signals.n == 0));
    check(r < 0 || !*text || signals.n > 0);
    for (size_t k = 0; k < signals.n; k++) {
        check(signals.item[k].number > 0 && signals.item[k].command);
        for (size_t j = 0; j < k; j++)
            check(signals.item[j].number != signals.item[k].number);
    }
    kji_signals_done(&signals);
    return 0;
}
