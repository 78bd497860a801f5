/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include "members.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The member as clean text, "" when there is none; for free. */
static char *text_of(struct json_object *object, const char *key)
{
    struct json_object *member =
        json_object_is_type(object, json_type_object) ? json_object_object_get(object, key) : NULL;
    char *text = cli_cell_text(member);
    if (!member)
        *text = 0;
    return text;
}

static bool has(struct json_object *object, const char *key)
{
    return json_object_object_get_ex(object, key, NULL);
}

static void put_text(struct json_object *object, const char *before, const char *key,
                     const char *after)
{
    char *text = text_of(object, key);
    if (*text)
        printf("%s%s%s", before, text, after);
    free(text);
}

/* " lr=0.1 momentum=0.8" */
static void put_args(struct json_object *record)
{
    struct json_object *args = json_object_object_get(record, "args");
    if (!json_object_is_type(args, json_type_object))
        return;
    json_object_object_foreach(args, key, unused)
    {
        (void)unused;
        char *name = cli_clean(key, strlen(key)), *value = text_of(args, key);
        printf(" %s=%s", name, value);
        free(name);
        free(value);
    }
}

/* " loss looks odd" */
static void put_words(struct json_object *record)
{
    struct json_object *words = json_object_object_get(record, "words");
    if (!json_object_is_type(words, json_type_array))
        return;
    for (size_t k = 0; k < json_object_array_length(words); k++) {
        char *word = cli_cell_text(json_object_array_get_idx(words, k));
        printf(" %s", word);
        free(word);
    }
}

/* ": lr 0.001 -> 0.0001" */
static void put_changes(struct json_object *record)
{
    struct json_object *new = json_object_object_get(record, "new");
    struct json_object *old = json_object_object_get(record, "old");
    if (!json_object_is_type(new, json_type_object))
        return;
    const char *separator = ": ";
    json_object_object_foreach(new, key, unused)
    {
        (void)unused;
        char *name = cli_clean(key, strlen(key)), *after = text_of(new, key);
        char *before =
            json_object_is_type(old, json_type_object) ? text_of(old, key) : cli_cell_text(NULL);
        printf("%s%s %s -> %s", separator, name, before, after);
        separator = ", ";
        free(name);
        free(before);
        free(after);
    }
}

static void put_command(struct json_object *record)
{
    put_text(record, "", has(record, "verb") ? "verb" : "line", "");
    put_words(record);
    put_args(record);
    put_changes(record);
    char *at = text_of(record, "at");
    if (*at && strcmp(at, "now") != 0)
        printf(" (at %s)", at);
    free(at);
    put_text(record, " (reason: ", "reason", ")");
    if (json_object_get_boolean(json_object_object_get(record, "dry_run")))
        fputs(" (dry run)", stdout);
    put_text(record, ": ", "error", "");
    put_text(record, ": ", "result", "");
    put_text(record, " (", "remark", ")");
}

/* "  [alice@host (uid 1000), socket]"; of a FIFO nobody knows who wrote. */
static void put_sender(struct json_object *record)
{
    char *by = text_of(record, "by"), *uid = text_of(record, "uid");
    printf("  [%s", by);
    if (*uid)
        printf(*by ? " (uid %s)" : "uid %s", uid);
    put_text(record, *by || *uid ? ", " : "", "door", "");
    putchar(']');
    free(by);
    free(uid);
}

static void put_time(struct json_object *object, const char *key)
{
    char text[32];
    struct json_object *member = json_object_object_get(object, key);
    double now = (double)time(NULL);
    fputs(cli_time_text(member ? json_object_get_double(member) : now, text), stdout);
}

static void put_step(struct json_object *object)
{
    char *step = text_of(object, "step");
    printf("  %8s", *step && strcmp(step, "-1") != 0 ? step : "-");
    free(step);
}

/* ", recoverable commands: 2" */
static void put_recoverable(struct json_object *line)
{
    struct json_object *list = json_object_object_get(line, "recoverable");
    if (json_object_is_type(list, json_type_array) && json_object_array_length(list) > 0)
        printf(", recoverable commands: %zu", json_object_array_length(list));
}

/* ", stopped" */
static void put_ending(struct json_object *line)
{
    static const char *const words[][2] = {
        {"stop", "stopped"}, {"prune", "pruned"}, {"leave", "left"}, {"abort", "aborted"}};
    char *ending = text_of(line, "ending");
    if (!*ending && json_object_get_boolean(json_object_object_get(line, "stopped")))
        fputs(", stopped", stdout); /* of a library that knew no other ending */
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strcmp(ending, words[k][0]) == 0)
            printf(", %s", words[k][1]);
    free(ending);
}

static void put_other(struct json_object *line)
{
    char *event = text_of(line, "event");
    for (char *c = event; *c; c++)
        if (*c == '_')
            *c = ' ';
    printf("  %-9s %s", "-", event);
    free(event);
    struct json_object *run = json_object_object_get(line, "run");
    if (json_object_is_type(run, json_type_object)) {
        put_text(run, ": ", "id", "");
        put_text(run, ", pid ", "pid", "");
    }
    put_text(line, ": ", "message", "");
    put_text(line, ": ", "text", "");
    put_text(line, ": ", "line", "");
    put_text(line, ": the pause of command ", "seq", " is over");
    put_text(line, ", after ", "after_s", " s");
    put_text(line, ", lines: ", "lines", "");
    put_ending(line);
    put_text(json_object_object_get(line, "checkpoint"), ", checkpoint ", "path", "");
    put_recoverable(line);
    put_text(line, " (reason: ", "reason", ")");
}

void cli_print_waiting(struct json_object *command)
{
    put_text(command, "  command ", "seq", ": ");
    put_text(command, "", "verb", "");
    put_words(command);
    put_args(command);
    if (json_object_get_boolean(cli_member_of(command, "save")))
        fputs(" save=yes", stdout);
    put_text(command, " at ", "at", "");
    putchar('\n');
}

void cli_print_journal_line(struct json_object *line)
{
    put_time(line, "time");
    put_step(line);
    if (!has(line, "event")) {
        char *state = text_of(line, "state");
        printf("  %-9s ", state);
        put_command(line);
        put_sender(line);
        free(state);
    } else {
        put_other(line);
    }
    putchar('\n');
}

/* Events that the run no longer has for this reader. */
static void put_gap(struct json_object *event)
{
    long long lost = json_object_get_int64(json_object_object_get(event, "lost"));
    if (lost >= 0)
        printf("         -  %lld events were lost: this reader was too slow or away too long",
               lost);
    else
        fputs("         -  events were lost, it is not known how many", stdout);
}

void cli_print_event(struct json_object *event)
{
    char *kind = text_of(event, "event");
    put_time(event, has(event, "wall_time") ? "wall_time" : "time");
    if (strcmp(kind, "metric") == 0) {
        put_step(event);
        put_text(event, "  ", "tag", "");
        put_text(event, " = ", "value", "");
        if (has(event, "epoch"))
            put_text(event, "  (epoch ", "epoch", ")");
    } else if (strcmp(kind, "command") == 0) {
        put_step(event);
        put_text(event, "  command ", "seq", " ");
        put_text(event, "", "state", ": ");
        put_command(event);
        put_sender(event);
    } else if (strcmp(kind, "state") == 0) {
        put_step(event);
        put_text(event, "  ", "state", "");
    } else if (strcmp(kind, "gap") == 0) {
        put_gap(event);
    } else {
        char *text = cli_cell_text(event);
        printf("         -  %s", text);
        free(text);
    }
    putchar('\n');
    free(kind);
}
