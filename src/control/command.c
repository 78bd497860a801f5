/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both languages end in the same object. The keys that mean the same for every verb are taken out
 * of a text line here; the socket has them as members of their own.
 */
#include "command.h"

#include "domain.h"
#include "errors.h"
#include "json.h"
#include "mask.h"
#include "mem.h"
#include "utf8.h"

#include <stdio.h>
#include <string.h>

const char *kji_state_name(int state)
{
    static const char *const names[] = {"accepted", "scheduled", "rejected", "applied",
                                        "done",     "failed",    "expired"};
    return names[state];
}

kji_command *kji_command_new(void)
{
    kji_command *command = calloc(1, sizeof *command);
    if (!command)
        return NULL;
    command->sender = (kji_sender){.uid = -1, .pid = -1};
    command->args = json_object_new_object();
    if (!command->args) {
        free(command);
        return NULL;
    }
    return command;
}

void kji_command_free(kji_command *command)
{
    if (!command)
        return;
    json_object_put(command->words);
    json_object_put(command->args);
    json_object_put(command->old_values);
    json_object_put(command->new_values);
    json_object_put(command->result);
    free(command->by);
    free(command->reason);
    free(command->command_id);
    free(command->error);
    free(command->line);
    free(command->phase);
    free(command);
}

void kji_command_keep_line(kji_command *command, const char *text, size_t size)
{
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(text, strnlen(text, size));
    command->line = masked ? strndup(masked, KJI_LINE_SHOWN) : NULL;
}

static int take_text(char **to, const char *key, const char *value, size_t limit, kj_error *err)
{
    if (strlen(value) > limit)
        return kji_fail(err, KJ_EREJECTED, "%s is longer than %zu bytes", key, limit);
    free(*to); /* a line says it itself, and its sender beside it */
    *to = strdup(value);
    return *to ? 0 : kji_fail_memory(err);
}

static int set_at(kji_command *command, const char *value, kj_error *err)
{
    return kji_at_parse(value, &command->at, err);
}

static int set_by(kji_command *command, const char *value, kj_error *err)
{
    return take_text(&command->by, "by", value, KJI_BY_MAX, err);
}

static int set_reason(kji_command *command, const char *value, kj_error *err)
{
    return take_text(&command->reason, "reason", value, KJI_REASON_MAX, err);
}

static int set_command_id(kji_command *command, const char *value, kj_error *err)
{
    if (!*value)
        return kji_fail(err, KJ_EREJECTED, "command_id is empty");
    return take_text(&command->command_id, "command_id", value, KJI_COMMAND_ID_MAX, err);
}

static int set_dry_run(kji_command *command, const char *value, kj_error *err)
{
    if (!kji_parse_bool(value, &command->dry_run))
        return kji_fail(err, KJ_EREJECTED, "dry_run=%.40s: it can be yes or no", value);
    return 0;
}

static int set_save(kji_command *command, const char *value, kj_error *err)
{
    if (!kji_parse_bool(value, &command->save))
        return kji_fail(err, KJ_EREJECTED, "save=%.40s: it can be yes or no", value);
    return 0;
}

static int refuse_client_key(kji_command *command, const char *value, kj_error *err)
{
    (void)command, (void)value;
    return kji_fail(err, KJ_EREJECTED,
                    "wait and timeout are for the kajitori command; the run itself does not wait");
}

typedef struct common_key {
    const char *name;
    int (*set)(kji_command *command, const char *value, kj_error *err);
} common_key;

static const common_key common_keys[] = {
    {"at", set_at},
    {"by", set_by},
    {"command_id", set_command_id},
    {"dry_run", set_dry_run},
    {"reason", set_reason},
    {"save", set_save},
    {"timeout", refuse_client_key},
    {"wait", refuse_client_key},
};

static const common_key *find_common_key(const char *name)
{
    for (size_t k = 0; k < sizeof common_keys / sizeof *common_keys; k++)
        if (strcmp(common_keys[k].name, name) == 0)
            return &common_keys[k];
    return NULL;
}

bool kji_is_reserved_key(const char *name)
{
    return find_common_key(name) != NULL;
}

static int add_words(kji_command *command, const kji_text_line *line, kj_error *err)
{
    if (line->n_words == 0)
        return 0;
    command->words = json_object_new_array();
    if (!command->words)
        return kji_fail_memory(err);
    for (size_t k = 0; k < line->n_words; k++)
        json_object_array_add(command->words, json_object_new_string(line->words[k]));
    return 0;
}

