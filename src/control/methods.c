/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of the socket: a table, and one function each. */
#include "errors.h"
#include "json.h"
#include "rpc.h"
#include "run-impl.h"
#include "utf8.h"

#include <string.h>

enum { JOURNAL_LINES_MAX = 1000, JOURNAL_BYTES = 60000 };

/* Every method: 0 with *ret_result, or a JSON-RPC or kj error code with err->message and perhaps
 * *ret_result as the error's data. */
typedef int method_fn(kj_run *run, kji_client *client, struct json_object *params,
                      struct json_object **ret_result, kj_error *err);

static int bad_params(kj_error *err, const char *message)
{
    kji_fail(err, KJ_EPROTO, "%s", message);
    return KJI_RPC_BAD_PARAMS;
}

static int hello(kj_run *run, kji_client *client, struct json_object *params,
                 struct json_object **ret_result, kj_error *err)
{
    (void)client;
    int64_t protocol;
    if (!kji_json_int(params, "protocol", &protocol))
        return bad_params(err, "hello needs {\"protocol\": 1}");
    struct json_object *result = json_object_new_object();
    json_object_object_add(result, "protocol", json_object_new_int(KJI_PROTOCOL));
    json_object_object_add(result, "version", json_object_new_string(KJI_VERSION));
    *ret_result = result; /* of an error, too: the client may say hello again with this number */
    if (protocol != KJI_PROTOCOL)
        return kji_fail(err, KJ_EPROTO,
                        "this run speaks protocol %d (kajitori %s), you speak %lld: use matching "
                        "versions",
                        KJI_PROTOCOL, KJI_VERSION, (long long)protocol);
    json_object_object_add(result, "run", json_object_get(run->json));
    return 0;
}

static int ping(kj_run *run, kji_client *client, struct json_object *params,
                struct json_object **ret_result, kj_error *err)
{
    (void)run, (void)client, (void)params, (void)err;
    *ret_result = json_object_new_object();
    return 0;
}

static int help(kj_run *run, kji_client *client, struct json_object *params,
                struct json_object **ret_result, kj_error *err)
{
    (void)client;
    const char *verb = kji_json_string(params, "verb");
    if (!verb && json_object_object_get_ex(params, "verb", NULL))
        return bad_params(err, "\"verb\" must be a string");
    return kji_verbs_describe(run, &run->own_verbs, verb, ret_result, err);
}

static int status(kj_run *run, kji_client *client, struct json_object *params,
                  struct json_object **ret_result, kj_error *err)
{
    (void)client, (void)params, (void)err;
    *ret_result = kji_run_status(run);
    return 0;
}

static int list_params(kj_run *run, kji_client *client, struct json_object *params,
                       struct json_object **ret_result, kj_error *err)
{
    (void)client, (void)params, (void)err;
    *ret_result = kji_run_describe_params(run);
    return 0;
}

static int check_question(const char *verb_name, kj_error *err)
{
    static const char *const questions[] = {"ping", "help", "status", "params", "get"};
    for (size_t k = 0; k < sizeof questions / sizeof *questions; k++)
        if (strcmp(verb_name, questions[k]) == 0)
            return 0;
    return kji_fail(err, KJ_EPERM,
                    "\"%s\" came by the monitor socket, which takes questions only: ping, help, "
                    "status, params, get",
                    verb_name);
}

/*
 * A command that came by `monitor`: a question, answered without a number and without a line in the
 * journal, so that who only looks leaves no trace. Takes it over, as kji_run_submit does.
 */
static int ask(kj_run *run, kji_command *command, int parsed, struct json_object **ret_result,
               kj_error *err)
{
    command->seq = -1;
    command->state = KJI_DONE;
    int r = parsed < 0 ? parsed : check_question(command->verb_name, err);
    if (r >= 0)
        r = kji_verb_check(run, &run->own_verbs, command, err);
    if (r >= 0)
        r = command->verb->answer(run, command, &command->result, err);
    if (r >= 0)
        *ret_result = kji_command_record(command);
    kji_command_free(command);
    return r;
}

static int command(kj_run *run, kji_client *client, struct json_object *params,
                   struct json_object **ret_result, kj_error *err)
{
    kji_command *wanted;
    kj_error why = KJ_ERROR_INIT;
    int parsed = kji_command_from_json(params, &wanted, &why);
    if (!wanted)
        return kji_fail_memory(err);
    kji_sender sender = {.door = client->door,
                         .uid = client->uid,
                         .pid = client->pid,
                         .only_looks = client->only_looks};
    wanted->sender = sender;
    int r = client->only_looks ? ask(run, wanted, parsed, ret_result, &why)
                               : kji_run_submit(run, wanted, &sender, parsed, ret_result, &why);
    if (r < 0)
        return kji_fail(err, r, "%s", why.message);
    int64_t seq;
    if (kji_record_goes_on(*ret_result, &seq))
        kji_client_follow(client, seq);
    return 0;
}

/* Takes an integer that may be absent; false for something else. */
static bool take_count(struct json_object *params, const char *key, int64_t *count)
{
    if (!json_object_object_get_ex(params, key, NULL))
        return true;
    return kji_json_int(params, key, count) && *count >= 0;
}

