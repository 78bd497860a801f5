/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes are a file of JSON lines: it gives the same points whether it comes at once or in two
 * pieces. */
#include "source-fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(read_source("jsonl", data, size, size) == read_source("jsonl", data, size, size / 2));
    return 0;
}
