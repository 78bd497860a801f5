/* SPDX-License-Identifier: Apache-2.0 */
#include "replies.h"

#include "members.h"
#include "output.h"
#include "records.h"

#include <stdlib.h>
#include <string.h>

static void put_id(const char *id)
{
    if (id)
        printf("%s: ", id);
}

/* The value as clean text, with words around it. */
static void put_text(const char *before, struct json_object *value, const char *after)
{
    char *text = cli_cell_text(value);
    printf("%s%s%s", before, text, after);
    free(text);
}

static bool is_waiting(const char *state)
{
    return strcmp(state, "accepted") == 0 || strcmp(state, "scheduled") == 0;
}

static bool is_carried_out(const char *state)
{
    return strcmp(state, "applied") == 0 || strcmp(state, "done") == 0;
}

/* "waits for the end of epoch 3 (command 7)" */
static void put_waiting(struct json_object *record, const char *state)
{
    long long seq = cli_int_of(record, "seq", 0);
    const char *at = cli_text_of(record, "at");
    char *when = at ? cli_clean(at, strlen(at)) : NULL;
    if (!when || strcmp(when, "now") == 0)
        printf("%s as command %lld", state, seq);
    else if (strncmp(when, "step:", 5) == 0)
        printf("waits for step %s (command %lld)", when + 5, seq);
    else if (strncmp(when, "epoch:", 6) == 0)
        printf("waits for the end of epoch %s (command %lld)", when + 6, seq);
    else
        printf("waits for the end of the epoch that runs (command %lld)", seq);
    free(when);
}

/* "at step 1201 (epoch 3)" */
static void put_place(struct json_object *record)
{
    int64_t step = cli_int_of(record, "step", -1), epoch = cli_int_of(record, "epoch", -1);
    if (step >= 0)
        printf("at step %lld", (long long)step);
    else
        fputs("before the first step", stdout);
    if (epoch >= 0)
        printf(" (epoch %lld)", (long long)epoch);
}

static bool put_changes(const char *id, struct json_object *record, const char *state)
{
    struct json_object *new = cli_member_of(record, "new"), *old = cli_member_of(record, "old");
    if (!json_object_is_type(new, json_type_object) || is_waiting(state))
        return false;
    json_object_object_foreach(new, key, value)
    {
        char *name = cli_clean(key, strlen(key));
        put_id(id);
        printf("%s: ", name);
        put_text("", cli_member_of(old, key), " -> ");
        put_text("", value, ", ");
        printf("%s ", is_carried_out(state) ? "applied" : state);
        put_place(record);
        putchar('\n');
        free(name);
    }
    return true;
}

/* {"already_stopping": true, ...}: the run had nothing to do. */
static bool put_already(const char *id, const char *verb, struct json_object *result)
{
    if (!json_object_is_type(result, json_type_object))
        return false;
    json_object_object_foreach(result, key, value)
    {
        if (!json_object_get_boolean(value) ||
            (strncmp(key, "already_", 8) != 0 && strncmp(key, "not_", 4) != 0))
            continue;
        put_id(id);
        printf("%s: ", verb);
        for (const char *c = key; *c; c++)
            putchar(*c == '_' ? ' ' : *c);
        putchar('\n');
        return true;
    }
    return false;
}

/* Where a pause or a stop saved a checkpoint first, NULL when it did not. */
static struct json_object *saved_path(struct json_object *record)
{
    return cli_member_of(cli_member_of(cli_member_of(record, "result"), "checkpoint"), "path");
}

static void put_paused(const char *run, struct json_object *record)
{
    struct json_object *args = cli_member_of(record, "args"), *length = cli_member_of(args, "for");
    const char *level = cli_text_of(args, "level");
    struct json_object *path = saved_path(record);
    bool leaves = level && strcmp(level, "leave") == 0;
    fputs(leaves ? "leaves " : "paused ", stdout);
    put_place(record);
    if (length)
        put_text(", for ", length, "");
    if (path)
        put_text(", checkpoint ", path, "");
    if (leaves)
        printf("; 'kajitori resume %s' starts it again", run);
}

/* "/ckpt/7.npz, at step 7 (epoch 0)" */
static bool put_checkpoint(struct json_object *record)
{
    struct json_object *path = cli_member_of(cli_member_of(record, "result"), "path");
    if (!path)
        return false;
    put_text("checkpoint: ", path, ", ");
    put_place(record);
    return true;
}

/* "loss=0.31 accuracy=0.9, at step 7 (epoch 0)" */
static bool put_evaluation(struct json_object *record)
{
    struct json_object *result = cli_member_of(record, "result");
    const char *before = "";
    if (!json_object_is_type(result, json_type_object))
        return false;
    fputs("evaluate: ", stdout);
    json_object_object_foreach(result, key, value)
    {
        char *name = cli_clean(key, strlen(key));
        printf("%s%s=", before, name);
        put_text("", value, "");
        before = " ";
        free(name);
    }
    fputs(*before ? ", " : "done ", stdout);
    put_place(record);
    return true;
}

