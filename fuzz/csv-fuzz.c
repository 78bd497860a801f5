/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes are a CSV file: its records and points are the same however it comes in pieces, and no
 * cell reaches beyond its record. */
#include "source-fuzz.h"

#include "csv-row.h"
#include "line-cut.h"
#include "mem.h"

enum { MAX_CELLS = 16 };

static uint64_t hash_record(kji_lines *lines)
{
    kji_cell cells[MAX_CELLS];
    char delimiter = kji_csv_delimiter(lines->line, lines->size);
    size_t n = kji_csv_split(lines->line, lines->size, delimiter, cells, MAX_CELLS);
    uint64_t hash = n;
    for (size_t k = 0; k < n && k < MAX_CELLS; k++) {
        check(cells[k].text >= lines->line &&
              cells[k].text + cells[k].size <= lines->line + lines->size);
        kji_cell trimmed = kji_csv_trim(cells[k]);
        hash = hash * 31 + kji_hash(trimmed.text, trimmed.size);
    }
    return hash;
}

static uint64_t cut(const uint8_t *data, size_t size, size_t piece)
{
    kji_lines lines;
    kji_lines_init(&lines, KJI_CUT_QUOTED);
    uint64_t sum = 0;
    for (size_t at = 0; at < size;) {
        bool complete;
        size_t n = size - at < piece ? size - at : piece;
        size_t taken = kji_lines_take(&lines, (const char *)data + at, n, &complete);
        check(taken <= n && (taken > 0 || complete));
        at += taken;
        if (!complete)
            continue;
        sum = sum * 31 + (lines.size ? hash_record(&lines) : 0);
        kji_lines_clear(&lines);
    }
    kji_lines_done(&lines);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(cut(data, size, size + 1) == cut(data, size, 1));
    check(read_source("csv", data, size, size) == read_source("csv", data, size, size / 2));
    return 0;
}
