/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results on standard output. Texts that come from a run (names, tags, reasons) may hold anything;
 * every function here removes or escapes control, escape and direction characters.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli.h"

#include <stdio.h>

enum { CLI_NUMBER_TEXT = 40 };

/* The shortest text that reads back to the same double, as Python's repr. Returns `text`. */
char *cli_number_text(double value, char text[CLI_NUMBER_TEXT]);

/* A number, or the strings "NaN", "Infinity", "-Infinity". */
struct json_object *cli_json_double(double value);

/* A text of any bytes. */
struct json_object *cli_json_bytes(const char *bytes, uint64_t size);
struct json_object *cli_json_text(const char *text);

/* The character that `bytes` begin with, of size > 0: its length, or 0 when they begin none. */
size_t cli_decode(const char *bytes, size_t size, unsigned *ret_code);

/* Without control, escape and direction characters, tabs and line ends as blanks, bytes that are no
 * UTF-8 as "?"; for free. Never NULL. */
char *cli_clean(const char *text, size_t size);

/* One value as a person reads it: texts without quotes, cleaned; objects and arrays as JSON. For
 * free. */
char *cli_cell_text(struct json_object *value);

/* "2026-11-30 16:41:47", local time, of seconds since 1970; "-" when it is none. Returns `text`. */
char *cli_time_text(double seconds, char text[32]);

/* Whether colours may be used on this stream: a terminal that is not "dumb", and NO_COLOR is not
 * set. */
bool cli_colour(FILE *stream);

/* One line of JSON. */
void cli_print_json(struct json_object *value);
/* The same from a text that the library gave; false when it is not JSON. */
bool cli_print_json_text(const char *json);

/* A value as YAML. */
void cli_print_yaml(struct json_object *value);

/* One object in the format of --format: JSON, YAML, two CSV lines, or its values one per line
 * (table too; verbs with a better table print their own). */
void cli_print_object(struct json_object *object);
/* A list of objects: JSON, YAML, or CSV with a column for each member that any of them has. */
void cli_print_objects(struct json_object *list);

/* Rows with the same columns, printed in the format of --format when all are there. */
typedef struct cli_table cli_table;

/* `columns` is ended by NULL and must outlive the table. */
cli_table *cli_table_new(const char *const *columns);
void cli_table_free(cli_table *table);
bool cli_table_is_empty(const cli_table *table);
/* Adds a row; further calls of cli_table_set fill it. Unset cells are null, "-" in a table. */
void cli_table_add_row(cli_table *table);
void cli_table_set(cli_table *table, int column, struct json_object *value); /* takes it over */
void cli_table_set_text(cli_table *table, int column, const char *text);
void cli_table_set_int(cli_table *table, int column, int64_t value);
void cli_table_set_double(cli_table *table, int column, double value);
void cli_table_print(const cli_table *table);

/* Rows that are printed as they come (--follow, many rows): begin, any number of rows, end. */
void cli_stream_begin(const char *const *columns, const int *widths);
void cli_stream_row(const char *const *columns, const int *widths, struct json_object *const *row);
void cli_stream_end(void);

#endif
