/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC requests and the commands in them: understood or refused with a reason; the answer to
 * either is one line of JSON. */
#include "command.h"
#include "json.h"
#include "rpc.h"

#include "fuzz.h"

#include <string.h>

static void check_command(struct json_object *params)
{
    kji_command *command = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_command_from_json(params, &command, &err);
    check(command && (r == 0 || (r == KJ_EREJECTED && *err.message)));
    struct json_object *record = kji_command_record(command);
    char *text = kji_json_text(record);
    check(text && !strchr(text, '\n'));
    free(text);
    json_object_put(record);
    kji_command_free(command);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    kji_rpc_request request;
    kj_error err = KJ_ERROR_INIT;
    kji_strbuf answer = KJI_STRBUF_INIT;
    int r = kji_rpc_parse((const char *)bytes, size, &request, &err);
    check(r == 0 || (r < 0 && *err.message));
    if (r == 0 && request.params)
        check_command(request.params);
    if (r == 0)
        kji_rpc_result(&answer, request.id, json_object_get(request.params));
    else
        kji_rpc_error(&answer, request.id, r, err.message, NULL);
    check(answer.size > 2 && strchr(answer.text, '\n') == answer.text + answer.size - 1);
    struct json_object *json = NULL;
    check(kji_json_parse(answer.text, answer.size, &json, NULL) == 0);
    json_object_put(json);
    kji_strbuf_done(&answer);
    kji_rpc_request_done(&request);
    return 0;
}
