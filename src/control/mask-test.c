/* SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"

#include "json.h"
#include "kji-test.h"
#include "mem.h"

#include <string.h>

static void check_names(const char *const *names, bool secret)
{
    for (; *names; names++)
        if (kji_names_secret(*names, strlen(*names)) != secret)
            fail_msg("%s is %sa secret", *names, secret ? "not " : "");
}

static void test_names_of_secrets(void **state)
{
    (void)state;
    static const char *const names[] = {"key",
                                        "token",
                                        "secret",
                                        "password",
                                        "--api-key",
                                        "API_KEY",
                                        "OPENAI_KEY",
                                        "apiKey",
                                        "APIKey",
                                        "apikey",
                                        "APIKEY",
                                        "key2",
                                        "hf_token",
                                        "HfToken",
                                        "hftoken",
                                        "authToken",
                                        "api_keys",
                                        "access_tokens",
                                        "db-password",
                                        "DBPASSWORD",
                                        "password_file",
                                        "passwd",
                                        "user.pwd",
                                        "PGPASSWORD",
                                        "MYSQL_PWD",
                                        "mysqlpwd",
                                        "passphrase",
                                        "my_passcode",
                                        "credential",
                                        "aws_credentials",
                                        "client_secret",
                                        "secretValue",
                                        "aws_secret_access_key",
                                        "private_key",
                                        "api_key_b64",
                                        "token_value",
                                        "Authorization",
                                        "x-auth",
                                        "bearer",
                                        "cookie",
                                        "dbpass",
                                        "db_pass",
                                        "++db.password",
                                        "ssh_key_base64_string",
                                        NULL};
    check_names(names, true);
}

static void test_names_of_what_is_no_secret(void **state)
{
    (void)state;
    static const char *const names[] = {
        "lr",       "monkey",    "keys",        "keyboard", "key_dim",          "max_tokens",
        "tokens",   "tokenizer", "token_count", "num_pass", "passes",           "pad_token",
        "eosToken", "subtoken",  "public_key",  "bypass",   "compass",          "keyframe",
        "author",   "pwdx",      "key_id",      "turkey",   "tokens_per_batch", "",
        "-",        "1.5",       "\xc3\xa4",    "value",    "string",           NULL};
    check_names(names, false);
}

static void check_text(const char *text, const char *expected)
{
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(text, strlen(text));
    assert_string_equal(masked, expected);
}

static void test_texts(void **state)
{
    (void)state;
    check_text("set lr=0.1 api_key=abc at=now", "set lr=0.1 api_key=*** at=now");
    check_text("set api_key=\"a b\\\" c\" lr=1", "set api_key=\"***\" lr=1");
    check_text("set api_key=\"no end lr=1", "set api_key=\"***");
    check_text("password = hunter2", "password = ***");
    check_text("lr: 1\npassword: hunter2\nx: 2", "lr: 1\npassword: ***\nx: 2");
    check_text("password:hunter2 x", "password:*** x");
    check_text("api_key: \"abc\" is no int", "api_key: \"***\" is no int");
    check_text("{\"lr\": 1, \"token\": \"a,b\", \"x\": 2}",
               "{\"lr\": 1, \"token\": \"***\", \"x\": 2}");
    check_text("{\\\"token\\\": \\\"abc\\\", \\\"x\\\": 1}",
               "{\\\"token\\\": \\\"***\\\", \\\"x\\\": 1}");
    check_text("api_keys=[\"a b\", [1]] x", "api_keys=*** x");
    check_text("cfg['token']='abc'", "cfg['token']='***'");
    check_text("db[password]=abc x", "db[password]=*** x");
    check_text("token=>abc token:=abc", "token=>*** token:=***");
    check_text("--token abc --verbose --password", "--token *** --verbose --password");
    check_text("curl -H 'Authorization: Basic YWJj xyz'\nnext",
               "curl -H 'Authorization: ***\nnext");
    check_text("used bearer abc.def for it", "used bearer *** for it");
    check_text("http://h/x?token=abc&a=1 end", "http://h/x?token=*** end");
    check_text("host=h user=u password=p dbname=d", "host=h user=u password=*** dbname=d");
}

static void test_passwords_in_urls(void **state)
{
    (void)state;
    check_text("postgresql://me:pw@host/db?x=1", "postgresql://me:***@host/db?x=1");
    check_text("a://u:p@h,b://u2:p2@h2", "a://u:***@h,b://u2:***@h2");
    check_text("a://u:p:q@r@h", "a://u:***@h");
    check_text("http://h:8080/p:a@b http://u@h", "http://h:8080/p:a@b http://u@h");
}

static void test_prose_is_left_as_it_is(void **state)
{
    (void)state;
    check_text("the key: a smaller lr; token count 7", "the key: a smaller lr; token count 7");
    check_text("step 5: loss=nan, max_tokens=512", "step 5: loss=nan, max_tokens=512");
    check_text("the password is wrong", "the password is wrong");
    check_text("api_key: the server said no", "api_key: the server said no");
    check_text("", "");
    check_text("token=", "token=");
}

static void check_json(const char *text, const char *expected)
{
    struct json_object *json = NULL;
    assert_int_equal(kji_json_parse(text, strlen(text), &json, NULL), 0);
    struct json_object *masked = kji_mask_json(NULL, json);
    KJI_CLEANUP(kji_freep) char *out = kji_json_text(masked);
    assert_string_equal(out, expected);
    if (strcmp(text, expected) == 0)
        assert_ptr_equal(masked, json);
    json_object_put(masked);
    json_object_put(json);
}

static void test_values(void **state)
{
    (void)state;
    check_json("{\"lr\":0.1,\"token\":\"abc\"}", "{\"lr\":0.1,\"token\":\"***\"}");
    check_json("{\"password\":12345,\"use_token\":true,\"key\":null}",
               "{\"password\":\"***\",\"use_token\":true,\"key\":null}");
    check_json("{\"a\":[{\"secret\":{\"b\":1}},\"x://u:p@h\"]}",
               "{\"a\":[{\"secret\":\"***\"},\"x://u:***@h\"]}");
    check_json("{\"a\":[1,\"two\",{\"b\":\"c-d\"}],\"e\":\"f=g\"}",
               "{\"a\":[1,\"two\",{\"b\":\"c-d\"}],\"e\":\"f=g\"}");
}

static void test_an_error_that_quotes_a_secret(void **state)
{
    (void)state;
    struct json_object *args = NULL;
    static const char text[] = "{\"token\":\"hunter2\",\"mode\":\"fast\",\"pwd\":\"a\"}";
    assert_int_equal(kji_json_parse(text, strlen(text), &args, NULL), 0);
    KJI_CLEANUP(kji_freep)
    char *masked = kji_mask_quoted("bad hunter2hunter2, not fast as a", args);
    assert_string_equal(masked, "bad ******, not fast as a");
    json_object_put(args);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_secrets),
        cmocka_unit_test(test_names_of_what_is_no_secret),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_passwords_in_urls),
        cmocka_unit_test(test_prose_is_left_as_it_is),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_an_error_that_quotes_a_secret),
    };
    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}
