/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC 2.0, one message per line (docs/protocol.md, section 4). */
#ifndef KJI_RPC_H
#define KJI_RPC_H

#include "strbuf.h"

#include <kajitori/error.h>

#include <json-c/json.h>
#include <stdbool.h>

enum {
    KJI_PROTOCOL = 1, /* docs/protocol.md */
    KJI_RPC_PARSE_ERROR = -32700,
    KJI_RPC_INVALID_REQUEST = -32600,
    KJI_RPC_NO_METHOD = -32601,
    KJI_RPC_BAD_PARAMS = -32602,
    KJI_RPC_REQUEST_MAX = 65536,
    KJI_RPC_ANSWER_MAX = 1 << 20
};

typedef struct kji_rpc_request {
    struct json_object *root; /* owns the rest */
    struct json_object *id;   /* may be NULL: null */
    bool wants_answer;        /* an id was given */
    const char *method;
    struct json_object *params; /* an object, NULL when none were given */
} kji_rpc_request;

/* 0, or the JSON-RPC error code with err->message; *ret_request is filled as far as it was
 * understood. kji_rpc_request_done either way. */
int kji_rpc_parse(const char *text, size_t size, kji_rpc_request *ret_request, kj_error *err);
void kji_rpc_request_done(kji_rpc_request *request);

/* Appends an answer as one line. `result` and `data` are taken over; `data` may be NULL. */
void kji_rpc_result(kji_strbuf *to, struct json_object *id, struct json_object *result);
void kji_rpc_error(kji_strbuf *to, struct json_object *id, int code, const char *message,
                   struct json_object *data);

#endif
