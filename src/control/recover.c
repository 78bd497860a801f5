/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal knows which commands are open (pending.h); those that are old can be recovered. Each
 * is made anew out of its record and goes the way of any other command, with a number of its own.
 * It is open no more as soon as the journal has a line that says it was taken in; one that is
 * rejected stays recoverable.
 */
#include "recover.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"
#include "run-impl.h"
#include "strbuf.h"

#include <inttypes.h>
#include <string.h>

enum { LISTED_MAX = 100, ANSWERED_MAX = 1000, WARNED_BYTES = 300 };

static const char *const sent_members[] = {"verb", "words",  "args",       "at",
                                           "by",   "reason", "command_id", "save"};

static void copy_member(struct json_object *from, struct json_object *to, const char *key)
{
    struct json_object *member;
    if (json_object_object_get_ex(from, key, &member))
        json_object_object_add(to, key, json_object_get(member));
}

/* Its record; NULL when memory is gone. */
static struct json_object *record_of(const kji_pending_command *old)
{
    struct json_object *record = NULL;
    kji_json_parse(old->line, strlen(old->line), &record, NULL);
    return record;
}

/* What its sender wrote, as params of "command". */
static struct json_object *params_of(struct json_object *record)
{
    struct json_object *params = json_object_new_object();
    for (size_t k = 0; k < sizeof sent_members / sizeof *sent_members; k++)
        copy_member(record, params, sent_members[k]);
    return params;
}

static struct json_object *describe(const kji_pending_command *old)
{
    struct json_object *record = record_of(old), *object = params_of(record);
    copy_member(record, object, "seq");
    copy_member(record, object, "state");
    json_object_put(record);
    return object;
}

static struct json_object *describe_all(const kj_run *run)
{
    struct json_object *list = json_object_new_array();
    const kji_pending *pending = &run->journal.pending;
    for (size_t k = 0; k < pending->n && json_object_array_length(list) < LISTED_MAX; k++)
        if (pending->item[k].is_old)
            json_object_array_add(list, describe(&pending->item[k]));
    return list;
}

void kji_recover_describe(const kj_run *run, struct json_object *to)
{
    if (run->journal.pending.n_old)
        json_object_object_add(to, "recoverable", describe_all(run));
}

void kji_recover_warn(kj_run *run)
{
    const kji_pending *pending = &run->journal.pending;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf list = KJI_STRBUF_INIT;
    if (pending->n_old == 0)
        return;
    for (size_t k = 0; k < pending->n && list.size < WARNED_BYTES; k++) {
        if (!pending->item[k].is_old)
            continue;
        struct json_object *record = record_of(&pending->item[k]);
        const char *verb = kji_json_string(record, "verb"), *at = kji_json_string(record, "at");
        kji_strbuf_printf(&list, "%s%" PRId64 " (%.64s at %.32s)", list.size ? ", " : "",
                          pending->item[k].seq, verb ? verb : "?", at ? at : "?");
        json_object_put(record);
    }
    kji_run_warn(run,
                 "run %s: a run of this id died and left %zu command%s undone: %s%s; \"recover\" "
                 "carries them out",
                 run->id, pending->n_old, pending->n_old == 1 ? "" : "s", list.text,
                 list.size >= WARNED_BYTES ? ", ..." : "");
}

static size_t n_words(const kji_command *command)
{
    return command->words ? json_object_array_length(command->words) : 0;
}

static const kji_pending_command *find_old(const kj_run *run, int64_t seq)
{
    const kji_pending_command *item = kji_pending_find(&run->journal.pending, seq);
    return item && item->is_old ? item : NULL;
}

/* The command that a word names; NULL with *err. */
static const kji_pending_command *named(const kj_run *run, const kji_command *command, size_t index,
                                        kj_error *err)
{
    const char *word = json_object_get_string(json_object_array_get_idx(command->words, index));
    int64_t seq;
    if (!kji_parse_int64(word, strlen(word), &seq))
        kji_fail(err, KJ_EREJECTED, "recover %.40s: name commands by their numbers", word);
    else if (!find_old(run, seq))
        kji_fail(err, KJ_EREJECTED, "recover: there is no command %" PRId64 " to be recovered",
                 seq);
    else
        return find_old(run, seq);
    return NULL;
}

