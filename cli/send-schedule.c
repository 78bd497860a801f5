/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule for a run that lives: all lines are checked before the first one is sent. */
#include "output.h"
#include "replies.h"
#include "sending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096, LINES_MAX = 100000 };

typedef struct file {
    const char *name; /* for messages */
    struct file_line {
        char *text;
        long number;
    } * lines; /* those with a command */
    size_t n;
} file;

static bool has_command(const char *line)
{
    line += strspn(line, " \t\r");
    return *line && *line != '#';
}

static int keep_line(file *to, const char *text, long number)
{
    if (strlen(text) > LINE_MAX_BYTES || to->n == LINES_MAX) {
        cli_error("%s:%ld: %s", to->name, number,
                  to->n == LINES_MAX ? "more than 100000 commands" : "longer than 4096 bytes");
        return CLI_FAILED;
    }
    struct file_line *lines = realloc(to->lines, (to->n + 1) * sizeof *lines);
    if (lines)
        to->lines = lines;
    char *copy = lines ? strdup(text) : NULL;
    if (!copy) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    to->lines[to->n++] = (struct file_line){copy, number};
    return CLI_DONE;
}

static int read_lines(FILE *from, file *to)
{
    char *text = NULL;
    size_t capacity = 0;
    int status = CLI_DONE;
    ssize_t size;
    for (long number = 1; status == CLI_DONE && (size = getline(&text, &capacity, from)) >= 0;
         number++) {
        if (text[size - 1] == '\n')
            text[--size] = 0;
        if (strlen(text) != (size_t)size) {
            cli_error("%s:%ld: there is a zero byte in it", to->name, number);
            status = CLI_FAILED;
        } else if (has_command(text)) {
            status = keep_line(to, text, number);
        }
    }
    if (status == CLI_DONE && ferror(from)) {
        cli_error("%s: %s", to->name, strerror(errno));
        status = CLI_FAILED;
    }
    free(text);
    return status;
}

static int read_file(const char *path, file *to)
{
    bool is_input = strcmp(path, "-") == 0;
    FILE *from = is_input ? stdin : fopen(path, "re");
    to->name = is_input ? "standard input" : path;
    if (!from) {
        cli_error("%s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    int status = read_lines(from, to);
    if (!is_input)
        fclose(from);
    if (status == CLI_DONE && to->n == 0) {
        cli_error("%s: there is no command in it", to->name);
        status = CLI_USAGE;
    }
    return status;
}

static void file_done(file *f)
{
    for (size_t k = 0; k < f->n; k++)
        free(f->lines[k].text);
    free(f->lines);
}

/* Sends one line, and waits until the run has accepted it. */
static int send_line(kj_client *client, const char *text, int timeout_ms, char **ret_json,
                     kj_error *err)
{
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "line", json_object_new_string(text));
    json_object_object_add(params, "by", json_object_new_string(cli_who()));
    int r =
        kj_client_command(client, json_object_to_json_string_ext(params, JSON_C_TO_STRING_PLAIN),
                          KJ_WAIT_ACCEPTED, timeout_ms, ret_json, err);
    json_object_put(params);
    return r;
}

static int fail_line(const file *f, size_t k, const kj_error *err)
{
    cli_error("%s:%ld: %s", f->name, f->lines[k].number, err->message);
    return cli_status_of(err->code);
}

/* All lines, so that every mistake is told at once. */
static int check(kj_client *client, const file *f, int timeout_ms)
{
    int worst = CLI_DONE;
    for (size_t k = 0; k < f->n; k++) {
        kj_error err = KJ_ERROR_INIT;
        char *json, *dry = cli_dry_line(f->lines[k].text);
        int r = send_line(client, dry, timeout_ms, &json, &err);
        free(dry);
        if (r >= 0) {
            kj_free(json);
            continue;
        }
        worst = fail_line(f, k, &err);
        if (r != KJ_EREJECTED)
            break;
    }
    if (worst != CLI_DONE)
        cli_error("nothing was sent");
    return worst;
}

static void print_record(const char *run, char *json, struct json_object *list)
{
    struct json_object *record = json_tokener_parse(json);
    kj_free(json);
    if (cli.format == CLI_TABLE && record)
        cli_print_record(run, false, record);
    json_object_array_add(list, record);
}

static int send_all(const char *run, kj_client *client, const file *f, int timeout_ms)
{
    struct json_object *list = json_object_new_array();
    int status = CLI_DONE;
    for (size_t k = 0; status == CLI_DONE && k < f->n; k++) {
        kj_error err = KJ_ERROR_INIT;
        char *json;
        if (send_line(client, f->lines[k].text, timeout_ms, &json, &err) >= 0) {
            print_record(run, json, list);
            continue;
        }
        status = fail_line(f, k, &err);
        cli_error("%zu of %zu commands were sent", k, f->n);
    }
    if (cli.format == CLI_JSON)
        cli_print_json(list);
    else if (cli.format == CLI_YAML)
        cli_print_yaml(list);
    json_object_put(list);
    return status;
}

int cli_send_schedule(const char *run, const char *path)
{
    kj_client *client;
    char *id;
    file f = {.n = 0};
    int timeout_ms, status = cli_read_timeout(&timeout_ms);
    if (status == CLI_DONE)
        status = read_file(path, &f);
    if (status == CLI_DONE)
        status = cli_open_run(run, timeout_ms, &client, &id);
    if (status == CLI_DONE) {
        status = check(client, &f, timeout_ms);
        if (status == CLI_DONE && cli_is_dry_run())
            printf("dry run: %zu commands would be accepted, nothing is changed\n", f.n);
        else if (status == CLI_DONE)
            status = send_all(id, client, &f, timeout_ms);
        kj_client_close(client);
        free(id);
    }
    file_done(&f);
    return status;
}
