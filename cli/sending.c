/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

#include "asking.h"
#include "group.h"
#include "output.h"
#include "replies.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *wait_name, *timeout_text = "30", *at, *by, *reason, *command_id, *save_text;
static int dry_run, save;

#define WAIT_OPTIONS                                                                             \
    {"wait",                                                                                     \
     0,                                                                                          \
     POPT_ARG_STRING,                                                                            \
     &wait_name,                                                                                 \
     0,                                                                                          \
     "until when to wait: received, accepted, applied or done (default: applied, for send and "  \
     "for "                                                                                      \
     "what the program does itself: done; accepted for a command that is scheduled)",            \
     "STAGE"},                                                                                   \
        {"timeout",                                                                              \
         0,                                                                                      \
         POPT_ARG_STRING,                                                                        \
         &timeout_text,                                                                          \
         0,                                                                                      \
         "how long to wait (default: 30); then the exit status is 4, and the command may still " \
         "be "                                                                                   \
         "applied",                                                                              \
         "SECONDS"},                                                                             \
    {                                                                                            \
        "by", 0, POPT_ARG_STRING, &by, 0,                                                        \
            "who says so, recorded beside what the kernel says (default: user@host)", "NAME"     \
    }

#define DRY_RUN_OPTION                                                                       \
    {                                                                                        \
        "dry-run", 'n', POPT_ARG_NONE, &dry_run, 0,                                          \
            "have it checked and answered, not carried out; of a group, list it first", NULL \
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
    DRY_RUN_OPTION,
    POPT_TABLEEND,
};
const struct poptOption cli_sending_line_options[] = {WAIT_OPTIONS, DRY_RUN_OPTION, POPT_TABLEEND};
const struct poptOption cli_saving_options[] = {
    {"save", 0, POPT_ARG_NONE, &save, 0,
     "save a checkpoint first; refused by a program that has none to save", NULL},
    POPT_TABLEEND,
};
/* clang-format on */

/* The option that the word KEY=VALUE means, or NULL. *ret_value: behind the "=". */
static const char **option_of_word(const cli_key *keys, const char *word, const char **ret_value)
{
    for (; keys && keys->key; keys++) {
        size_t size = strlen(keys->key);
        if (strncmp(word, keys->key, size) == 0 && word[size] == '=') {
            *ret_value = word + size + 1;
            return keys->value;
        }
    }
    return NULL;
}

/* yes or no, as a word has it: CLI_DONE, or CLI_USAGE. */
static int read_yes(const char *key, const char *text, int *flag)
{
    if (text && strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        return cli_usage("%s=%s: must be yes or no", key, text);
    *flag = *flag || (text && strcmp(text, "yes") == 0);
    return CLI_DONE;
}

int cli_take_sending_words(const cli_key *own, int *n_words, const char *const **words)
{
    enum { MAX = 1000 };
    static const char *rest[MAX];
    static const char *dry_run_text;
    static const cli_key common[] = {
        {"at", &at},          {"by", &by},
        {"reason", &reason},  {"command_id", &command_id},
        {"wait", &wait_name}, {"timeout", &timeout_text},
        {"save", &save_text}, {"dry_run", &dry_run_text},
        {NULL, NULL},
    };
    int n = 0;
    if (*n_words > MAX)
        return cli_usage("more than %d arguments", MAX);
    for (int k = 0; k < *n_words; k++) {
        const char *word = (*words)[k], *value;
        const char **option = option_of_word(common, word, &value);
        if (!option)
            option = option_of_word(own, word, &value);
        if (option)
            *option = value;
        else
            rest[n++] = word;
    }
    *n_words = n;
    *words = rest;
    int status = read_yes("save", save_text, &save);
    return status == CLI_DONE ? read_yes("dry_run", dry_run_text, &dry_run) : status;
}

static void add_text(struct json_object *params, const char *key, const char *text)
{
    if (text)
        json_object_object_add(params, key, json_object_new_string(text));
}

/* Values go out as texts: the run knows the type that is expected. */
int cli_add_assignment(struct json_object *args, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals)
        return cli_usage("'%s' is no NAME=VALUE", word);
    if (equals == word)
        return cli_usage("'%s' has no name before the '='", word);
    char name[128];
    size_t size = (size_t)(equals - word);
    if (size >= sizeof name)
        return cli_usage("'%s': the name is too long", word);
    memcpy(name, word, size);
    name[size] = 0;
    if (json_object_object_get_ex(args, name, NULL))
        return cli_usage("'%s' is given twice", name);
    add_text(args, name, equals + 1);
    return CLI_DONE;
}