static int fill_from_text(kji_command *command, const kji_text_line *line, kj_error *err)
{
    snprintf(command->verb_name, sizeof command->verb_name, "%s", line->verb);
    int r = add_words(command, line, err);
    for (size_t k = 0; k < line->n_args; k++) {
        const kji_text_arg *arg = &line->args[k];
        const common_key *common = find_common_key(arg->key);
        if (!common) {
            json_object_object_add(command->args, arg->key, json_object_new_string(arg->value));
            continue;
        }
        /* The first mistake is told; the other keys are still read, for the record. */
        int r2 = common->set(command, arg->value, r < 0 ? NULL : err);
        r = r < 0 ? r : r2;
    }
    return r < 0 ? r : 0;
}

int kji_command_from_text(const kji_text_line *line, kji_command **ret_command, kj_error *err)
{
    *ret_command = kji_command_new();
    return *ret_command ? fill_from_text(*ret_command, line, err) : kji_fail_memory(err);
}

/* A string without NUL bytes in it, borrowed; NULL otherwise. */
static const char *plain_text(struct json_object *json)
{
    if (!json_object_is_type(json, json_type_string))
        return NULL;
    const char *text = json_object_get_string(json);
    return strlen(text) == (size_t)json_object_get_string_len(json) ? text : NULL;
}

static int take_verb(kji_command *command, struct json_object *value, kj_error *err)
{
    const char *verb = plain_text(value);
    if (!verb || !kji_name_valid(verb))
        return kji_fail(err, KJ_EREJECTED, "\"verb\" must be the name of a verb");
    size_t size = strlen(verb);
    for (size_t k = 0; k <= size; k++)
        command->verb_name[k] =
            verb[k] >= 'A' && verb[k] <= 'Z' ? (char)(verb[k] + 'a' - 'A') : verb[k];
    return 0;
}

static int take_words(kji_command *command, struct json_object *value, kj_error *err)
{
    bool good = json_object_is_type(value, json_type_array) &&
                json_object_array_length(value) <= KJI_WORDS_MAX;
    for (size_t k = 0; good && k < json_object_array_length(value); k++)
        good = plain_text(json_object_array_get_idx(value, k)) != NULL;
    if (!good)
        return kji_fail(err, KJ_EREJECTED, "\"words\" must be an array of at most %d strings",
                        KJI_WORDS_MAX);
    if (json_object_array_length(value))
        command->words = json_object_get(value);
    return 0;
}

static int take_args(kji_command *command, struct json_object *value, kj_error *err)
{
    if (!json_object_is_type(value, json_type_object) ||
        json_object_object_length(value) > KJI_WORDS_MAX)
        return kji_fail(err, KJ_EREJECTED, "\"args\" must be an object of at most %d members",
                        KJI_WORDS_MAX);
    json_object_object_foreach(value, key, arg)
    {
        if (!kji_name_valid(key))
            return kji_fail(err, KJ_EREJECTED, "%.80s is no name of a key", key);
        if (find_common_key(key))
            return kji_fail(err, KJ_EREJECTED, "\"%s\" belongs beside \"args\", not into it", key);
        json_object_object_add(command->args, key, json_object_get(arg));
    }
    return 0;
}

static int take_member(kji_command *command, const char *key, struct json_object *value,
                       kj_error *err)
{
    if (!value)
        return 0; /* null: not given */
    if (strcmp(key, "verb") == 0)
        return take_verb(command, value, err);
    if (strcmp(key, "words") == 0)
        return take_words(command, value, err);
    if (strcmp(key, "args") == 0)
        return take_args(command, value, err);
    const common_key *common = find_common_key(key);
    if (!common)
        return kji_fail(err, KJ_EREJECTED, "a command has no member \"%.60s\"", key);
    if (json_object_is_type(value, json_type_boolean))
        return common->set(command, json_object_get_boolean(value) ? "yes" : "no", err);
    const char *text = plain_text(value);
    if (!text)
        return kji_fail(err, KJ_EREJECTED, "\"%s\" must be a string", key);
    return common->set(command, text, err);
}

static int fill_from_json(kji_command *command, struct json_object *params, kj_error *err)
{
    int r = 0;
    json_object_object_foreach(params, key, value)
    {
        int r2 = take_member(command, key, value, r < 0 ? NULL : err);
        r = r < 0 ? r : r2;
    }
    if (r >= 0 && !*command->verb_name)
        return kji_fail(err, KJ_EREJECTED, "a command needs a \"verb\" or a \"line\"");
    return r;
}

