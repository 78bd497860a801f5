/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include "output.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *wait_name, *timeout_text = "30", *at, *by, *reason, *command_id;
static int dry_run;

#define WAIT_OPTIONS                                                                               \
    {"wait",                                                                                       \
     0,                                                                                            \
     POPT_ARG_STRING,                                                                              \
     &wait_name,                                                                                   \
     0,                                                                                            \
     "until when to wait: received, accepted, applied or done (default: applied, for send: done; " \
     "accepted for a command that is scheduled)",                                                  \
     "STAGE"},                                                                                     \
        {"timeout",                                                                                \
         0,                                                                                        \
         POPT_ARG_STRING,                                                                          \
         &timeout_text,                                                                            \
         0,                                                                                        \
         "how long to wait (default: 30); then the exit status is 4, and the command may still "   \
         "be "                                                                                     \
         "applied",                                                                                \
         "SECONDS"},                                                                               \
    {                                                                                              \
        "by", 0, POPT_ARG_STRING, &by, 0,                                                          \
            "who says so, recorded beside what the kernel says (default: user@host)", "NAME"       \
    }

/* clang-format off */
const struct poptOption cli_sending_options[] = {
    {"at", 0, POPT_ARG_STRING, &at, 0,
     "when: now (the next safe point, the default), step:N, epoch (the end of the one that runs) or "
     "epoch:N",
     "WHEN"},
    {"reason", 0, POPT_ARG_STRING, &reason, 0, "why; recorded, and given to the training", "TEXT"},
    WAIT_OPTIONS,
    {"command-id", 0, POPT_ARG_STRING, &command_id, 0,
     "a second command with the same id is answered with the state of the first", "ID"},
    {"dry-run", 'n', POPT_ARG_NONE, &dry_run, 0, "have it checked and answered, not carried out",
     NULL},
    POPT_TABLEEND,
};
const struct poptOption cli_sending_line_options[] = {WAIT_OPTIONS, POPT_TABLEEND};
/* clang-format on */

/* The option that the word KEY=VALUE means, or NULL. *ret_value: behind the "=". */
static const char **option_of_word(const char *word, const char **ret_value)
{
    static const struct {
        const char *key;
        const char **option;
    } options[] = {
        {"at=", &at},          {"by=", &by},
        {"reason=", &reason},  {"command_id=", &command_id},
        {"wait=", &wait_name}, {"timeout=", &timeout_text},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        size_t size = strlen(options[k].key);
        if (strncmp(word, options[k].key, size) == 0) {
            *ret_value = word + size;
            return options[k].option;
        }
    }
    return NULL;
}

int cli_take_sending_words(int *n_words, const char *const **words)
{
    enum { MAX = 1000 };
    static const char *rest[MAX];
    const char *dry_run_text = NULL;
    int n = 0;
    if (*n_words > MAX)
        return cli_usage("more than %d arguments", MAX);
    for (int k = 0; k < *n_words; k++) {
        const char *word = (*words)[k], *value;
        const char **option = option_of_word(word, &value);
        if (option)
            *option = value;
        else if (strncmp(word, "dry_run=", 8) == 0)
            dry_run_text = word + 8;
        else
            rest[n++] = word;
    }
    *n_words = n;
    *words = rest;
    if (dry_run_text && strcmp(dry_run_text, "yes") != 0 && strcmp(dry_run_text, "no") != 0)
        return cli_usage("dry_run=%s: must be yes or no", dry_run_text);
    dry_run = dry_run || (dry_run_text && strcmp(dry_run_text, "yes") == 0);
    return CLI_DONE;
}

static void add_text(struct json_object *params, const char *key, const char *text)
{
    if (text)
        json_object_object_add(params, key, json_object_new_string(text));
}

/* user@host, as a claim. */
static const char *default_by(void)
{
    static char text[300];
    char host[128] = "";
    const char *user = getenv("USER");
    struct passwd *entry = user && *user ? NULL : getpwuid(geteuid());
    if (entry)
        user = entry->pw_name;
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s@%s", user && *user ? user : "?", *host ? host : "?");
    return text;
}

