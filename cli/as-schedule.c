/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each command that was carried out becomes the text line that does the same, with the place where
 * it was as its at=. A safe point between two steps has no name of its own: there the beginning of
 * the next step is taken, and a comment says so.
 */
#include "as-schedule.h"

#include "members.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096 };

typedef struct entry {
    int64_t seq;
    char *text;       /* NULL: nothing to print */
    char *checkpoint; /* where it saved one, or NULL */
} entry;

struct cli_schedule {
    entry *items;
    size_t n;
    size_t capacity;
    struct json_object *index_of; /* seq -> index; what was forgotten may still be in it */
};

/* A text that grows; `odd` once it holds what a text line cannot. */
typedef struct line {
    char text[LINE_MAX_BYTES + 1];
    size_t size;
    const char *odd;
} line;

cli_schedule *cli_schedule_new(void)
{
    cli_schedule *schedule = cli_check_memory(calloc(1, sizeof *schedule));
    schedule->index_of = cli_check_memory(json_object_new_object());
    return schedule;
}

static void forget_from(cli_schedule *schedule, size_t first)
{
    while (schedule->n > first) {
        entry *last = &schedule->items[--schedule->n];
        free(last->text);
        free(last->checkpoint);
    }
}

void cli_schedule_free(cli_schedule *schedule)
{
    if (!schedule)
        return;
    forget_from(schedule, 0);
    json_object_put(schedule->index_of);
    free(schedule->items);
    free(schedule);
}

static void put(line *to, const char *text)
{
    size_t size = strlen(text);
    if (to->size + size > LINE_MAX_BYTES) {
        to->odd = "it is longer than a text line may be";
        return;
    }
    memcpy(to->text + to->size, text, size + 1);
    to->size += size;
}

/* Control bytes other than these have no form in a text line. */
static const char *escaped(char c, char one[2])
{
    one[0] = c;
    one[1] = 0;
    return c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\t' ? "\\t" : one;
}

static void put_quoted(line *to, const char *text)
{
    char one[2];
    put(to, "\"");
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t')
            to->odd = "it has control bytes";
        put(to, escaped(*text, one));
    }
    put(to, "\"");
}

static void put_text(line *to, const char *text)
{
    static const char bare[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:+,@%-";
    if (strstr(text, "***"))
        to->odd = "a value is masked in the journal";
    if (*text && !text[strspn(text, bare)])
        put(to, text);
    else
        put_quoted(to, text);
}

static void put_value(line *to, struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_array:
    case json_type_object:
    case json_type_null:
        to->odd = "a value is no text, number or boolean";
        put(to, json_object_to_json_string(value));
        break;
    case json_type_string:
        put_text(to, json_object_get_string(value));
        break;
    default: /* numbers as they stand in the journal */
        put(to, json_object_to_json_string(value));
    }
}

static void put_words(line *to, struct json_object *words)
{
    size_t n = json_object_is_type(words, json_type_array) ? json_object_array_length(words) : 0;
    for (size_t k = 0; k < n; k++) {
        put(to, " ");
        put_value(to, json_object_array_get_idx(words, k));
    }
}

static void put_args(line *to, struct json_object *args)
{
    if (!json_object_is_type(args, json_type_object))
        return;
    json_object_object_foreach(args, key, value)
    {
        put(to, " ");
        put(to, key);
        put(to, "=");
        put_value(to, value);
    }
}

/* " at=step:12", and a comment where that is not quite the same. */
static void put_at(line *to, struct json_object *record, bool explain)
{
    char text[128];
    const char *place = cli_text_of(record, "place");
    long long step = cli_int_of(record, "step", -1), epoch = cli_int_of(record, "epoch", -1);
    if (step < 0)
        snprintf(text, sizeof text, " at=now");
    else if (place && strcmp(place, "epoch") == 0)
        snprintf(text, sizeof text, " at=epoch:%lld", epoch);
    else if (place && strcmp(place, "poll") == 0)
        snprintf(text, sizeof text, " at=step:%lld%s", step + 1,
                 explain ? " # it was later than the beginning of the step before" : "");
    else
        snprintf(text, sizeof text, " at=step:%lld%s", step,
                 place || !explain ? "" : " # the journal does not say where in this step");
    put(to, text);
}

static void put_command(line *to, struct json_object *record, bool explain)
{
    const char *reason = cli_text_of(record, "reason");
    put(to, cli_text_of(record, "verb"));
    put_words(to, cli_member_of(record, "words"));
    put_args(to, cli_member_of(record, "args"));
    if (json_object_get_boolean(cli_member_of(record, "save")))
        put(to, " save=yes");
    if (reason && !strstr(reason, "***")) {
        put(to, " reason=");
        put_text(to, reason);
    }
    put_at(to, record, explain);
}

/* "# pause for=15m at=step:12: why", on one line whatever is in it. */
static char *comment(const line *command, const char *why)
{
    char *text = cli_check_memory(malloc(command->size + strlen(why) + 8));
    int size = sprintf(text, "# %s: %s", command->text, why);
    char *clean = cli_clean(text, (size_t)size);
    free(text);
    return clean;
}