const char *cli_who(void)
{
    static char text[300];
    char host[128] = "";
    const char *user = getenv("USER");
    if (by)
        return by;
    struct passwd *entry = user && *user ? NULL : getpwuid(geteuid());
    if (entry)
        user = entry->pw_name;
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s@%s", user && *user ? user : "?", *host ? host : "?");
    return text;
}

bool cli_is_dry_run(void)
{
    return dry_run;
}

int cli_read_timeout(int *ret_ms)
{
    if (cli_parse_seconds(timeout_text, ret_ms))
        return CLI_DONE;
    return cli_usage("--timeout %s: must be a number of seconds, at least 0", timeout_text);
}

/* Of a text line only what can be seen from outside: taking one for scheduled means to wait less.
 */
static bool is_scheduled(struct json_object *params)
{
    const char *line = json_object_get_string(json_object_object_get(params, "line"));
    const char *when = line ? strstr(line, " at=") : NULL;
    return when ? strncmp(when, " at=now", 7) != 0 : at && strcmp(at, "now") != 0;
}

/* *wait: the verb's own on entry. */
static int read_wait(struct json_object *params, int *wait)
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
    if (is_scheduled(params) || dry_run)
        *wait = KJ_WAIT_ACCEPTED;
    if (!wait_name)
        return CLI_DONE;
    for (size_t k = 0; k < sizeof waits / sizeof *waits; k++) {
        if (strcmp(waits[k].name, wait_name) == 0) {
            *wait = dry_run ? KJ_WAIT_ACCEPTED : waits[k].wait;
            return CLI_DONE;
        }
    }
    return cli_usage("--wait %s: must be received, accepted, applied or done", wait_name);
}

char *cli_dry_line(const char *line)
{
    size_t verb = strspn(line, " \t");
    verb += strcspn(line + verb, " \t#");
    char *text = malloc(strlen(line) + 20);
    if (!text) {
        cli_error("out of memory");
        exit(CLI_FAILED);
    }
    sprintf(text, "%.*s dry_run=yes%s", (int)verb, line, line + verb);
    return text;
}