/* "40 epochs in all, since step 7 (epoch 0)" */
static bool put_extension(struct json_object *record)
{
    struct json_object *result = cli_member_of(record, "result");
    struct json_object *epochs = cli_member_of(result, "total_epochs");
    struct json_object *steps = cli_member_of(result, "total_steps");
    if (!epochs && !steps)
        return false;
    fputs("extend: ", stdout);
    if (epochs)
        put_text("", epochs, " epochs");
    if (steps)
        put_text(epochs ? ", " : "", steps, " steps");
    fputs(" in all, ", stdout);
    put_place(record);
    return true;
}

/* A line for each command that was recovered: what it is now, or why it was not taken. */
static void put_recovered(struct json_object *commands)
{
    size_t n =
        json_object_is_type(commands, json_type_array) ? json_object_array_length(commands) : 0;
    for (size_t k = 0; k < n; k++) {
        struct json_object *command = json_object_array_get_idx(commands, k);
        struct json_object *error = cli_member_of(command, "error");
        put_text("\n  command ", cli_member_of(command, "recovered"), ": ");
        if (error) {
            put_text("rejected: ", error, "");
        } else {
            put_text("sent anew as command ", cli_member_of(command, "seq"), "");
            put_text(", ", cli_member_of(command, "state"), "");
        }
    }
}

/* "recover: 2 sent anew, 1 rejected", and which. */
static bool put_recovery(struct json_object *record)
{
    struct json_object *result = cli_member_of(record, "result");
    long long sent = cli_int_of(result, "recovered", 0),
              rejected = cli_int_of(result, "rejected", 0);
    if (!cli_member_of(result, "recovered"))
        return false;
    if (sent + rejected == 0)
        fputs("recover: there is nothing to recover", stdout);
    else
        printf("recover: %lld sent anew, %lld rejected", sent, rejected);
    put_recovered(cli_member_of(result, "commands"));
    return true;
}

/* What recover would send anew; false when the result does not say. */
static bool put_recoverable(struct json_object *record)
{
    struct json_object *list = cli_member_of(cli_member_of(record, "result"), "recoverable");
    if (!json_object_is_type(list, json_type_array))
        return false;
    size_t n = json_object_array_length(list);
    printf("dry run: %s\n", n ? "recover would send anew" : "there is nothing to recover");
    for (size_t k = 0; k < n; k++)
        cli_print_waiting(json_object_array_get_idx(list, k));
    return true;
}

/* Verbs whose end has a line of its own: true when it was put. */
static bool put_special(const char *run, struct json_object *record, const char *verb)
{
    if (strcmp(verb, "pause") == 0)
        put_paused(run, record);
    else if (strcmp(verb, "resume") == 0) {
        fputs("resumed ", stdout);
        put_place(record);
    } else if (strcmp(verb, "note") == 0)
        printf("note: in the journal as command %lld", (long long)cli_int_of(record, "seq", 0));
    else if (strcmp(verb, "recover") == 0)
        return put_recovery(record);
    else if (strcmp(verb, "checkpoint") == 0)
        return put_checkpoint(record);
    else if (strcmp(verb, "evaluate") == 0)
        return put_evaluation(record);
    else if (strcmp(verb, "extend") == 0)
        return put_extension(record);
    else
        return false;
    return true;
}

static void put_plain(struct json_object *record, const char *verb, const char *state)
{
    struct json_object *result = cli_member_of(record, "result");
    bool is_ending =
        strcmp(verb, "stop") == 0 || strcmp(verb, "prune") == 0 || strcmp(verb, "abort") == 0;
    printf("%s: %s ", verb, is_carried_out(state) && is_ending ? "applied" : state);
    put_place(record);
    if (saved_path(record))
        put_text(", checkpoint ", saved_path(record), "");
    else if (result)
        put_text(": ", result, "");
}

/* One line without the id in front. */
static void put_line(const char *run, struct json_object *record, const char *verb,
                     const char *state)
{
    if (json_object_get_boolean(cli_member_of(record, "dry_run"))) {
        if (put_recoverable(record))
            return;
        printf("dry run: %s would be accepted, nothing is changed", verb);
    } else if (is_waiting(state)) {
        printf("%s: ", verb);
        put_waiting(record, state);
    } else if (!is_carried_out(state) || !put_special(run, record, verb)) {
        put_plain(record, verb, state);
    }
    putchar('\n');
}

/* The answer to a question. */
static void put_answer(const char *id, const char *verb, struct json_object *result)
{
    if (id) {
        put_id(id);
        put_text("", result, "\n");
    } else if (strcmp(verb, "help") != 0 || !cli_print_verbs(result)) {
        cli_print_yaml(result);
    }
}

