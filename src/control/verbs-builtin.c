/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of verbs, and the small ones. Questions are answered from what the helper thread knows;
 * `set` and what stands in endings.c, pause.c and standard-verbs.c acts in the training thread
 * (visit.c calls it at a safe point).
 */
#include "verbs-builtin.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "recover.h"
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
    return kji_verbs_describe(run, &run->own_verbs, name, ret_result, err);
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

static int note_check(kj_run *run, kji_command *command, kj_error *err)
{
    (void)run;
    return command->words ? 0 : kji_fail(err, KJ_EREJECTED, "note needs a text");
}

/* Its line in the journal is all that it does. */
static int note_settle(kj_run *run, kji_command *command, struct json_object **ret_result)
{
    (void)run, (void)command, (void)ret_result;
    return 1;
}

#define VALIDATE_ARG                                                        \
    {                                                                       \
        .name = "validate",                                                 \
        .help = "whether the validation that the loop would still make is " \
                "wanted",                                                   \
        .domain = {                                                         \
            .type = KJ_TYPE_BOOL                                            \
        }                                                                   \
    }

static const kji_verb_arg stop_args[] = {VALIDATE_ARG};

static const kji_verb_arg prune_args[] = {
    {.name = "rule", .help = "the rule that decided", .domain = {.type = KJ_TYPE_STRING}},
    {.name = "value",
     .help = "what it saw",
     .domain = {.type = KJ_TYPE_FLOAT, .flags = KJI_DOMAIN_NOT_FINITE}},
    {.name = "threshold",
     .help = "what it compared that with",
     .domain = {.type = KJ_TYPE_FLOAT, .flags = KJI_DOMAIN_NOT_FINITE}},
    VALIDATE_ARG,
};

static const kji_verb_arg pause_args[] = {
    {.name = "level",
     .help = "hold: waits; leave: saves a checkpoint and ends the process, to be started again",
     .domain = {.type = KJ_TYPE_STRING}},
    {.name = "for",
     .help = "goes on by itself after this time: 90s, 15m, 2h, 1d",
     .domain = {.type = KJ_TYPE_STRING}},
};

#define COUNT_DOMAIN                                                                         \
    {                                                                                        \
        .type = KJ_TYPE_INT, .flags = KJI_DOMAIN_MIN | KJI_DOMAIN_MAX, .min = 1, .max = 1e12 \
    }

static const kji_verb_arg extend_args[] = {
    {.name = "epochs", .help = "so many epochs more", .domain = COUNT_DOMAIN},
    {.name = "steps", .help = "so many steps more", .domain = COUNT_DOMAIN},
};

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
     .is_for_all_ranks = true,
     .help = "set NAME=VALUE...: gives parameters new values, all or none",
     .takes_params = true,
     .check = set_check,
     .carry_out = set_carry_out},
    {.name = "stop",
     .is_for_all_ranks = true,
     .has_kept_room = true,
     .takes_save = true,
     .ending = KJ_ENDING_STOP,
     .help = "stop [save=yes] [validate=yes/no]: asks the training to leave its loop",
     .args = stop_args,
     .n_args = 1,
     .check = kji_stop_check,
     .settle = kji_stop_settle,
     .carry_out = kji_stop_carry_out},
    {.name = "abort",
     .is_for_all_ranks = true,
     .has_kept_room = true,
     .ending = KJ_ENDING_ABORT,
     .help = "abort: leaves at once, without validation, checkpoint or the end of the epoch",
     .why_not = kji_abort_why_not,
     .settle = kji_abort_settle,
     .carry_out = kji_abort_carry_out},
    {.name = "prune",
     .is_for_all_ranks = true,
     .has_kept_room = true,
     .takes_save = true,
     .ending = KJ_ENDING_PRUNE,
     .help = "prune [rule=TEXT] [value=X] [threshold=X] [save=yes] [validate=yes/no]: a stop by a "
             "rule",
     .args = prune_args,
     .n_args = sizeof prune_args / sizeof *prune_args,
     .check = kji_stop_check,
     .settle = kji_stop_settle,
     .carry_out = kji_stop_carry_out},
    {.name = "pause",
     .is_for_all_ranks = true,
     .has_kept_room = true,
     .takes_save = true,
     .standard = KJI_PAUSE,
     .ending = KJ_ENDING_LEAVE,
     .help = "pause [for=TIME] [level=hold/leave] [save=yes]: the training waits until resume or "
             "stop, and answers meanwhile",
     .args = pause_args,
     .n_args = sizeof pause_args / sizeof *pause_args,
     .why_not = kji_standard_why_not,
     .check = kji_pause_check,
     .settle = kji_pause_settle,
     .carry_out = kji_pause_carry_out},
    {.name = "resume",
     .has_kept_room = true,
     .help = "resume: ends a pause",
     .check = kji_resume_check,
     .settle = kji_resume_settle,
     .carry_out = kji_resume_carry_out},
    {.name = "checkpoint",
     .is_for_all_ranks = true,
     .standard = KJI_CHECKPOINT,
     .help = "checkpoint: saves all that a resumed training needs",
     .why_not = kji_standard_why_not},
    {.name = "evaluate",
     .is_for_all_ranks = true,
     .standard = KJI_EVALUATE,
     .help = "evaluate: measures the model as it is now",
     .why_not = kji_standard_why_not},
    {.name = "extend",
     .is_for_all_ranks = true,
     .standard = KJI_EXTEND,
     .help = "extend epochs=N or steps=N: trains so much longer",
     .args = extend_args,
     .n_args = sizeof extend_args / sizeof *extend_args,
     .why_not = kji_standard_why_not,
     .check = kji_extend_check},
    {.name = "note",
     .has_kept_room = true,
     .is_remark = true,
     .help = "note TEXT...: a remark for the journal and those who watch",
     .max_words = KJI_WORDS_MAX,
     .check = note_check,
     .settle = note_settle},
    {.name = "recover",
     .help = "recover [SEQ...]: carries out what a run of this id left undone when it died",
     .max_words = KJI_WORDS_MAX,
     .check = kji_recover_check,
     .answer = kji_recover_answer},
};

const size_t kji_n_builtin_verbs = sizeof kji_builtin_verbs / sizeof *kji_builtin_verbs;