/* What the options say, into the params; a line says most of it itself. */
static void add_options(struct json_object *params)
{
    struct json_object *line = json_object_object_get(params, "line");
    add_text(params, "at", at);
    add_text(params, "reason", reason);
    add_text(params, "by", cli_who());
    add_text(params, "command_id", command_id);
    if (save)
        json_object_object_add(params, "save", json_object_new_boolean(1));
    if (dry_run && !line)
        json_object_object_add(params, "dry_run", json_object_new_boolean(1));
    char *dry = dry_run && line ? cli_dry_line(json_object_get_string(line)) : NULL;
    add_text(params, "line", dry);
    free(dry);
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static int left_ms(int64_t deadline)
{
    int64_t left = deadline - monotonic_ms();
    return left > 0 ? (int)left : 0;
}

/* *ret_record: of an answer that is one. */
static int read_answer(char *json, struct json_object **ret_record)
{
    struct json_object *record = json_tokener_parse(json);
    int status = CLI_DONE;
    if (json_object_is_type(record, json_type_object)) {
        *ret_record = record;
    } else {
        cli_error("the run's answer is not a record: %s", json);
        json_object_put(record);
        status = CLI_FAILED;
    }
    kj_free(json);
    return status;
}

static int send_to_run(const char *run, const char *params, int wait, int timeout_ms)
{
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    struct json_object *record = NULL;
    char *id, *json;
    int64_t deadline = monotonic_ms() + timeout_ms;
    int status = cli_open_run(run, timeout_ms, &client, &id);
    if (status != CLI_DONE)
        return status;
    if (kj_client_command(client, params, wait, left_ms(deadline), &json, &err) < 0)
        status = cli_fail(&err);
    else
        status = read_answer(json, &record);
    if (status == CLI_DONE && cli.format == CLI_TABLE)
        cli_print_record(id, false, record);
    else if (status == CLI_DONE)
        cli_print_object(record);
    if (status == CLI_DONE)
        json_object_put(record);
    kj_client_close(client);
    free(id);
    return status;
}

/* One command for all runs of a group. */
typedef struct broadcast {
    const cli_group *group;
    const char *params;
    int wait;
    int64_t deadline;
    struct delivery {
        char *json; /* the record; NULL with the error */
        kj_error err;
    } * deliveries; /* one for each run */
} broadcast;

static void deliver(void *userdata, size_t k)
{
    broadcast *all = userdata;
    struct delivery *one = &all->deliveries[k];
    kj_client *client;
    int ms = left_ms(all->deadline);
    one->err = (kj_error)KJ_ERROR_INIT;
    if (kj_client_open_within(all->group->runs[k].info->dir, ms, &client, &one->err) < 0)
        return;
    cli_compare_versions(client, all->group->runs[k].info->id);
    kj_client_command(client, all->params, all->wait, left_ms(all->deadline), &one->json,
                      &one->err);
    kj_client_close(client);
}

/* {"run", "exit_status", "record" or "error"} */
static struct json_object *describe_delivery(const char *id, int status, struct json_object *record,
                                             const char *message)
{
    struct json_object *object = json_object_new_object();
    add_text(object, "run", id);
    json_object_object_add(object, "exit_status", json_object_new_int(status));
    if (record)
        json_object_object_add(object, "record", json_object_get(record));
    else
        add_text(object, "error", message);
    return object;
}

/* Prints, or adds to `list`, what became of one; its exit status. */
static int report_delivery(const char *id, struct delivery *one, struct json_object *list)
{
    struct json_object *record = NULL;
    int status = one->json ? read_answer(one->json, &record) : cli_status_of(one->err.code);
    if (cli.format != CLI_TABLE)
        json_object_array_add(list, describe_delivery(id, status, record, one->err.message));
    else if (record)
        cli_print_record(id, true, record);
    if (!record)
        cli_error("%s: %s", id, one->err.message);
    json_object_put(record);
    return status;
}

static int report_all(const broadcast *all)
{
    struct json_object *list = json_object_new_array();
    int worst = all->group->worst;
    for (size_t k = 0; k < all->group->n; k++) {
        int status = report_delivery(all->group->runs[k].info->id, &all->deliveries[k], list);
        worst = status > worst ? status : worst;
    }
    if (cli.format == CLI_JSON)
        cli_print_json(list);
    else if (cli.format == CLI_YAML)
        cli_print_yaml(list);
    json_object_put(list);
    return worst;
}

static int send_to_group(const char *params, int wait, int timeout_ms)
{
    cli_group group;
    int status = cli_group_choose(&group, false);
    if (status != CLI_DONE)
        return status;
    broadcast all = {.group = &group,
                     .params = params,
                     .wait = wait,
                     .deadline = monotonic_ms() + timeout_ms,
                     .deliveries = calloc(group.n, sizeof *all.deliveries)};
    if (dry_run && cli.format == CLI_TABLE)
        cli_group_print(&group);
    if (all.deliveries) {
        cli_in_parallel(group.n, deliver, &all);
        status = report_all(&all);
    } else {
        cli_error("out of memory");
        status = CLI_FAILED;
    }
    free(all.deliveries);
    cli_group_done(&group);
    return status;
}

int cli_send_command(const char *run, struct json_object *params, int wait)
{
    int timeout_ms, status = read_wait(params, &wait);
    if (status == CLI_DONE)
        status = cli_read_timeout(&timeout_ms);
    if (status == CLI_DONE) {
        add_options(params);
        const char *text = json_object_to_json_string_ext(params, JSON_C_TO_STRING_PLAIN);
        status = cli_group_given() ? send_to_group(text, wait, timeout_ms)
                                   : send_to_run(run, text, wait, timeout_ms);
    }
    json_object_put(params);
    return status;
}

struct json_object *cli_new_command(const char *verb, const cli_key *keys)
{
    struct json_object *params = json_object_new_object(), *args = json_object_new_object();
    add_text(params, "verb", verb);
    for (; keys && keys->key; keys++)
        add_text(args, keys->key, *keys->value);
    if (json_object_object_length(args) > 0)
        json_object_object_add(params, "args", args);
    else
        json_object_put(args);
    return params;
}

int cli_send_verb(const char *verb, const cli_key *keys, int n_words, const char *const *words)
{
    int status = cli_take_sending_words(keys, &n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    return cli_send_command(run, cli_new_command(verb, keys), KJ_WAIT_APPLIED);
}

int cli_send_declared_verb(const char *verb, int n_words, const char *const *words)
{
    int status = cli_take_sending_words(NULL, &n_words, &words);
    const char *run = cli_take_run(&n_words, &words);
    struct json_object *args = json_object_new_object();
    for (int k = 0; status == CLI_DONE && k < n_words; k++)
        status = cli_add_assignment(args, words[k]);
    if (status != CLI_DONE) {
        json_object_put(args);
        return status;
    }
    struct json_object *params = cli_new_command(verb, NULL);
    json_object_object_add(params, "args", args);
    /* It may fail when it has begun: only its end is an answer. */
    return cli_send_command(run, params, KJ_WAIT_DONE);
}