static int journal(kj_run *run, kji_client *client, struct json_object *params,
                   struct json_object **ret_result, kj_error *err)
{
    (void)client;
    int64_t after = 0, limit = JOURNAL_LINES_MAX;
    if (!take_count(params, "after", &after) || !take_count(params, "limit", &limit))
        return bad_params(err, "\"after\" and \"limit\" are integers from 0 on");
    if (limit > JOURNAL_LINES_MAX)
        limit = JOURNAL_LINES_MAX;
    struct json_object *lines;
    int r = kji_journal_read_back(&run->journal, after, limit, JOURNAL_BYTES, &lines, err);
    if (r < 0)
        return r;
    *ret_result = json_object_new_object();
    json_object_object_add(*ret_result, "lines", lines);
    json_object_object_add(*ret_result, "last", json_object_new_int64(run->journal.last));
    return 0;
}

/* The bits of {"events": [...]}, all of them when there is none; 0 for what cannot be meant. */
static unsigned wanted_events(struct json_object *params)
{
    struct json_object *list;
    if (!json_object_object_get_ex(params, "events", &list))
        return (1u << KJI_FEED_KINDS) - 1;
    unsigned wanted = 0;
    if (!json_object_is_type(list, json_type_array))
        return 0;
    for (size_t k = 0; k < json_object_array_length(list); k++) {
        struct json_object *item = json_object_array_get_idx(list, k);
        bool known = false;
        for (int kind = 0; item && kind < KJI_FEED_KINDS; kind++)
            if (strcmp(json_object_get_string(item), kji_feed_names[kind]) == 0) {
                wanted |= 1u << kind;
                known = true;
            }
        if (!known)
            return 0;
    }
    return wanted;
}

/* Where events begin: 1; 0 with the oldest that is kept, for a cursor of an earlier run. */
static int starting_point(kj_run *run, struct json_object *params, kji_feed_cursor *ret_from,
                          kj_error *err)
{
    if (!json_object_object_get_ex(params, "after", NULL)) {
        kji_feed_end(&run->feed, ret_from);
        return 1;
    }
    const char *after = kji_json_string(params, "after");
    kji_feed_begin(&run->feed, ret_from);
    return kji_feed_cursor_parse(&run->feed, after ? after : "", ret_from, err);
}

static int subscribe(kj_run *run, kji_client *client, struct json_object *params,
                     struct json_object **ret_result, kj_error *err)
{
    if (client->fd < 0)
        return kji_fail(err, KJ_EUNSUPPORTED,
                        "a mailbox brings no events; \"journal\" has what happened, \"status\" how "
                        "it stands");
    unsigned wanted = wanted_events(params);
    kji_feed_cursor from;
    char text[KJI_FEED_CURSOR_TEXT];
    if (!wanted)
        return bad_params(err, "\"events\" is a list of \"command\", \"metric\", \"state\"");
    int r = starting_point(run, params, &from, err);
    if (r < 0)
        return KJI_RPC_BAD_PARAMS;
    bool has_after = json_object_object_get_ex(params, "after", NULL);
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++)
        if (wanted & (has_after ? ~0u : ~client->wanted) & 1u << kind)
            client->cursor.next[kind] = from.next[kind];
    client->is_from_before = r == 0;
    client->wanted = wanted;
    *ret_result = json_object_new_object();
    json_object_object_add(*ret_result, "last", json_object_new_int64(run->journal.last));
    kji_feed_cursor_text(&run->feed, &client->cursor, text);
    json_object_object_add(*ret_result, "cursor", json_object_new_string(text));
    return 0;
}

static const struct {
    const char *name;
    method_fn *call;
} methods[] = {
    {"hello", hello},        {"ping", ping},       {"help", help},       {"status", status},
    {"params", list_params}, {"command", command}, {"journal", journal}, {"subscribe", subscribe},
};

static int call_method(kj_run *run, kji_client *client, const kji_rpc_request *request,
                       struct json_object **ret_result, kj_error *err)
{
    for (size_t k = 0; k < sizeof methods / sizeof *methods; k++) {
        if (strcmp(methods[k].name, request->method) != 0)
            continue;
        struct json_object *none = request->params ? NULL : json_object_new_object();
        int r =
            methods[k].call(run, client, request->params ? request->params : none, ret_result, err);
        json_object_put(none);
        return r;
    }
    kji_fail(err, KJ_EPROTO,
             "no method \"%.60s\"; there are hello, ping, help, status, params, command, journal, "
             "subscribe",
             request->method);
    return KJI_RPC_NO_METHOD;
}

void kji_client_request(kj_run *run, kji_client *client, const char *text, size_t size)
{
    kji_rpc_request request;
    struct json_object *result = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_rpc_parse(text, size, &request, &err);
    if (r == 0)
        r = call_method(run, client, &request, &result, &err);
    if (!request.wants_answer)
        json_object_put(result);
    else if (r < 0)
        kji_rpc_error(&client->out, request.id, r, err.message, result);
    else
        kji_rpc_result(&client->out, request.id, result);
    kji_rpc_request_done(&request);
}
