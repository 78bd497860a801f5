/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each verb does. Questions are answered from what the helper thread knows; the others act in
 * the training thread (visit.c calls them at a safe point). A stop meets other stops in four ways:
 * one that was applied settles the new one at once; one that acts earlier, or at the same place,
 * stays and the new one is done together with it; one that acts later is replaced; and where the
 * order cannot be known (a step and an epoch), both wait and the first to act ends the other.
 */
#include "verbs-builtin.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"

#include <string.h>

static int ping_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                       kj_error *err)
{
    (void)run, (void)command;
    *ret_result = json_object_new_object();
    return *ret_result ? 0 : kji_fail_memory(err);
}

static int help_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                       kj_error *err)
{
    const char *name = NULL;
    if (command->words)
        name = json_object_get_string(json_object_array_get_idx(command->words, 0));
    return kji_verbs_describe(&run->own_verbs, name, ret_result, err);
}

static int status_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                         kj_error *err)
{
    (void)command;
    *ret_result = kji_run_status(run);
    return *ret_result ? 0 : kji_fail_memory(err);
}

static int params_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                         kj_error *err)
{
    (void)command;
    *ret_result = kji_run_describe_params(run);
    return *ret_result ? 0 : kji_fail_memory(err);
}

static void ask_anew(kj_run *run, const kji_command *command, kji_param *param)
{
    if (command->sender.only_looks)
        return;
    param->stale = true;
    kji_run_pend(run, KJI_PENDING_REFRESH);
}

static int get_check(kj_run *run, kji_command *command, kj_error *err)
{
    size_t n = command->words ? json_object_array_length(command->words) : 0;
    for (size_t k = 0; k < n; k++) {
        const char *name = json_object_get_string(json_object_array_get_idx(command->words, k));
        if (!kji_params_find(&run->params, name))
            return kji_params_fail_unknown(&run->params, name, err);
    }
    return 0;
}

static int get_answer(kj_run *run, kji_command *command, struct json_object **ret_result,
                      kj_error *err)
{
    (void)err;
    struct json_object *list = json_object_new_array();
    size_t n = command->words ? json_object_array_length(command->words) : 0;
    for (size_t k = 0; k < n; k++) {
        const char *name = json_object_get_string(json_object_array_get_idx(command->words, k));
        kji_param *param = kji_params_find(&run->params, name);
        json_object_array_add(list, kji_param_describe(param));
        ask_anew(run, command, param);
    }
    for (size_t k = 0; n == 0 && k < run->params.n; k++) {
        json_object_array_add(list, kji_param_describe(run->params.item[k]));
        ask_anew(run, command, run->params.item[k]);
    }
    *ret_result = json_object_new_object();
    json_object_object_add(*ret_result, "params", list);
    return 0;
}

typedef struct assignment {
    kji_param *param;
    kj_value wanted; /* strings are its own */
    kj_value old;
} assignment;

static void assignments_free(assignment *list, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        kji_value_done(&list[k].wanted);
        kji_value_done(&list[k].old);
    }
    free(list);
}

/* What is to be set, in a form that can be used without the lock. */
static int list_assignments(kj_run *run, struct json_object *args, assignment **ret_list,
                            size_t *ret_n, kj_error *err)
{
    size_t n = 0;
    assignment *list = calloc((size_t)json_object_object_length(args) + 1, sizeof *list);
    if (!list)
        return kji_fail_memory(err);
    json_object_object_foreach(args, name, json)
    {
        assignment *item = &list[n];
        item->param = kji_params_find(&run->params, name);
        int r = kji_domain_read(&item->param->domain, name, json, &item->wanted, err);
        if (r >= 0 && item->wanted.type == KJ_TYPE_STRING) {
            item->wanted.s = strdup(item->wanted.s);
            r = item->wanted.s ? 0 : kji_fail_memory(err);
        }
        if (r < 0) {
            item->wanted.type = KJ_TYPE_NONE;
            assignments_free(list, n);
            return r;
        }
        n++;
    }
    *ret_list = list;
    *ret_n = n;
    return 0;
}

static int call_setter(const kji_param *param, const kj_value *value, kj_error *err)
{
    kj_error inner = KJ_ERROR_INIT;
    int r = param->set(param->userdata, value, &inner);
    if (r < 0)
        return kji_fail(err, KJ_EFAILED, "%s: %s", param->name,
                        *inner.message ? inner.message : kj_error_text(r));
    return 0;
}

