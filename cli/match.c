/* SPDX-License-Identifier: Apache-2.0 */
#include "match.h"

#include "members.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYNTAX                                                                                   \
    "write NAME, one of < <= > >= = != ~, and a value, as in lr>0.1, val_loss>=2, state=paused " \
    "or name~digits"

/* The longer ones first. */
static const struct {
    const char *text;
    int op;
} operators[] = {
    {"<=", CLI_MATCH_AT_MOST}, {">=", CLI_MATCH_AT_LEAST}, {"!=", CLI_MATCH_NOT_EQUAL},
    {"==", CLI_MATCH_EQUAL},   {"<", CLI_MATCH_LESS},      {">", CLI_MATCH_GREATER},
    {"=", CLI_MATCH_EQUAL},    {"~", CLI_MATCH_CONTAINS},
};

static bool read_number(const char *text, double *ret_number)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || end[strspn(end, " \t")])
        return false;
    *ret_number = number;
    return true;
}

/* The operator at `text`: its size, 0 when there is none. */
static size_t read_operator(const char *text, int *ret_op)
{
    for (size_t k = 0; k < sizeof operators / sizeof *operators; k++) {
        size_t size = strlen(operators[k].text);
        if (strncmp(text, operators[k].text, size) == 0) {
            *ret_op = operators[k].op;
            return size;
        }
    }
    return 0;
}

bool cli_match_parse(const char *text, cli_match *ret_match, char *problem, size_t size)
{
    const char *name = text + strspn(text, " \t");
    size_t name_size = strcspn(name, "<>=!~"), op_size;
    const char *after = name + name_size;
    while (name_size > 0 && (name[name_size - 1] == ' ' || name[name_size - 1] == '\t'))
        name_size--;
    op_size = read_operator(after, &ret_match->op);
    const char *value = after + op_size;
    value += strspn(value, " \t");
    bool has_value = *value && !strchr("<>=", *value); /* =>, =<, !== are no operators */
    if (name_size == 0 || name_size >= sizeof ret_match->name || op_size == 0 || !has_value) {
        snprintf(problem, size, "%s", SYNTAX);
        return false;
    }
    snprintf(ret_match->name, sizeof ret_match->name, "%.*s", (int)name_size, name);
    ret_match->value = value;
    ret_match->is_number = read_number(value, &ret_match->number);
    if (ret_match->op <= CLI_MATCH_AT_LEAST && !ret_match->is_number) {
        snprintf(problem, size, "%.*s needs a number, not '%.80s'", (int)op_size, after, value);
        return false;
    }
    return true;
}

static struct json_object *find_metric(struct json_object *status, const char *tag)
{
    struct json_object *metrics = cli_member_of(status, "metrics");
    size_t n =
        json_object_is_type(metrics, json_type_array) ? json_object_array_length(metrics) : 0;
    for (size_t k = 0; k < n; k++) {
        struct json_object *metric = json_object_array_get_idx(metrics, k);
        struct json_object *name = cli_member_of(metric, "tag");
        if (name && strcmp(json_object_get_string(name), tag) == 0)
            return cli_member_of(metric, "value");
    }
    return NULL;
}

static struct json_object *find_value(const char *name, struct json_object *status,
                                      struct json_object *run)
{
    struct json_object *value = cli_member_of(cli_member_of(status, "params"), name);
    if (!value)
        value = find_metric(status, name);
    if (!value)
        value = cli_member_of(status, name);
    return value ? value : cli_member_of(run, name);
}

/* Numbers, and the strings that stand for those which JSON cannot write. */
static bool number_of(struct json_object *value, double *ret_number)
{
    switch (json_object_get_type(value)) {
    case json_type_int:
    case json_type_double:
        *ret_number = json_object_get_double(value);
        return true;
    case json_type_string:
        return read_number(json_object_get_string(value), ret_number);
    default:
        return false;
    }
}

static bool compare(int op, double a, double b)
{
    switch (op) {
    case CLI_MATCH_LESS:
        return a < b;
    case CLI_MATCH_AT_MOST:
        return a <= b;
    case CLI_MATCH_GREATER:
        return a > b;
    case CLI_MATCH_AT_LEAST:
        return a >= b;
    case CLI_MATCH_NOT_EQUAL:
        return a < b || a > b; /* not so for NaN */
    default:
        return a == b;
    }
}

bool cli_match_holds(const cli_match *match, struct json_object *status, struct json_object *run)
{
    struct json_object *value = find_value(match->name, status, run);
    double number;
    if (!value)
        return false;
    if (match->op == CLI_MATCH_CONTAINS)
        return strstr(json_object_get_string(value), match->value) != NULL;
    if (match->is_number && number_of(value, &number))
        return compare(match->op, number, match->number);
    if (match->op <= CLI_MATCH_AT_LEAST)
        return false;
    bool same = strcmp(json_object_get_string(value), match->value) == 0;
    return match->op == CLI_MATCH_EQUAL ? same : !same;
}
