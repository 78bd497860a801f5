/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes are a pattern, a NUL, and a text. Cutting the text into lines gives the same lines
 * whether it comes at once or byte by byte, and matching them ends.
 */
#include "text-pattern.h"

#include "line-cut.h"
#include "mem.h"

#include "fuzz.h"

#include <string.h>

static size_t cut(kji_pattern *pattern, const char *text, size_t size, size_t piece)
{
    kji_lines lines;
    kji_lines_init(&lines, KJI_CUT_TERMINAL);
    size_t sum = 0;
    for (size_t at = 0; at < size;) {
        bool complete;
        size_t n = size - at < piece ? size - at : piece;
        size_t taken = kji_lines_take(&lines, text + at, n, &complete);
        if (taken == 0 || taken > n)
            abort();
        at += taken;
        if (!complete)
            continue;
        kji_match_result result;
        sum = sum * 31 + kji_hash(lines.line, lines.size);
        if (pattern && lines.size)
            kji_pattern_match(pattern, lines.line, lines.size, &result);
        kji_lines_clear(&lines);
    }
    kji_lines_done(&lines);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    if (!nul)
        return 0;
    const char *text = (const char *)nul + 1;
    size_t text_size = size - (size_t)(nul + 1 - data);
    kji_pattern *pattern = NULL;
    kji_pattern_new((const char *)data, &pattern, NULL);
    size_t at_once = cut(pattern, text, text_size, text_size);
    if (at_once != cut(NULL, text, text_size, 1))
        abort();
    kji_pattern_free(pattern);
    return 0;
}