/* Of a question: it was not carried out at a step. recover, which is no question, has none either.
 */
static bool is_answer(struct json_object *record, const char *verb, const char *state)
{
    return cli_member_of(record, "result") && !cli_member_of(record, "step") &&
           strcmp(state, "done") == 0 && strcmp(verb, "recover") != 0;
}

void cli_print_record(const char *run, bool is_one_of_many, struct json_object *record)
{
    const char *id = is_one_of_many ? run : NULL;
    const char *state = cli_text_of(record, "state"), *verb_text = cli_text_of(record, "verb");
    struct json_object *result = cli_member_of(record, "result");
    if (!state || !verb_text) {
        cli_print_json(record);
        return;
    }
    char *verb = cli_clean(verb_text, strlen(verb_text));
    bool is_dry = json_object_get_boolean(cli_member_of(record, "dry_run"));
    if (!is_dry && (put_already(id, verb, result) || put_changes(id, record, state))) {
        /* said */
    } else if (!is_dry && is_answer(record, verb, state)) {
        put_answer(id, verb, result);
    } else {
        put_id(id);
        put_line(run, record, verb, state);
    }
    if (cli_member_of(record, "remark")) {
        put_id(id);
        put_text("note: ", cli_member_of(record, "remark"), "\n");
    }
    free(verb);
}

enum { VERB, ARGUMENT, TYPE, RANGE, REQUIRED, HELP };
static const char *const columns[] = {"verb",     "argument", "type", "range",
                                      "required", "help",     NULL};

/* A limit as a text: of an int without the decimals that JSON has. For free. */
static char *limit_text(struct json_object *arg, const char *key)
{
    const char *type = cli_text_of(arg, "type");
    char *text = cli_cell_text(cli_member_of(arg, key)), *point = strrchr(text, '.');
    if (type && strcmp(type, "int") == 0 && point && strcmp(point, ".0") == 0)
        *point = 0;
    return text;
}

char *cli_range_text(struct json_object *arg)
{
    char text[200] = "";
    struct json_object *min = cli_member_of(arg, "min"), *max = cli_member_of(arg, "max");
    bool exclusive = json_object_get_boolean(cli_member_of(arg, "min_exclusive"));
    char *low = limit_text(arg, "min"), *high = limit_text(arg, "max");
    if (min && max)
        snprintf(text, sizeof text, "%s%s .. %s", exclusive ? "> " : "", low, high);
    else if (min)
        snprintf(text, sizeof text, "%s %s", exclusive ? ">" : ">=", low);
    else if (max)
        snprintf(text, sizeof text, "<= %s", high);
    free(low);
    free(high);
    return strdup(text);
}

static void set_member(cli_table *table, int column, struct json_object *object, const char *key)
{
    struct json_object *member = cli_member_of(object, key);
    if (member)
        cli_table_set(table, column, json_object_get(member));
    else
        cli_table_set_text(table, column, "");
}

static void add_argument(cli_table *table, const char *verb, struct json_object *arg)
{
    char *range = cli_range_text(arg);
    cli_table_set_text(table, VERB, verb);
    set_member(table, ARGUMENT, arg, "name");
    set_member(table, TYPE, arg, "type");
    cli_table_set_text(table, RANGE, range ? range : "");
    cli_table_set_text(table, REQUIRED,
                       json_object_get_boolean(cli_member_of(arg, "required")) ? "yes" : "");
    set_member(table, HELP, arg, "help");
    free(range);
}

/* Why the program cannot do it, or what it does. */
static void set_verb_help(cli_table *table, struct json_object *verb)
{
    const char *refused = cli_text_of(verb, "why_not");
    char text[400];
    if (!refused) {
        set_member(table, HELP, verb, "help");
        return;
    }
    snprintf(text, sizeof text, "refused: %s", refused);
    cli_table_set_text(table, HELP, text);
}

static void add_verb(cli_table *table, struct json_object *verb)
{
    struct json_object *args = cli_member_of(verb, "args");
    cli_table_add_row(table);
    add_argument(table, "", NULL);
    set_member(table, VERB, verb, "name");
    set_verb_help(table, verb);
    size_t n = json_object_is_type(args, json_type_array) ? json_object_array_length(args) : 0;
    for (size_t k = 0; k < n; k++) {
        cli_table_add_row(table);
        add_argument(table, "", json_object_array_get_idx(args, k));
    }
}

bool cli_print_verbs(struct json_object *result)
{
    struct json_object *verbs = cli_member_of(result, "verbs");
    if (!json_object_is_type(verbs, json_type_array))
        return false;
    cli_table *table = cli_table_new(columns);
    for (size_t k = 0; k < json_object_array_length(verbs); k++)
        add_verb(table, json_object_array_get_idx(verbs, k));
    cli_table_print(table);
    cli_table_free(table);
    return true;
}