/* Sets all, remembering the old values. *ret_done: how many setters were called. No lock held. */
static int set_all(assignment *list, size_t n, size_t *ret_done, kj_error *err)
{
    for (*ret_done = 0; *ret_done < n;) {
        assignment *item = &list[*ret_done];
        int r = kji_param_read(item->param, &item->old, err);
        if (r < 0)
            return r;
        (*ret_done)++;
        r = call_setter(item->param, &item->wanted, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Whether the old value is the one in force still, or again. */
static bool is_in_force(const assignment *item)
{
    kj_value now;
    if (kji_param_read(item->param, &now, NULL) < 0)
        return false;
    bool same = now.type == KJ_TYPE_STRING  ? strcmp(now.s, item->old.s) == 0
                : now.type == KJ_TYPE_FLOAT ? memcmp(&now.f, &item->old.f, sizeof now.f) == 0
                                            : now.i == item->old.i;
    kji_value_done(&now);
    return same;
}

/* A setter failed: the values before it go back, so that nothing is applied in part. No lock held.
 */
static void take_back(assignment *list, size_t done, kj_error *err)
{
    for (size_t k = done; k-- > 0;) {
        kj_error inner = KJ_ERROR_INIT;
        if (!is_in_force(&list[k]) && call_setter(list[k].param, &list[k].old, &inner) < 0)
            kji_fail_prefix(err, KJ_EFAILED, "could not be taken back (%.200s) after",
                            inner.message);
    }
}

static struct json_object *values_json(const assignment *list, size_t n, bool old)
{
    struct json_object *object = json_object_new_object();
    for (size_t k = 0; k < n; k++)
        json_object_object_add(object, list[k].param->name,
                               kji_value_json(old ? &list[k].old : &list[k].param->value));
    return object;
}

/* Reads the assigned parameters back into the table. Lock held, let go of meanwhile. */
static int read_back(kj_run *run, const assignment *list, size_t n, kj_error *err)
{
    int result = 0;
    for (size_t k = 0; k < n; k++) {
        kj_value value;
        kji_run_unlock(run);
        int r = kji_param_read(list[k].param, &value, result < 0 ? NULL : err);
        kji_run_lock(run);
        if (r >= 0)
            kji_param_store(list[k].param, &value, kji_run_step(run));
        result = result < 0 ? result : r;
    }
    return result;
}

static int set_check(kj_run *run, kji_command *command, kj_error *err)
{
    return kji_params_check_set(&run->params, command->args, err);
}

static int set_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    assignment *list = NULL;
    size_t n = 0, done = 0;
    int r = list_assignments(run, command->args, &list, &n, err);
    if (r < 0)
        return r;
    kji_run_unlock(run);
    r = set_all(list, n, &done, err);
    if (r < 0)
        take_back(list, done, err);
    kji_run_lock(run);
    int r2 = read_back(run, list, n, r < 0 ? NULL : err);
    r = r < 0 ? r : r2;
    if (r >= 0) {
        command->old_values = values_json(list, n, true);
        command->new_values = values_json(list, n, false);
        kji_run_record(run, command, KJI_APPLIED);
    }
    assignments_free(list, n);
    return r;
}

static struct json_object *already(const char *what, int64_t seq)
{
    struct json_object *result = json_object_new_object();
    json_object_object_add(result, what, json_object_new_boolean(true));
    if (seq > 0)
        json_object_object_add(result, "seq", json_object_new_int64(seq));
    return result;
}

static bool is_stop(const kji_command *command)
{
    return strcmp(command->verb_name, "stop") == 0;
}

/* Takes every other stop that `which` names out of the queue, and ends it in `state`. */
static void end_other_stops(kj_run *run, const kji_command *command, int state,
                            bool (*which)(const kji_command *other, const kji_command *command))
{
    kji_command **link = &run->queue;
    while (*link) {
        kji_command *other = *link;
        if (other == command || !is_stop(other) || !which(other, command)) {
            link = &other->next;
            continue;
        }
        *link = other->next;
        if (!*link)
            run->queue_end = link;
        run->n_queued--;
        run->queued_bytes -= other->size;
        if (state == KJI_EXPIRED)
            other->error =
                kji_format("replaced by the earlier stop with seq %lld", (long long)command->seq);
        else
            other->result = already("already_stopping", command->seq);
        kji_run_finish(run, other, state);
    }
}

static bool acts_later(const kji_command *other, const kji_command *command)
{
    return kji_at_is_earlier(&command->at, &other->at);
}

static bool any_other(const kji_command *other, const kji_command *command)
{
    (void)other, (void)command;
    return true;
}

static int stop_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    if (__atomic_load_n(&run->stopped, __ATOMIC_RELAXED)) {
        *ret_result = already("already_stopping", run->stop_seq);
        return 1;
    }
    end_other_stops(run, command, KJI_EXPIRED, acts_later);
    return 0;
}

static int stop_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    (void)err;
    run->stop_seq = command->seq;
    run->stop_reason = strdup(command->reason ? command->reason : "");
    kji_run_record(run, command, KJI_APPLIED);
    __atomic_store_n(&run->stopped, 1, __ATOMIC_RELEASE);
    kji_run_pend(run, KJI_PENDING_STOPPED);
    end_other_stops(run, command, KJI_DONE, any_other);
    kji_run_tell_state(run, "stopping");
    return 0;
}

