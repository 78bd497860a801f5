/* SPDX-License-Identifier: Apache-2.0 */
#include "csv-row.h"

#include <stdbool.h>
#include <string.h>

char kji_csv_delimiter(const char *header, size_t size)
{
    static const char known[] = {',', ';', '\t'};
    size_t counts[sizeof known] = {0}, best = 0;
    bool quoted = false;
    for (size_t k = 0; k < size; k++) {
        quoted ^= header[k] == '"';
        for (size_t j = 0; j < sizeof known; j++)
            counts[j] += !quoted && header[k] == known[j];
    }
    for (size_t j = 1; j < sizeof known; j++)
        if (counts[j] > counts[best])
            best = j;
    return known[best];
}

/* The cell that begins at *at, its text moved to *to. Whether a delimiter ended it, so that another
 * one follows. */
static bool take_cell(const char **at, const char *end, char **to, char delimiter)
{
    const char *from = *at;
    bool quoted = from < end && *from == '"';
    from += quoted;
    for (; from < end; from++) {
        if (quoted && *from == '"') {
            quoted = from + 1 < end && from[1] == '"';
            if (!quoted)
                continue;
            from++; /* a doubled quote is one */
        } else if (!quoted && *from == delimiter) {
            *at = from + 1;
            return true;
        }
        *(*to)++ = *from;
    }
    *at = end;
    return false;
}

size_t kji_csv_split(char *record, size_t size, char delimiter, kji_cell *cells, size_t max)
{
    const char *at = record, *end = record + size;
    char *to = record;
    size_t n = 0;
    for (bool more = size > 0; more; n++) {
        char *begin = to;
        more = take_cell(&at, end, &to, delimiter);
        if (n < max)
            cells[n] = (kji_cell){begin, (size_t)(to - begin)};
    }
    return n;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

kji_cell kji_csv_trim(kji_cell cell)
{
    while (cell.size && is_blank(cell.text[0])) {
        cell.text++;
        cell.size--;
    }
    while (cell.size && is_blank(cell.text[cell.size - 1]))
        cell.size--;
    return cell;
}