/* {"line": …, "by": …} */
static int from_line(struct json_object *params, kji_command **ret_command, kj_error *err)
{
    struct json_object *json = NULL;
    json_object_object_get_ex(params, "line", &json);
    const char *text = plain_text(json);
    const char *by = kji_json_string(params, "by");
    *ret_command = kji_command_new();
    if (!*ret_command)
        return kji_fail_memory(err);
    kji_command *command = *ret_command;
    json_object_object_foreach(params, key, value)
    {
        (void)value;
        if (strcmp(key, "line") != 0 && strcmp(key, "by") != 0)
            return kji_fail(err, KJ_EREJECTED, "\"%.60s\" cannot stand beside \"line\"", key);
    }
    if (!text)
        return kji_fail(err, KJ_EREJECTED, "\"line\" must be a string");
    if (by && set_by(command, by, err) < 0)
        return KJ_EREJECTED;
    KJI_CLEANUP(kji_freep) kji_text_line *line = malloc(sizeof *line);
    if (!line)
        return kji_fail_memory(err);
    int r = kji_text_line_parse(text, strlen(text), line, err);
    if (r <= 0)
        kji_command_keep_line(command, text, strlen(text));
    if (r < 0)
        return KJ_EREJECTED;
    if (r == 0)
        return kji_fail(err, KJ_EREJECTED, "the line has no command in it");
    return fill_from_text(command, line, err);
}

int kji_command_from_json(struct json_object *params, kji_command **ret_command, kj_error *err)
{
    if (json_object_object_get_ex(params, "line", NULL))
        return from_line(params, ret_command, err);
    *ret_command = kji_command_new();
    return *ret_command ? fill_from_json(*ret_command, params, err) : kji_fail_memory(err);
}

bool kji_command_get_arg(const kji_command *command, const char *name, kj_value *ret_value)
{
    struct json_object *json;
    return json_object_object_get_ex(command->args, name, &json) &&
           kji_json_get_value(json, ret_value);
}

static void add_text(struct json_object *record, const char *key, const char *text)
{
    if (text)
        json_object_object_add(record, key, kji_json_new_text(text, KJI_STRING_MAX));
}

/* A text in which a sender, or the program, may have written a secret. */
static void add_masked_text(struct json_object *record, const char *key, const char *text)
{
    KJI_CLEANUP(kji_freep) char *masked = text ? kji_mask_text(text, strlen(text)) : NULL;
    add_text(record, key, masked);
}

/* The error, which may quote a value. */
static void add_error(struct json_object *record, const kji_command *command)
{
    KJI_CLEANUP(kji_freep)
    char *text = command->error ? kji_mask_quoted(command->error, command->args) : NULL;
    add_masked_text(record, "error", text);
}

/* Takes `masked`, which was made of `json`, over. */
static void add_masked(struct json_object *record, const char *key, struct json_object *json,
                       struct json_object *masked)
{
    json_object_object_add(record, key, masked);
    if (masked != json)
        json_object_object_add(record, "masked", json_object_new_boolean(true));
}

static void add_json(struct json_object *record, const char *key, struct json_object *json)
{
    if (json)
        json_object_object_add(record, key, kji_mask_json(NULL, json));
}

static void add_number(struct json_object *record, const char *key, int64_t n)
{
    if (n >= 0)
        json_object_object_add(record, key, json_object_new_int64(n));
}

struct json_object *kji_command_record(const kji_command *command)
{
    struct json_object *record = json_object_new_object();
    char at[KJI_AT_TEXT];
    add_number(record, "seq", command->seq);
    add_text(record, "state", kji_state_name(command->state));
    add_text(record, "verb", *command->verb_name ? command->verb_name : NULL);
    if (command->words)
        add_masked(record, "words", command->words, kji_mask_words(command->words));
    if (json_object_object_length(command->args))
        add_masked(record, "args", command->args, kji_mask_json(NULL, command->args));
    if (*command->verb_name)
        add_text(record, "at", kji_at_text(&command->at, at));
    if (command->has_place) {
        json_object_object_add(record, "step", json_object_new_int64(command->step));
        json_object_object_add(record, "epoch", json_object_new_int64(command->epoch));
    }
    add_text(record, "place", command->place);
    add_text(record, "phase", command->phase);
    if (command->save)
        json_object_object_add(record, "save", json_object_new_boolean(true));
    add_json(record, "old", command->old_values);
    add_json(record, "new", command->new_values);
    add_text(record, "door", command->sender.door);
    add_number(record, "uid", command->sender.uid);
    add_number(record, "pid", command->sender.pid);
    add_masked_text(record, "by", command->by);
    add_masked_text(record, "reason", command->reason);
    add_text(record, "command_id", command->command_id);
    if (command->recovered)
        add_number(record, "recovered", command->recovered);
    if (command->dry_run)
        json_object_object_add(record, "dry_run", json_object_new_boolean(true));
    if (!command->hide_result)
        add_json(record, "result", command->result);
    add_text(record, "line", command->line);
    add_error(record, command);
    return record;
}

bool kji_record_goes_on(struct json_object *record, int64_t *ret_seq)
{
    const char *state = kji_json_string(record, "state");
    bool goes_on = state && (strcmp(state, "accepted") == 0 || strcmp(state, "scheduled") == 0 ||
                             strcmp(state, "applied") == 0);
    return goes_on && kji_json_int(record, "seq", ret_seq);
}