/* Of a text line only what can be seen from outside: taking one for scheduled means to wait less.
 */
static bool is_scheduled(struct json_object *params)
{
    const char *line = json_object_get_string(json_object_object_get(params, "line"));
    const char *when = line ? strstr(line, " at=") : NULL;
    return when ? strncmp(when, " at=now", 7) != 0 : at && strcmp(at, "now") != 0;
}

static int read_wait(struct json_object *params, int *ret_wait)
{
    static const struct {
        const char *name;
        int wait;
    } waits[] = {
        /* The run answers once it has checked the command, so there is no earlier moment. */
        {"received", KJ_WAIT_ACCEPTED},
        {"accepted", KJ_WAIT_ACCEPTED},
        {"applied", KJ_WAIT_APPLIED},
        {"done", KJ_WAIT_DONE},
    };
    /* An own verb may fail when it has begun: only its end is an answer. */
    bool is_line = json_object_object_get_ex(params, "line", NULL);
    *ret_wait = is_scheduled(params) || dry_run ? KJ_WAIT_ACCEPTED
                : is_line                       ? KJ_WAIT_DONE
                                                : KJ_WAIT_APPLIED;
    if (!wait_name)
        return CLI_DONE;
    for (size_t k = 0; k < sizeof waits / sizeof *waits; k++) {
        if (strcmp(waits[k].name, wait_name) == 0) {
            *ret_wait = dry_run ? KJ_WAIT_ACCEPTED : waits[k].wait;
            return CLI_DONE;
        }
    }
    return cli_usage("--wait %s: must be received, accepted, applied or done", wait_name);
}

static const char *string_of(struct json_object *object, const char *key)
{
    struct json_object *member;
    if (!json_object_object_get_ex(object, key, &member) ||
        !json_object_is_type(member, json_type_string))
        return NULL;
    return json_object_get_string(member);
}

static int64_t int_of(struct json_object *object, const char *key, int64_t otherwise)
{
    struct json_object *member;
    if (!json_object_object_get_ex(object, key, &member) ||
        !json_object_is_type(member, json_type_int))
        return otherwise;
    return json_object_get_int64(member);
}

/* " at step 1201 (epoch 3)"; for a command that waits, the moment it waits for. */
static void put_when(struct json_object *record, const char *state)
{
    if (strcmp(state, "accepted") == 0 || strcmp(state, "scheduled") == 0) {
        struct json_object *when = json_object_object_get(record, "at");
        char *text = cli_cell_text(when);
        printf(" as command %lld", (long long)int_of(record, "seq", 0));
        if (when && strcmp(text, "now") != 0)
            printf(", at %s", text);
        free(text);
        return;
    }
    int64_t step = int_of(record, "step", -1), epoch = int_of(record, "epoch", -1);
    if (step >= 0)
        printf(" at step %lld", (long long)step);
    else
        fputs(" before the first step", stdout);
    if (epoch >= 0)
        printf(" (epoch %lld)", (long long)epoch);
}

static bool put_changes(struct json_object *record, const char *state)
{
    struct json_object *new = json_object_object_get(record, "new");
    struct json_object *old = json_object_object_get(record, "old");
    if (!json_object_is_type(new, json_type_object))
        return false;
    json_object_object_foreach(new, key, value)
    {
        char *name = cli_clean(key, strlen(key)), *after = cli_cell_text(value);
        char *before = cli_cell_text(
            json_object_is_type(old, json_type_object) ? json_object_object_get(old, key) : NULL);
        printf("%s: %s -> %s, %s", name, before, after, strcmp(state, "done") ? state : "applied");
        put_when(record, state);
        putchar('\n');
        free(name);
        free(after);
        free(before);
    }
    return true;
}

static void put_result(struct json_object *record)
{
    struct json_object *result = json_object_object_get(record, "result");
    if (!result)
        return;
    char *text = cli_cell_text(result);
    printf(": %s", text);
    free(text);
}

