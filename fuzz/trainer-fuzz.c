/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes are a trainer_state.json: it is read, or refused, and reading ends. */
#include "source-fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_source("trainer", data, size, size);
    return 0;
}