static bool is_queued(const kj_run *run, const char *verb)
{
    for (const kji_command *command = run->queue; command; command = command->next)
        if (strcmp(command->verb_name, verb) == 0)
            return true;
    return false;
}

static int pause_check(kj_run *run, kji_command *command, kj_error *err)
{
    (void)command;
    if (__atomic_load_n(&run->stopped, __ATOMIC_RELAXED))
        return kji_fail(err, KJ_EREJECTED, "the run is stopping; it cannot be paused");
    return 0;
}

static int pause_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    if (!run->paused || command->at.kind != KJI_AT_NOW || is_queued(run, "resume"))
        return 0;
    *ret_result = already("already_paused", 0);
    return 1;
}

static int pause_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    int r = pause_check(run, command, err);
    if (r < 0)
        return r;
    kji_run_record(run, command, KJI_APPLIED);
    if (!run->paused)
        kji_run_tell_state(run, "paused");
    run->paused = true;
    return 0;
}

static int resume_check(kj_run *run, kji_command *command, kj_error *err)
{
    (void)run;
    if (command->at.kind != KJI_AT_NOW)
        return kji_fail(err, KJ_EREJECTED,
                        "resume cannot have at=: a paused training reaches no step");
    return 0;
}

static int resume_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    (void)command;
    if (run->paused || is_queued(run, "pause"))
        return 0;
    *ret_result = already("not_paused", 0);
    return 1;
}

static int resume_carry_out(kj_run *run, kji_command *command, kj_error *err)
{
    (void)err;
    kji_run_record(run, command, KJI_APPLIED);
    bool was_paused = run->paused;
    run->paused = false;
    if (was_paused)
        kji_run_tell_state(run, kji_run_state(run));
    return 0;
}

const kji_verb kji_builtin_verbs[] = {
    {.name = "ping", .help = "ping: is the run there?", .answer = ping_answer},
    {.name = "help",
     .help = "help [VERB]: the verbs, with their arguments",
     .max_words = 1,
     .answer = help_answer},
    {.name = "status",
     .help = "status: state, step, epoch, newest metrics, parameters, what is scheduled",
     .answer = status_answer},
    {.name = "params",
     .help = "params: the parameters with type, range and value",
     .answer = params_answer},
    {.name = "get",
     .help = "get [NAME...]: the last known values, with the step at which they were read",
     .max_words = KJI_WORDS_MAX,
     .check = get_check,
     .answer = get_answer},
    {.name = "set",
     .help = "set NAME=VALUE...: gives parameters new values, all or none",
     .takes_params = true,
     .check = set_check,
     .carry_out = set_carry_out},
    {.name = "stop",
     .has_kept_room = true,
     .help = "stop: asks the training to leave its loop; what it does after the loop is done",
     .settle = stop_settle,
     .carry_out = stop_carry_out},
    {.name = "pause",
     .has_kept_room = true,
     .help = "pause: the training waits until resume or stop, and answers meanwhile",
     .check = pause_check,
     .settle = pause_settle,
     .carry_out = pause_carry_out},
    {.name = "resume",
     .has_kept_room = true,
     .help = "resume: ends a pause",
     .check = resume_check,
     .settle = resume_settle,
     .carry_out = resume_carry_out},
};

const size_t kji_n_builtin_verbs = sizeof kji_builtin_verbs / sizeof *kji_builtin_verbs;
