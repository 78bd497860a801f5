/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "utf8.h"
#include "verbs-builtin.h"

#include <string.h>

static void free_own_verb(kji_verb *verb)
{
    if (!verb)
        return;
    for (size_t k = 0; verb->args && k < verb->n_args; k++) {
        free((char *)verb->args[k].name);
        free((char *)verb->args[k].help);
    }
    free((kji_verb_arg *)verb->args);
    free((char *)verb->name);
    free((char *)verb->help);
    free(verb);
}

void kji_own_verbs_done(kji_own_verbs *verbs)
{
    for (size_t k = 0; k < verbs->n; k++)
        free_own_verb(verbs->item[k]);
    for (size_t k = 0; k < KJI_N_STANDARD; k++)
        free_own_verb(verbs->provided[k]);
    free(verbs->item);
    *verbs = (kji_own_verbs){0};
}

static int copy_arg(const kj_arg *from, kji_verb_arg *to, kj_error *err)
{
    int r = kji_check_size(from->size, sizeof *from, "kj_arg", err);
    if (r < 0)
        return r;
    if (!from->name || !kji_name_valid(from->name) || kji_is_reserved_key(from->name))
        return kji_fail(err, KJ_EARG, "\"%.80s\" cannot name an argument",
                        from->name ? from->name : "");
    to->domain = (kji_domain){from->type, from->flags & 7, from->min, from->max};
    to->required = from->flags & KJ_ARG_REQUIRED;
    r = kji_domain_check(&to->domain, from->name, err);
    if (r < 0)
        return r;
    to->name = strdup(from->name);
    to->help = strndup(from->help ? from->help : "", KJI_STRING_MAX);
    return to->name && to->help ? 0 : kji_fail_memory(err);
}

static int copy_args(const kj_verb *from, kji_verb *verb, kj_error *err)
{
    kji_verb_arg *args = calloc(from->n_args + 1, sizeof *args);
    if (!args)
        return kji_fail_memory(err);
    verb->args = args;
    verb->n_args = from->n_args;
    for (size_t k = 0; k < from->n_args; k++) {
        int r = copy_arg(&from->args[k], &args[k], err);
        if (r < 0)
            return kji_fail_prefix(err, r, "verb %s", from->name);
        for (size_t j = 0; j < k; j++)
            if (strcmp(args[j].name, args[k].name) == 0)
                return kji_fail(err, KJ_EARG, "verb %s: argument %s is declared twice", from->name,
                                args[k].name);
    }
    return 0;
}

/* What the table declares for a standard verb. */
static int copy_declared(const kji_verb *from, kji_verb *verb, kj_error *err)
{
    kji_verb_arg *args = calloc(from->n_args + 1, sizeof *args);
    if (!args)
        return kji_fail_memory(err);
    verb->args = args;
    verb->n_args = from->n_args;
    for (size_t k = 0; k < from->n_args; k++) {
        args[k] = from->args[k];
        args[k].name = strdup(from->args[k].name);
        args[k].help = strdup(from->args[k].help);
        if (!args[k].name || !args[k].help)
            return kji_fail_memory(err);
    }
    return 0;
}

/* A standard verb for which there is no function yet. */
static bool is_to_be_provided(const kji_verb *verb)
{
    return verb && verb->standard && !verb->carry_out;
}