static bool is_one_of(const char *verb, const char *const *verbs)
{
    for (; *verbs; verbs++)
        if (strcmp(verb, *verbs) == 0)
            return true;
    return false;
}

/* Verbs that change nothing in the training. */
static bool is_question(const char *verb)
{
    static const char *const questions[] = {"ping", "help",    "status", "params",
                                            "get",  "recover", NULL};
    return is_one_of(verb, questions);
}

static char *text_of(struct json_object *record, const char *verb, const char *state)
{
    static const char *const timeless[] = {"pause", "resume", "note", NULL};
    const char *error = cli_text_of(record, "error");
    bool is_timeless = is_one_of(verb, timeless);
    line command = {.size = 0};
    put_command(&command, record, !is_timeless);
    if (is_timeless)
        return comment(&command, "it changes nothing in the training");
    if (strcmp(state, "failed") == 0)
        return comment(&command, error ? error : "it failed");
    if (command.odd)
        return comment(&command, command.odd);
    return cli_check_memory(strdup(command.text));
}

static entry *find(cli_schedule *schedule, const char *seq_text, int64_t seq)
{
    struct json_object *index;
    if (!json_object_object_get_ex(schedule->index_of, seq_text, &index))
        return NULL;
    size_t k = (size_t)json_object_get_int64(index);
    return k < schedule->n && schedule->items[k].seq == seq ? &schedule->items[k] : NULL;
}

static entry *add_entry(cli_schedule *schedule, const char *seq_text, int64_t seq)
{
    if (schedule->n == schedule->capacity) {
        schedule->capacity = schedule->capacity ? 2 * schedule->capacity : 64;
        schedule->items = cli_check_memory(
            realloc(schedule->items, schedule->capacity * sizeof *schedule->items));
    }
    json_object_object_add(schedule->index_of, seq_text,
                           json_object_new_int64((int64_t)schedule->n));
    entry *new = &schedule->items[schedule->n++];
    *new = (entry){.seq = seq};
    return new;
}

/* Whether the record says that something was done at a safe point, or noted. */
static bool is_effect(struct json_object *record, const char *verb, const char *state)
{
    bool carried_out =
        strcmp(state, "applied") == 0 || strcmp(state, "done") == 0 || strcmp(state, "failed") == 0;
    bool has_place = cli_member_of(record, "step") != NULL; /* else nothing was left to do */
    return carried_out && (has_place || strcmp(verb, "note") == 0) && !is_question(verb) &&
           !json_object_get_boolean(cli_member_of(record, "dry_run"));
}

/* Where the command saved a checkpoint, NULL when it did not. */
static const char *saved_by(struct json_object *record)
{
    struct json_object *result = cli_member_of(record, "result");
    const char *path = cli_text_of(cli_member_of(result, "checkpoint"), "path");
    return path ? path : cli_text_of(result, "path");
}

static void add_record(cli_schedule *schedule, struct json_object *record)
{
    const char *state = cli_text_of(record, "state"), *verb = cli_text_of(record, "verb");
    const char *door = cli_text_of(record, "door");
    const char *path = saved_by(record);
    if (!state || !verb || !is_effect(record, verb, state))
        return;
    char seq_text[24];
    int64_t seq = cli_int_of(record, "seq", -1);
    snprintf(seq_text, sizeof seq_text, "%lld", (long long)seq);
    entry *known = find(schedule, seq_text, seq);
    entry *mine = known ? known : add_entry(schedule, seq_text, seq);
    if (path && !mine->checkpoint)
        mine->checkpoint = cli_check_memory(strdup(path));
    /* Of another command, which does it again; what was recovered comes from the run, too. */
    bool is_part = door && strcmp(door, "run") == 0 && !cli_member_of(record, "recovered");
    if (!is_part && (!known || strcmp(state, "failed") == 0)) {
        free(mine->text);
        mine->text = text_of(record, verb, state);
    }
}

static void begin(cli_schedule *schedule, struct json_object *run)
{
    const char *checkpoint = cli_text_of(run, "checkpoint");
    size_t n = checkpoint ? schedule->n : 0;
    for (size_t k = n; k > 0; k--) {
        const char *saved = schedule->items[k - 1].checkpoint;
        if (saved && strcmp(saved, checkpoint) == 0) {
            n = k;
            break;
        }
    }
    forget_from(schedule, n);
}

void cli_schedule_add(cli_schedule *schedule, struct json_object *record)
{
    const char *event = cli_text_of(record, "event");
    if (event && strcmp(event, "run_started") == 0)
        begin(schedule, cli_member_of(record, "run"));
    else if (!event)
        add_record(schedule, record);
}

void cli_schedule_print(const cli_schedule *schedule, const char *run_id)
{
    printf("# What was applied in %s, each command where it was.\n", run_id);
    for (size_t k = 0; k < schedule->n; k++)
        if (schedule->items[k].text)
            puts(schedule->items[k].text);
}
