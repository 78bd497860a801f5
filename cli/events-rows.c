/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points as rows. JSON is written without objects in between, since there may be millions of them,
 * and is the same text as the listings that the tests compare with.
 */
#include "events-verb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {"run", "tag", "step", "value", "wall_time", NULL};
static const int widths[] = {16, 28, 9, 22, 19};

static bool has_rows;

void cli_rows_begin(bool with_header)
{
    has_rows = false;
    if (cli.format == CLI_JSON)
        putchar('[');
    else if (with_header)
        cli_stream_begin(columns, widths);
}

static void put_escaped(unsigned code)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: the character, its letter */
    for (size_t k = 0; k + 1 < sizeof letters; k += 2) {
        if ((unsigned char)letters[k] == code) {
            printf("\\%c", letters[k + 1]);
            return;
        }
    }
    if (code >= 0x20 && code < 0x7f)
        putchar((int)code);
    else if (code < 0x10000)
        printf("\\u%04x", code);
    else
        printf("\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
}

void cli_put_json_bytes(const char *bytes, uint64_t size)
{
    putchar('"');
    for (uint64_t k = 0; k < size;) {
        unsigned code;
        size_t length = cli_decode(bytes + k, size - k, &code);
        put_escaped(length ? code : 0xdc00u + (unsigned char)bytes[k]);
        k += length ? length : 1;
    }
    putchar('"');
}

static void put_json_number(double value)
{
    char text[CLI_NUMBER_TEXT];
    if (isfinite(value))
        fputs(cli_number_text(value, text), stdout);
    else
        fputs(isnan(value) ? "\"NaN\"" : value < 0 ? "\"-Infinity\"" : "\"Infinity\"", stdout);
}

static void put_json(const kj_point *point)
{
    fputs("{\"run\":", stdout);
    cli_put_json_bytes(point->run, strlen(point->run));
    fputs(",\"tag\":", stdout);
    cli_put_json_bytes(point->tag, point->tag_size);
    printf(",\"step\":%lld,\"wall_time\":", (long long)point->step);
    put_json_number(point->wall_time);
    fputs(",\"value\":", stdout);
    put_json_number(point->value);
    putchar('}');
}

static void put_cells(const kj_point *point)
{
    char time[32];
    struct json_object *row[] = {
        cli_json_text(point->run),
        cli_json_bytes(point->tag, point->tag_size),
        json_object_new_int64(point->step),
        cli_json_double(point->value),
        cli.format == CLI_TABLE ? json_object_new_string(cli_time_text(point->wall_time, time))
                                : cli_json_double(point->wall_time),
    };
    if (cli.format == CLI_VALUE)
        cli_stream_row((const char *const[]){"value", NULL}, widths, row + 3);
    else
        cli_stream_row(columns, widths, row);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        json_object_put(row[k]);
}

void cli_rows_put(const kj_point *point)
{
    if (cli.format == CLI_JSON)
        fputs(has_rows ? ",\n" : "\n", stdout);
    if (cli.format & (CLI_JSON | CLI_JSONL))
        put_json(point);
    else
        put_cells(point);
    if (cli.format == CLI_JSONL)
        putchar('\n');
    has_rows = true;
}

void cli_rows_end(void)
{
    if (cli.format == CLI_JSON)
        fputs(has_rows ? "\n]\n" : "]\n", stdout);
    else if (cli.format == CLI_YAML && !has_rows)
        puts("[]");
}
