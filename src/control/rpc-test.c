/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc.h"

#include "json.h"

#include "kji-test.h"

#include <string.h>

static int parse(const char *text, kji_rpc_request *request)
{
    kj_error err = KJ_ERROR_INIT;
    int r = kji_rpc_parse(text, strlen(text), request, &err);
    if (r < 0)
        assert_true(*err.message);
    return r;
}

static void test_a_request(void **state)
{
    (void)state;
    kji_rpc_request request;
    assert_int_equal(
        parse("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\",\"params\":{}}", &request), 0);
    assert_true(request.wants_answer);
    assert_string_equal(request.method, "ping");
    assert_non_null(request.params);
    kji_rpc_request_done(&request);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"method\":\"ping\"}", &request), 0);
    assert_false(request.wants_answer);
    assert_null(request.params);
    kji_rpc_request_done(&request);
}

static void test_what_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"{", KJI_RPC_PARSE_ERROR},
        {"\xff", KJI_RPC_PARSE_ERROR},
        {"{} {}", KJI_RPC_PARSE_ERROR},
        {"[]", KJI_RPC_INVALID_REQUEST},
        {"7", KJI_RPC_INVALID_REQUEST},
        {"{}", KJI_RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", KJI_RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}", KJI_RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":2}", KJI_RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}", KJI_RPC_BAD_PARAMS},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kji_rpc_request request;
        assert_int_equal(parse(cases[k].text, &request), cases[k].code);
        assert_true(request.wants_answer);
        kji_rpc_request_done(&request);
    }
}

static void test_answers_are_one_line(void **state)
{
    (void)state;
    kji_strbuf to = KJI_STRBUF_INIT;
    struct json_object *id = json_object_new_int(3);
    kji_rpc_result(&to, id, json_object_new_string("a\nb"));
    assert_string_equal(to.text, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"a\\nb\"}\n");
    kji_strbuf_clear(&to);
    kji_rpc_error(&to, NULL, -32700, "what\n?", NULL);
    assert_string_equal(
        to.text,
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what ?\"}}\n");
    json_object_put(id);
    kji_strbuf_done(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_answers_are_one_line),
    };
    return cmocka_run_group_tests_name("rpc", tests, NULL, NULL);
}