static int check_own_verb(const kji_own_verbs *verbs, const kj_verb *from, kj_error *err)
{
    int r = kji_check_size(from->size, sizeof *from, "kj_verb", err);
    if (r < 0)
        return r;
    const char *name = from->name ? from->name : "";
    bool is_lower = strpbrk(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == NULL;
    if (!kji_name_valid(name) || !is_lower)
        return kji_fail(err, KJ_EARG,
                        "\"%.80s\" cannot name a verb: a small letter, then up to 63 small "
                        "letters, digits, \"_\", \"-\", \".\"",
                        name);
    if (!from->run)
        return kji_fail(err, KJ_EARG, "verb %s: `run` is NULL", name);
    if (from->n_args > KJI_ARGS_MAX || (from->n_args && !from->args))
        return kji_fail(err, KJ_EARG, "verb %s: 0 to %d arguments", name, KJI_ARGS_MAX);
    const kji_verb *there = kji_verb_find(verbs, name);
    if (there && !is_to_be_provided(there))
        return kji_fail(err, KJ_EEXIST, "there is a verb %s already", name);
    if (there && there->n_args && from->n_args)
        return kji_fail(err, KJ_EARG, "the arguments of %s are declared already", name);
    if (verbs->n == KJI_VERBS_MAX)
        return kji_fail(err, KJ_ERANGE, "more than %d own verbs", KJI_VERBS_MAX);
    return 0;
}

static char *copy_help(const char *help, const kji_verb *standard)
{
    if (help)
        return strndup(help, KJI_STRING_MAX);
    return strdup(standard ? standard->help : "");
}

static int new_own_verb(const kj_verb *from, const kji_verb *standard, kji_verb **ret_verb,
                        kj_error *err)
{
    kji_verb *verb = calloc(1, sizeof *verb);
    if (!verb)
        return kji_fail_memory(err);
    if (standard)
        *verb = *standard;
    verb->own = !standard;
    verb->name = strdup(from->name);
    verb->help = copy_help(from->help, standard);
    verb->args = NULL;
    verb->at_epoch_end = from->flags & KJ_VERB_AT_EPOCH_END;
    verb->carry_out = standard ? kji_standard_carry_out : kji_own_verb_carry_out;
    verb->user_run = from->run;
    verb->userdata = from->userdata;
    int r = verb->name && verb->help ? 0 : kji_fail_memory(err);
    if (r >= 0)
        r = standard && standard->n_args ? copy_declared(standard, verb, err)
                                         : copy_args(from, verb, err);
    if (r < 0)
        free_own_verb(verb);
    else
        *ret_verb = verb;
    return r;
}

int kji_own_verbs_add(kji_own_verbs *verbs, const kj_verb *from, kj_error *err)
{
    int r = check_own_verb(verbs, from, err);
    if (r < 0)
        return r;
    const kji_verb *standard = kji_verb_find(verbs, from->name);
    kji_verb *verb = NULL;
    if (!kji_reserve(&verbs->item, &verbs->capacity, verbs->n + 1, sizeof *verbs->item))
        return kji_fail_memory(err);
    r = new_own_verb(from, standard, &verb, err);
    if (r < 0)
        return r;
    if (standard)
        verbs->provided[standard->standard] = verb;
    else
        verbs->item[verbs->n++] = verb;
    return 0;
}

static const kji_verb *verb_at(const kji_own_verbs *own, size_t index)
{
    if (index < kji_n_builtin_verbs) {
        const kji_verb *verb = &kji_builtin_verbs[index];
        return own->provided[verb->standard] ? own->provided[verb->standard] : verb;
    }
    index -= kji_n_builtin_verbs;
    return index < own->n ? own->item[index] : NULL;
}

const kji_verb *kji_verb_find(const kji_own_verbs *own, const char *name)
{
    const kji_verb *verb;
    for (size_t k = 0; (verb = verb_at(own, k)); k++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

int kji_verb_fail_unknown(const kji_own_verbs *own, const char *name, kj_error *err)
{
    const char *known[KJI_VERBS_MAX + 32];
    size_t n = 0;
    for (const kji_verb *verb; (verb = verb_at(own, n)); n++)
        known[n] = verb->name;
    return kji_fail_unknown(err, KJ_EREJECTED, "verb", name, known, n);
}

static int check_words(const kji_verb *verb, const kji_command *command, kj_error *err)
{
    size_t n = command->words ? json_object_array_length(command->words) : 0;
    if (n <= verb->max_words)
        return 0;
    const char *word =
        json_object_get_string(json_object_array_get_idx(command->words, verb->max_words));
    if (verb->max_words == 0)
        return kji_fail(err, KJ_EREJECTED, "%s takes no word like \"%.80s\"%s", verb->name, word,
                        verb->n_args || verb->takes_params ? "; write key=value" : "");
    return kji_fail(err, KJ_EREJECTED, "%s takes at most %zu word%s", verb->name, verb->max_words,
                    verb->max_words == 1 ? "" : "s");
}

static const kji_verb_arg *find_arg(const kji_verb *verb, const char *name)
{
    for (size_t k = 0; k < verb->n_args; k++)
        if (strcmp(verb->args[k].name, name) == 0)
            return &verb->args[k];
    return NULL;
}

static int fail_unknown_arg(const kji_verb *verb, const char *name, kj_error *err)
{
    if (verb->n_args == 0)
        return kji_fail(err, KJ_EREJECTED, "%s takes no key \"%.80s\"%s", verb->name, name,
                        verb->is_remark ? "; put the text in double quotes" : "");
    const char *known[KJI_ARGS_MAX];
    for (size_t k = 0; k < verb->n_args; k++)
        known[k] = verb->args[k].name;
    kji_fail_unknown(err, KJ_EREJECTED, "key", name, known, verb->n_args);
    return kji_fail_prefix(err, KJ_EREJECTED, "%s", verb->name);
}

int kji_verb_check_required(const kji_verb *verb, struct json_object *args, kj_error *err)
{
    for (size_t k = 0; k < verb->n_args; k++)
        if (verb->args[k].required && !json_object_object_get_ex(args, verb->args[k].name, NULL))
            return kji_fail(err, KJ_EREJECTED, "%s needs %s=%s", verb->name, verb->args[k].name,
                            kji_type_name(verb->args[k].domain.type));
    return 0;
}

static int check_args(const kji_verb *verb, kji_command *command, kj_error *err)
{
    struct json_object *typed = json_object_new_object();
    int r = typed ? 0 : kji_fail_memory(err);
    json_object_object_foreach(command->args, name, json)
    {
        if (r < 0)
            break;
        const kji_verb_arg *arg = find_arg(verb, name);
        kj_value value;
        r = arg ? kji_domain_read(&arg->domain, name, json, &value, err)
                : fail_unknown_arg(verb, name, err);
        if (r >= 0)
            json_object_object_add(typed, name, kji_json_new_value(&value));
    }
    if (r >= 0)
        r = kji_verb_check_required(verb, typed, err);
    if (r < 0) {
        json_object_put(typed);
        return r;
    }
    json_object_put(command->args);
    command->args = typed;
    return 0;
}

/* NULL when it can be done. */
static const char *why_not(const kj_run *run, const kji_verb *verb)
{
    if (verb->is_for_all_ranks && run->rank_refusal)
        return run->rank_refusal;
    return verb->why_not ? verb->why_not(run, verb) : NULL;
}

int kji_verb_check_can(const kj_run *run, const kji_verb *verb, kj_error *err)
{
    const char *why = why_not(run, verb);
    return why ? kji_fail(err, KJ_EUNSUPPORTED, "%s: %s", verb->name, why) : 0;
}

int kji_verb_check(kj_run *run, const kji_own_verbs *own, kji_command *command, kj_error *err)
{
    const kji_verb *verb = kji_verb_find(own, command->verb_name);
    if (!verb)
        return kji_verb_fail_unknown(own, command->verb_name, err);
    command->verb = verb;
    if ((verb->answer || verb->is_remark) && command->at.kind != KJI_AT_NOW)
        return kji_fail(err, KJ_EREJECTED,
                        "%s is answered at once; it cannot have at=", verb->name);
    if (command->save && !verb->takes_save)
        return kji_fail(err, KJ_EREJECTED, "%s takes no save=; stop, prune and pause do",
                        verb->name);
    int r = kji_verb_check_can(run, verb, err);
    if (r >= 0)
        r = check_words(verb, command, err);
    if (r >= 0 && !verb->takes_params)
        r = check_args(verb, command, err);
    if (r >= 0 && verb->check)
        r = verb->check(run, command, err);
    return r;
}

static struct json_object *describe_arg(const kji_verb_arg *arg)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "name", json_object_new_string(arg->name));
    kji_domain_describe(&arg->domain, object);
    json_object_object_add(object, "required", json_object_new_boolean(arg->required));
    json_object_object_add(object, "help", kji_json_new_text(arg->help, KJI_STRING_MAX));
    return object;
}

static struct json_object *describe_verb(const kj_run *run, const kji_verb *verb)
{
    const char *why = why_not(run, verb);
    struct json_object *object = json_object_new_object();
    struct json_object *args = json_object_new_array();
    for (size_t k = 0; k < verb->n_args; k++)
        json_object_array_add(args, describe_arg(&verb->args[k]));
    json_object_object_add(object, "name", json_object_new_string(verb->name));
    json_object_object_add(object, "help", kji_json_new_text(verb->help, KJI_STRING_MAX));
    json_object_object_add(object, "own", json_object_new_boolean(verb->own));
    json_object_object_add(object, "args", args);
    if (why)
        json_object_object_add(object, "why_not", kji_json_new_text(why, KJI_STRING_MAX));
    return object;
}

int kji_verbs_describe(const kj_run *run, const kji_own_verbs *own, const char *name,
                       struct json_object **ret_result, kj_error *err)
{
    if (name && !kji_verb_find(own, name))
        return kji_verb_fail_unknown(own, name, err);
    struct json_object *list = json_object_new_array();
    const kji_verb *verb;
    for (size_t k = 0; (verb = verb_at(own, k)); k++)
        if (!name || strcmp(verb->name, name) == 0)
            json_object_array_add(list, describe_verb(run, verb));
    struct json_object *result = json_object_new_object();
    json_object_object_add(result, "verbs", list);
    *ret_result = result;
    return 0;
}
