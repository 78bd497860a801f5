/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out a verb of the program's own. The call has its own copy of the arguments, because the
 * helper thread may print the command's while the program works.
 */
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "utf8.h"
#include "verbs-builtin.h"

#include <string.h>

struct kj_call {
    int64_t step;
    int64_t epoch;
    struct json_object *args;
    char *args_text;
    struct json_object *result;
};

int kj_call_get_arg(const kj_call *call, const char *name, kj_value *ret_value)
{
    struct json_object *json;
    if (!json_object_object_get_ex(call->args, name, &json))
        return 0;
    return kji_json_get_value(json, ret_value) ? 1 : 0;
}

const char *kj_call_get_args_json(const kj_call *call)
{
    return call->args_text;
}

int64_t kj_call_get_step(const kj_call *call)
{
    return call->step;
}

int64_t kj_call_get_epoch(const kj_call *call)
{
    return call->epoch;
}

int kj_call_set_result(kj_call *call, const char *json, kj_error *err)
{
    size_t size = strlen(json);
    if (size > KJI_RESULT_MAX)
        return kji_fail(err, KJ_ERANGE, "a result of %zu bytes; at most %d go", size,
                        KJI_RESULT_MAX);
    if (!kji_utf8_valid(json, size))
        return kji_fail(err, KJ_EDATA, "the result is not UTF-8");
    struct json_object *result = NULL;
    int r = kji_json_parse(json, size, &result, err);
    if (r < 0)
        return r;
    kji_json_tidy_doubles(&result);
    json_object_put(call->result);
    call->result = result;
    return 0;
}

static int begin_call(const kji_command *command, struct json_object *args, kj_call *call,
                      kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(args);
    *call = (kj_call){.step = command->step, .epoch = command->epoch};
    if (!text)
        return kji_fail_memory(err);
    int r = kji_json_parse(text, strlen(text), &call->args, err);
    if (r >= 0)
        call->args_text = kji_take(&text);
    return r;
}

int kji_call_program(kj_run *run, const kji_verb *verb, const kji_command *command,
                     struct json_object *args, struct json_object **ret_result, kj_error *err)
{
    kj_call call;
    int r = begin_call(command, args, &call, err);
    if (r < 0)
        return r;
    kj_error inner = KJ_ERROR_INIT;
    kji_run_unlock(run);
    r = verb->user_run(verb->userdata, &call, &inner);
    kji_run_lock(run);
    if (r < 0)
        kji_fail(err, KJ_EFAILED, "%s", *inner.message ? inner.message : kj_error_text(r));
    else
        *ret_result = json_object_get(call.result);
    json_object_put(call.result);
    json_object_put(call.args);
    free(call.args_text);
    return r < 0 ? KJ_EFAILED : 0;
}

int kji_own_verb_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    kji_run_record(run, command, KJI_APPLIED);
    return kji_call_program(run, command->verb, command, command->args, &command->result, err);
}
