/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc.h"

#include "errors.h"
#include "json.h"
#include "utf8.h"

#include <string.h>

void kji_rpc_request_done(kji_rpc_request *request)
{
    json_object_put(request->root);
    *request = (kji_rpc_request){0};
}

static int read_id(kji_rpc_request *request, kj_error *err)
{
    request->wants_answer = json_object_object_get_ex(request->root, "id", &request->id);
    enum json_type type = json_object_get_type(request->id);
    if (type == json_type_null || type == json_type_int || type == json_type_double ||
        type == json_type_string)
        return 0;
    request->id = NULL;
    kji_fail(err, KJ_EPROTO, "\"id\" must be a number or a string");
    return KJI_RPC_INVALID_REQUEST;
}

/* NULL also for a string with a NUL byte in it. */
static const char *plain_string(struct json_object *object, const char *key)
{
    struct json_object *member;
    const char *text = kji_json_string(object, key);
    if (!text || !json_object_object_get_ex(object, key, &member))
        return NULL;
    return strlen(text) == (size_t)json_object_get_string_len(member) ? text : NULL;
}

static int read_request(kji_rpc_request *request, kj_error *err)
{
    request->wants_answer = true;
    if (!json_object_is_type(request->root, json_type_object)) {
        kji_fail(err, KJ_EPROTO, "a request is one JSON object");
        return KJI_RPC_INVALID_REQUEST;
    }
    int r = read_id(request, err);
    if (r < 0)
        return r;
    const char *version = kji_json_string(request->root, "jsonrpc");
    request->method = plain_string(request->root, "method");
    if (!version || strcmp(version, "2.0") != 0 || !request->method) {
        request->wants_answer = true;
        kji_fail(err, KJ_EPROTO, "a request has \"jsonrpc\": \"2.0\" and a \"method\"");
        return KJI_RPC_INVALID_REQUEST;
    }
    if (json_object_object_get_ex(request->root, "params", &request->params) && request->params &&
        !json_object_is_type(request->params, json_type_object)) {
        kji_fail(err, KJ_EPROTO, "\"params\" must be an object");
        return KJI_RPC_BAD_PARAMS;
    }
    return 0;
}

int kji_rpc_parse(const char *text, size_t size, kji_rpc_request *ret_request, kj_error *err)
{
    *ret_request = (kji_rpc_request){.wants_answer = true};
    if (!kji_utf8_valid(text, size)) {
        kji_fail(err, KJ_EPROTO, "the request is not UTF-8");
        return KJI_RPC_PARSE_ERROR;
    }
    if (kji_json_parse(text, size, &ret_request->root, err) < 0)
        return KJI_RPC_PARSE_ERROR;
    kji_json_tidy_doubles(&ret_request->root);
    return read_request(ret_request, err);
}

static void print(kji_strbuf *to, struct json_object *answer)
{
    kji_strbuf_puts(to, json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN |
                                                                   JSON_C_TO_STRING_NOSLASHESCAPE));
    kji_strbuf_putc(to, '\n');
    json_object_put(answer);
}

static struct json_object *new_answer(struct json_object *id)
{
    struct json_object *answer = json_object_new_object();
    json_object_object_add(answer, "jsonrpc", json_object_new_string("2.0"));
    json_object_object_add(answer, "id", json_object_get(id));
    return answer;
}

static const char *text_of(struct json_object *json, size_t *ret_size)
{
    return json_object_to_json_string_length(
        json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, ret_size);
}

void kji_rpc_result(kji_strbuf *to, struct json_object *id, struct json_object *result)
{
    size_t size = 4, id_size = 4;
    const char *text = result ? text_of(result, &size) : "null";
    const char *id_text = id ? text_of(id, &id_size) : "null";
    if (size > KJI_RPC_ANSWER_MAX - 4096) {
        json_object_put(result);
        kji_rpc_error(to, id, KJ_ERANGE, "the answer is larger than 1 MiB", NULL);
        return;
    }
    kji_strbuf_puts(to, "{\"jsonrpc\":\"2.0\",\"id\":");
    kji_strbuf_add(to, id_text, id_size);
    kji_strbuf_puts(to, ",\"result\":");
    kji_strbuf_add(to, text, size);
    kji_strbuf_puts(to, "}\n");
    json_object_put(result);
}

void kji_rpc_error(kji_strbuf *to, struct json_object *id, int code, const char *message,
                   struct json_object *data)
{
    struct json_object *answer = new_answer(id);
    struct json_object *error = json_object_new_object();
    json_object_object_add(error, "code", json_object_new_int(code));
    json_object_object_add(error, "message", kji_json_new_text(message, 4096));
    if (data)
        json_object_object_add(error, "data", data);
    json_object_object_add(answer, "error", error);
    print(to, answer);
}
