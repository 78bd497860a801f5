/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results are kept as JSON values until they are printed, so that each format spells the same
 * value its own way. Cleaning happens at the last moment, on the text that goes out.
 */
#include "output.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* Makes the last digit of "d.ddde±xx" one more; not that of 9.99. */
static void round_up(char *text)
{
    for (char *digit = strchr(text, 'e') - 1; digit >= text; digit--) {
        if (*digit >= '0' && *digit < '9') {
            ++*digit;
            return;
        }
        if (*digit == '9')
            *digit = '0';
    }
}

/*
 * How many digits behind the first one the shortest text has; `text` is that text as "%e" prints
 * it. No two texts of 15 digits mean the same double, so that the shortest one shows in 15 digits,
 * with zeros behind it, except for the smallest numbers, which have fewer digits. Below a power of
 * two the doubles are closer to one another than above it, so there the nearest text of 16 digits
 * may belong to the next one below, and the one above it be right.
 */
static int shortest_digits(double value, char text[CLI_NUMBER_TEXT])
{
    int digits = fabs(value) < 1e-290 ? 0 : 14, exponent;
    while (digits < 16 &&
           (snprintf(text, CLI_NUMBER_TEXT, "%.*e", digits, value), strtod(text, NULL) != value))
        digits++;
    if (digits == 16 && fabs(frexp(value, &exponent)) == 0.5) {
        round_up(text);
        if (strtod(text, NULL) == value)
            return 15;
    }
    if (digits == 16)
        snprintf(text, CLI_NUMBER_TEXT, "%.*e", digits, value);
    int zeros = 0;
    while (digits > zeros && strchr(text, 'e')[-1 - zeros] == '0')
        zeros++;
    if (zeros > 0)
        snprintf(text, CLI_NUMBER_TEXT, "%.*e", digits - zeros, value);
    return digits - zeros;
}

char *cli_number_text(double value, char text[CLI_NUMBER_TEXT])
{
    if (isnan(value))
        return strcpy(text, "nan");
    if (isinf(value))
        return strcpy(text, value < 0 ? "-inf" : "inf");
    int digits = shortest_digits(value, text);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        return text;
    int decimals = digits > exponent ? digits - exponent : 0;
    snprintf(text, CLI_NUMBER_TEXT, decimals ? "%.*f" : "%.*f.0", decimals, value);
    return text;
}

struct json_object *cli_json_double(double value)
{
    char text[CLI_NUMBER_TEXT];
    if (isnan(value))
        return cli_check_memory(json_object_new_string("NaN"));
    if (isinf(value))
        return cli_check_memory(json_object_new_string(value < 0 ? "-Infinity" : "Infinity"));
    return cli_check_memory(json_object_new_double_s(value, cli_number_text(value, text)));
}

struct json_object *cli_json_bytes(const char *bytes, uint64_t size)
{
    return cli_check_memory(json_object_new_string_len(bytes, (int)size));
}

struct json_object *cli_json_text(const char *text)
{
    return cli_json_bytes(text, strlen(text));
}

char *cli_time_text(double seconds, char text[32])
{
    time_t whole = (time_t)seconds;
    struct tm local;
    if (!(seconds > 0 && seconds < 4e10) || !localtime_r(&whole, &local))
        return strcpy(text, "-");
    strftime(text, 32, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

bool cli_colour(FILE *stream)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(stream)) && !(no && *no) && !(terminal && strcmp(terminal, "dumb") == 0);
}

