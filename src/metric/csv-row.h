/* SPDX-License-Identifier: Apache-2.0 */
/* One record of a CSV file (RFC 4180, read as Python's csv module does) into cells. */
#ifndef KJI_CSV_ROW_H
#define KJI_CSV_ROW_H

#include <stddef.h>

typedef struct kji_cell {
    const char *text; /* not NUL-terminated */
    size_t size;
} kji_cell;

/* What stands between the columns of this header: comma, semicolon or tab, whichever is outside of
 * quotes most often. */
char kji_csv_delimiter(const char *header, size_t size);

/*
 * Takes the cells apart in place: `record` (without its end) is overwritten with their texts, which
 * `cells` points into. Returns how many cells there are; those beyond `max` are only counted. An
 * empty record has none.
 */
size_t kji_csv_split(char *record, size_t size, char delimiter, kji_cell *cells, size_t max);

/* Without blanks at both ends. */
kji_cell kji_csv_trim(kji_cell cell);

#endif