int kji_recover_check(kj_run *run, kji_command *command, kj_error *err)
{
    if (run->is_ended)
        return kji_fail(err, KJ_EREJECTED, "the run is ending");
    for (size_t k = 0; k < n_words(command); k++)
        if (!named(run, command, k, err))
            return KJ_EREJECTED;
    return 0;
}

/* The records of those that are meant, for json_object_put. */
static struct json_object *list_meant(const kj_run *run, const kji_command *command)
{
    struct json_object *list = json_object_new_array();
    const kji_pending *pending = &run->journal.pending;
    for (size_t k = 0; k < n_words(command); k++)
        json_object_array_add(list, record_of(named(run, command, k, NULL)));
    for (size_t k = 0; n_words(command) == 0 && k < pending->n; k++)
        if (pending->item[k].is_old)
            json_object_array_add(list, record_of(&pending->item[k]));
    return list;
}

static int check_masked(struct json_object *record, kj_error *err)
{
    if (json_object_object_get_ex(record, "masked", NULL))
        return kji_fail(err, KJ_EREJECTED, "a secret in it is not in the journal: send it anew");
    return 0;
}

/* Sends one anew. {"recovered", "seq", "state", "error"}; NULL when that was done already (it is
 * named twice), or memory is gone. */
static struct json_object *send_anew(kj_run *run, struct json_object *record,
                                     const kji_sender *sender)
{
    kji_command *command = NULL;
    kj_error err = KJ_ERROR_INIT;
    int64_t old;
    if (!kji_json_int(record, "seq", &old) || !find_old(run, old))
        return NULL;
    struct json_object *params = params_of(record), *state = NULL;
    int parsed = kji_command_from_json(params, &command, &err);
    json_object_put(params);
    if (!command)
        return NULL;
    if (parsed >= 0)
        parsed = check_masked(record, &err);
    command->recovered = old;
    kji_run_submit(run, command, sender, parsed, &state, &err);
    struct json_object *told = json_object_new_object();
    json_object_object_add(told, "recovered", json_object_new_int64(old));
    copy_member(state, told, "seq");
    copy_member(state, told, "state");
    copy_member(state, told, "error");
    json_object_put(state);
    return told;
}

static struct json_object *send_all(kj_run *run, struct json_object *meant,
                                    const kji_sender *asked_by)
{
    struct json_object *result = json_object_new_object(), *list = json_object_new_array();
    kji_sender sender = {.door = "run", .uid = asked_by->uid, .pid = asked_by->pid};
    int64_t n = 0, n_rejected = 0;
    for (size_t k = 0; k < json_object_array_length(meant); k++) {
        struct json_object *told = send_anew(run, json_object_array_get_idx(meant, k), &sender);
        if (!told)
            continue;
        const char *state = kji_json_string(told, "state");
        bool is_rejected = !state || strcmp(state, "rejected") == 0;
        n += !is_rejected;
        n_rejected += is_rejected;
        if (json_object_array_length(list) < ANSWERED_MAX)
            json_object_array_add(list, told);
        else
            json_object_put(told);
    }
    json_object_object_add(result, "recovered", json_object_new_int64(n));
    json_object_object_add(result, "rejected", json_object_new_int64(n_rejected));
    json_object_object_add(result, "commands", list);
    return result;
}

int kji_recover_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                       kj_error *err)
{
    (void)err;
    struct json_object *meant = list_meant(run, command);
    if (command->dry_run) {
        *ret_result = json_object_new_object();
        json_object_object_add(*ret_result, "recoverable", json_object_get(meant));
    } else {
        *ret_result = send_all(run, meant, &command->sender);
    }
    json_object_put(meant);
    return 0;
}