size_t cli_decode(const char *bytes, size_t size, unsigned *ret_code)
{
    const unsigned char *text = (const unsigned char *)bytes;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (text[0] < 0x80) {
        *ret_code = text[0];
        return 1;
    }
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : text[0] >= 0xc0 ? 2 : 0;
    if (length == 0 || length > size || text[0] > 0xf4)
        return 0;
    unsigned code = text[0] & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; k++) {
        if ((text[k] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[k] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    *ret_code = code;
    return length;
}

/* Control characters, and those that change the direction in which text is shown. */
static bool is_unsafe(unsigned code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

char *cli_clean(const char *text, size_t size)
{
    char *clean = cli_check_memory(malloc(size + 1)), *to = clean;
    for (size_t k = 0; k < size;) {
        unsigned code;
        size_t length = cli_decode(text + k, size - k, &code);
        if (length == 0) {
            *to++ = '?';
            k++;
            continue;
        }
        if (code == '\t' || code == '\n' || code == '\r') {
            *to++ = ' ';
        } else if (!is_unsafe(code)) {
            memcpy(to, text + k, length);
            to += length;
        }
        k += length;
    }
    *to = 0;
    return clean;
}

/* JSON text goes out with what is unsafe as \uXXXX: all of it is below U+10000, and inside strings.
 */
static void put_json_text(const char *text)
{
    size_t size = strlen(text);
    for (size_t k = 0; k < size;) {
        unsigned code;
        size_t length = cli_decode(text + k, size - k, &code);
        if (length == 0)
            fputs("\\ufffd", stdout);
        else if (is_unsafe(code))
            printf("\\u%04x", code);
        else
            fwrite(text + k, 1, length, stdout);
        k += length ? length : 1;
    }
}

static const char *json_text(struct json_object *value)
{
    return cli_check_memory((void *)json_object_to_json_string_ext(
        value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
}

char *cli_cell_text(struct json_object *value)
{
    if (!value)
        return cli_check_memory(strdup("-"));
    if (json_object_is_type(value, json_type_string))
        return cli_clean(json_object_get_string(value), (size_t)json_object_get_string_len(value));
    const char *text = json_text(value);
    return cli_clean(text, strlen(text));
}

void cli_print_json(struct json_object *value)
{
    put_json_text(json_text(value));
    putchar('\n');
}

bool cli_print_json_text(const char *json)
{
    struct json_object *value = json_tokener_parse(json);
    if (!value)
        return false;
    cli_print_json(value);
    json_object_put(value);
    return true;
}

static bool is_container(struct json_object *value)
{
    return (json_object_is_type(value, json_type_object) && json_object_object_length(value) > 0) ||
           (json_object_is_type(value, json_type_array) && json_object_array_length(value) > 0);
}

static void put_yaml(struct json_object *value, int indent, bool in_list);

/* What stands behind "key:" or "-". Scalars, and empty lists and maps, are JSON, which YAML reads.
 */
static void put_yaml_value(struct json_object *value, int indent, bool in_list)
{
    if (is_container(value)) {
        if (!in_list)
            putchar('\n');
        put_yaml(value, indent, in_list);
    } else {
        if (!in_list)
            putchar(' ');
        put_json_text(json_text(value));
        putchar('\n');
    }
}

/* Words that YAML 1.1 takes for something else than a text stay in quotes, as all odd ones. */
static bool is_plain_key(const char *key)
{
    static const char *const taken[] = {"y",   "n",    "yes",   "no",  "on",
                                        "off", "true", "false", "null"};
    for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
        if (strcasecmp(key, taken[k]) == 0)
            return false;
    return isalpha((unsigned char)*key) &&
           key[strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
}

static void put_yaml_key(const char *key)
{
    if (is_plain_key(key)) {
        fputs(key, stdout);
        return;
    }
    struct json_object *name = cli_check_memory(json_object_new_string(key));
    put_json_text(json_text(name));
    json_object_put(name);
}

/* `in_list`: the first line continues one that holds "- ". */
static void put_yaml(struct json_object *value, int indent, bool in_list)
{
    bool first = in_list;
    if (json_object_is_type(value, json_type_array)) {
        for (size_t k = 0; k < json_object_array_length(value); k++) {
            printf("%*s- ", first ? 0 : indent, "");
            put_yaml_value(json_object_array_get_idx(value, k), indent + 2, true);
            first = false;
        }
        return;
    }
    json_object_object_foreach(value, key, member)
    {
        printf("%*s", first ? 0 : indent, "");
        put_yaml_key(key);
        putchar(':');
        put_yaml_value(member, indent + 2, false);
        first = false;
    }
}

void cli_print_yaml(struct json_object *value)
{
    put_yaml_value(value, 0, true);
}

static void put_csv(const char *text)
{
    if (!text[strcspn(text, ",\"")]) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void put_csv_cell(struct json_object *value, bool first)
{
    if (!first)
        putchar(',');
    if (!value)
        return;
    char *text = cli_cell_text(value);
    put_csv(text);
    free(text);
}

static void put_plain(struct json_object *value)
{
    char *text = cli_cell_text(value);
    fputs(text, stdout);
    free(text);
}

/* The names of all members of all objects in `list`, as they come. */
static struct json_object *all_columns(struct json_object *list)
{
    struct json_object *columns = json_object_new_object();
    for (size_t k = 0; k < json_object_array_length(list); k++) {
        json_object_object_foreach(json_object_array_get_idx(list, k), key, unused)
        {
            (void)unused;
            json_object_object_add(columns, key, NULL);
        }
    }
    return columns;
}

static void print_objects_csv(struct json_object *list)
{
    struct json_object *columns = all_columns(list);
    bool first = true;
    json_object_object_foreach(columns, key, unused)
    {
        (void)unused;
        if (!first)
            putchar(',');
        put_csv(key);
        first = false;
    }
    putchar('\n');
    for (size_t k = 0; k < json_object_array_length(list); k++) {
        first = true;
        json_object_object_foreach(columns, name, nothing)
        {
            (void)nothing;
            put_csv_cell(json_object_object_get(json_object_array_get_idx(list, k), name), first);
            first = false;
        }
        putchar('\n');
    }
    json_object_put(columns);
}

static void print_object_csv(struct json_object *object)
{
    struct json_object *list = json_object_new_array();
    json_object_array_add(list, json_object_get(object));
    print_objects_csv(list);
    json_object_put(list);
}

void cli_print_objects(struct json_object *list)
{
    if (cli.format == CLI_YAML)
        cli_print_yaml(list);
    else if (cli.format == CLI_CSV)
        print_objects_csv(list);
    else
        cli_print_json(list);
}

void cli_print_object(struct json_object *object)
{
    switch (cli.format) {
    case CLI_JSON:
    case CLI_JSONL:
        cli_print_json(object);
        return;
    case CLI_YAML:
        cli_print_yaml(object);
        return;
    case CLI_CSV:
        print_object_csv(object);
        return;
    }
    json_object_object_foreach(object, key, member)
    {
        if (cli.format == CLI_TABLE)
            printf("%s: ", key);
        put_plain(member);
        putchar('\n');
    }
}

enum {
    MAX_COLUMNS = 64,
    MAX_WIDTH = 60 /* a longer text shifts what follows in its own row only */
};

struct cli_table {
    const char *const *columns;
    int n_columns;
    struct json_object *rows; /* array of objects, members in the order of the columns */
};

static int count_columns(const char *const *columns)
{
    int n = 0;
    while (columns[n])
        n++;
    return n;
}

cli_table *cli_table_new(const char *const *columns)
{
    cli_table *table = cli_check_memory(calloc(1, sizeof *table));
    table->columns = columns;
    table->n_columns = count_columns(columns);
    table->rows = cli_check_memory(json_object_new_array());
    return table;
}

void cli_table_free(cli_table *table)
{
    if (!table)
        return;
    json_object_put(table->rows);
    free(table);
}

bool cli_table_is_empty(const cli_table *table)
{
    return json_object_array_length(table->rows) == 0;
}

void cli_table_add_row(cli_table *table)
{
    struct json_object *row = cli_check_memory(json_object_new_object());
    for (int k = 0; k < table->n_columns; k++)
        json_object_object_add(row, table->columns[k], NULL);
    json_object_array_add(table->rows, row);
}

static struct json_object *row_at(const cli_table *table, size_t index)
{
    return json_object_array_get_idx(table->rows, index);
}

void cli_table_set(cli_table *table, int column, struct json_object *value)
{
    struct json_object *row = row_at(table, json_object_array_length(table->rows) - 1);
    json_object_object_add(row, table->columns[column], value);
}

void cli_table_set_text(cli_table *table, int column, const char *text)
{
    cli_table_set(table, column, cli_check_memory(json_object_new_string(text)));
}

void cli_table_set_int(cli_table *table, int column, int64_t value)
{
    cli_table_set(table, column, cli_check_memory(json_object_new_int64(value)));
}

void cli_table_set_double(cli_table *table, int column, double value)
{
    cli_table_set(table, column, cli_json_double(value));
}

/* Chinese, Japanese, Korean and pictures take two columns (Unicode's East Asian Width W and F). */
static bool is_wide(unsigned code)
{
    static const unsigned ranges[][2] = {{0x1100, 0x115f},   {0x2e80, 0x303e},  {0x3041, 0xa4cf},
                                         {0xac00, 0xd7a3},   {0xf900, 0xfaff},  {0xfe30, 0xfe6f},
                                         {0xff01, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                                         {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++)
        if (code >= ranges[k][0] && code <= ranges[k][1])
            return true;
    return false;
}

/* Columns that a terminal gives to a clean text. */
static int width_of(const char *text)
{
    int width = 0;
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        unsigned code = 0;
        length = cli_decode(text, left, &code);
        if (length == 0)
            length = 1;
        width += 1 + is_wide(code);
    }
    return width;
}

static struct json_object *cell_at(const cli_table *table, size_t row, int column)
{
    return json_object_object_get(row_at(table, row), table->columns[column]);
}

static void measure(const cli_table *table, int *widths)
{
    for (int c = 0; c < table->n_columns; c++)
        widths[c] = width_of(table->columns[c]);
    for (size_t r = 0; r < json_object_array_length(table->rows); r++) {
        for (int c = 0; c < table->n_columns; c++) {
            char *text = cli_cell_text(cell_at(table, r, c));
            int width = width_of(text);
            if (width > widths[c])
                widths[c] = width < MAX_WIDTH ? width : MAX_WIDTH;
            free(text);
        }
    }
}

/* The last column is not padded. */
static void put_padded(const char *text, int width, bool last)
{
    fputs(text, stdout);
    if (!last)
        printf("%*s", width > width_of(text) ? width - width_of(text) + 2 : 2, "");
}

static void put_header(const char *const *columns, const int *widths)
{
    bool colour = cli_colour(stdout);
    if (colour)
        fputs("\033[1m", stdout);
    for (int c = 0; columns[c]; c++)
        put_padded(columns[c], widths[c], !columns[c + 1]);
    fputs(colour ? "\033[0m\n" : "\n", stdout);
}

static void put_row(struct json_object *const *row, const int *widths, int n)
{
    for (int c = 0; c < n; c++) {
        char *text = cli_cell_text(row[c]);
        put_padded(text, widths[c], c == n - 1);
        free(text);
    }
    putchar('\n');
}

static void put_csv_header(const char *const *columns)
{
    for (int c = 0; columns[c]; c++)
        printf("%s%s", c ? "," : "", columns[c]);
    putchar('\n');
}

static void put_text_row(struct json_object *const *row, const int *widths, int n)
{
    if (cli.format == CLI_TABLE) {
        put_row(row, widths, n);
        return;
    }
    for (int c = 0; c < n; c++) {
        if (cli.format == CLI_CSV) {
            put_csv_cell(row[c], c == 0);
            continue;
        }
        if (c)
            putchar('\t');
        put_plain(row[c]);
    }
    putchar('\n');
}

static void print_text_table(const cli_table *table)
{
    int widths[MAX_COLUMNS] = {0};
    size_t n_rows = json_object_array_length(table->rows);
    if (cli.format == CLI_CSV)
        put_csv_header(table->columns);
    if (cli.format == CLI_TABLE && n_rows > 0) {
        measure(table, widths);
        put_header(table->columns, widths);
    }
    for (size_t r = 0; r < n_rows; r++) {
        struct json_object *row[MAX_COLUMNS];
        for (int c = 0; c < table->n_columns; c++)
            row[c] = cell_at(table, r, c);
        put_text_row(row, widths, table->n_columns);
    }
}

void cli_table_print(const cli_table *table)
{
    size_t n_rows = json_object_array_length(table->rows);
    switch (cli.format) {
    case CLI_JSON:
        cli_print_json(table->rows);
        return;
    case CLI_JSONL:
        for (size_t r = 0; r < n_rows; r++)
            cli_print_json(row_at(table, r));
        return;
    case CLI_YAML:
        cli_print_yaml(table->rows);
        return;
    default:
        print_text_table(table);
    }
}

static bool stream_has_rows;

void cli_stream_begin(const char *const *columns, const int *widths)
{
    stream_has_rows = false;
    if (cli.format == CLI_TABLE)
        put_header(columns, widths);
    else if (cli.format == CLI_CSV)
        put_csv_header(columns);
    else if (cli.format == CLI_JSON)
        putchar('[');
}

static void put_object_row(const char *const *columns, struct json_object *const *row)
{
    struct json_object *object = cli_check_memory(json_object_new_object());
    for (int c = 0; columns[c]; c++)
        json_object_object_add(object, columns[c], json_object_get(row[c]));
    if (cli.format == CLI_JSON) {
        fputs(stream_has_rows ? ",\n" : "\n", stdout);
        put_json_text(json_text(object));
    } else if (cli.format == CLI_YAML) {
        fputs("- ", stdout);
        put_yaml_value(object, 2, true);
    } else {
        cli_print_json(object);
    }
    json_object_put(object);
}

void cli_stream_row(const char *const *columns, const int *widths, struct json_object *const *row)
{
    if (cli.format & (CLI_JSON | CLI_JSONL | CLI_YAML))
        put_object_row(columns, row);
    else
        put_text_row(row, widths, count_columns(columns));
    stream_has_rows = true;
}

void cli_stream_end(void)
{
    if (cli.format == CLI_JSON)
        fputs(stream_has_rows ? "\n]\n" : "]\n", stdout);
    else if (cli.format == CLI_YAML && !stream_has_rows)
        puts("[]");
}