/* {"already_stopping": true, ...}: the run had nothing to do. */
static bool put_already(const char *verb, struct json_object *result)
{
    if (!json_object_is_type(result, json_type_object))
        return false;
    json_object_object_foreach(result, key, value)
    {
        if (!json_object_get_boolean(value) ||
            (strncmp(key, "already_", 8) != 0 && strncmp(key, "not_", 4) != 0))
            continue;
        printf("%s: ", verb);
        for (const char *c = key; *c; c++)
            putchar(*c == '_' ? ' ' : *c);
        putchar('\n');
        return true;
    }
    return false;
}

static void put_plain_record(struct json_object *record, const char *verb, const char *state)
{
    bool carried_out = strcmp(state, "applied") == 0 || strcmp(state, "done") == 0;
    if (carried_out && strcmp(verb, "pause") == 0)
        fputs("paused", stdout);
    else if (carried_out && strcmp(verb, "resume") == 0)
        fputs("resumed", stdout);
    else
        printf("%s: %s", verb, carried_out && strcmp(verb, "stop") == 0 ? "applied" : state);
    put_when(record, state);
    put_result(record);
    putchar('\n');
}

void cli_print_record(struct json_object *record)
{
    const char *state = string_of(record, "state"), *verb_text = string_of(record, "verb");
    struct json_object *result = json_object_object_get(record, "result");
    if (!state || !verb_text) {
        cli_print_json(record);
        return;
    }
    char *verb = cli_clean(verb_text, strlen(verb_text));
    if (json_object_get_boolean(json_object_object_get(record, "dry_run")))
        printf("dry run: %s would be accepted, nothing is changed\n", verb);
    else if (put_already(verb, result) || put_changes(record, state))
        ; /* said */
    else if (result && !json_object_object_get_ex(record, "step", NULL))
        cli_print_yaml(result); /* the answer to a question */
    else
        put_plain_record(record, verb, state);
    free(verb);
}

static int print_answer(const char *json)
{
    struct json_object *record = json_tokener_parse(json);
    if (!json_object_is_type(record, json_type_object)) {
        cli_error("the run's answer is not a record: %s", json);
        json_object_put(record);
        return CLI_FAILED;
    }
    if (cli.format == CLI_TABLE)
        cli_print_record(record);
    else
        cli_print_object(record);
    json_object_put(record);
    return CLI_DONE;
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static int exchange(const char *run, struct json_object *params, int wait, int timeout_ms)
{
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    char *id, *json;
    int64_t deadline = monotonic_ms() + timeout_ms;
    int status = cli_open_run(run, timeout_ms, &client, &id);
    if (status != CLI_DONE)
        return status;
    int64_t left_ms = deadline - monotonic_ms();
    if (kj_client_command(client, json_object_to_json_string_ext(params, JSON_C_TO_STRING_PLAIN),
                          wait, left_ms > 0 ? (int)left_ms : 0, &json, &err) < 0) {
        status = cli_fail(&err);
    } else {
        status = print_answer(json);
        kj_free(json);
    }
    kj_client_close(client);
    free(id);
    return status;
}

int cli_send_command(const char *run, struct json_object *params)
{
    int wait, timeout_ms, status = read_wait(params, &wait);
    if (status == CLI_DONE && !cli_parse_seconds(timeout_text, &timeout_ms))
        status = cli_usage("--timeout %s: must be a number of seconds, at least 0", timeout_text);
    if (status == CLI_DONE) {
        add_text(params, "at", at);
        add_text(params, "reason", reason);
        add_text(params, "by", by ? by : default_by());
        add_text(params, "command_id", command_id);
        if (dry_run)
            json_object_object_add(params, "dry_run", json_object_new_boolean(1));
        status = exchange(run, params, wait, timeout_ms);
    }
    json_object_put(params);
    return status;
}

int cli_send_verb(const char *verb, int n_words, const char *const *words)
{
    int status = cli_take_sending_words(&n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "verb", json_object_new_string(verb));
    return cli_send_command(run, params);
}
