/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A study handle brings the parts together: a storage that keeps trials, a sampler and a pruner
 * that look at them through the history, which the handle brings up to date.
 */
#include "engine.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "optuna-json.h"
#include "strbuf.h"
#include "utf8.h"

#include <stdio.h>
#include <string.h>

int kji_check_name(const char *name, const char *what, kj_error *err)
{
    if (!name)
        return kji_fail(err, KJ_EARG, "%s is missing", what);
    size_t characters = 0;
    for (const char *c = name; *c; c++)
        characters += ((unsigned char)*c & 0xc0) != 0x80;
    if (characters > KJI_NAME_LIMIT)
        return kji_fail(err, KJ_EARG, "%s is too long: it has %zu characters, %d are possible",
                        what, characters, KJI_NAME_LIMIT);
    return kji_utf8_valid(name, strlen(name)) ? 0 : kji_fail(err, KJ_EARG, "%s is not UTF-8", what);
}

int kji_to_optuna_json(const char *json, const char *what, char **ret_json, kj_error *err)
{
    if (!json)
        return kji_fail(err, KJ_EARG, "%s is missing", what);
    kji_strbuf text = KJI_STRBUF_INIT;
    int r = kji_optuna_json_rewrite(json, strlen(json), &text, err);
    if (r < 0) {
        kji_strbuf_done(&text);
        return kji_fail_prefix(err, r, "%s", what);
    }
    char *taken = kji_strbuf_take(&text);
    if (!taken)
        return kji_fail_memory(err);
    *ret_json = taken;
    return 0;
}

/* Optuna's form of a made-up name: "no-name-" and a random UUID. */
static int make_up_name(char **ret_name, kj_error *err)
{
    kji_rng rng;
    int r = kji_rng_seed_randomly(&rng, err);
    if (r < 0)
        return r;
    uint32_t w[4];
    for (int k = 0; k < 4; k++)
        w[k] = kji_rng_uint32(&rng);
    char *name = kji_format("no-name-%08x-%04x-4%03x-%04x-%04x%08x", w[0], w[1] >> 16, w[1] & 0xfff,
                            0x8000 | (w[2] >> 16 & 0x3fff), w[2] & 0xffff, w[3]);
    if (!name)
        return kji_fail_memory(err);
    *ret_name = name;
    return 0;
}

static int take_name(kj_study *study, const kj_study_options *options, kj_error *err)
{
    if (!options->name && (options->flags & KJ_STUDY_CREATE))
        return make_up_name(&study->name, err);
    int r = kji_check_name(options->name, "the study's name", err);
    if (r < 0)
        return r;
    study->name = strdup(options->name);
    return study->name ? 0 : kji_fail_memory(err);
}

typedef struct names {
    kji_strbuf text;
    size_t n;
} names;

static int add_name(void *userdata, const char *name)
{
    enum { SHOWN = 20 };
    names *list = userdata;
    if (list->n++ == SHOWN) {
        kji_strbuf_puts(&list->text, ", …");
        return 1;
    }
    kji_strbuf_printf(&list->text, "%s\"%s\"", list->n > 1 ? ", " : "", name);
    return 0;
}

static int unknown_study(kj_study *study, kj_error *err)
{
    names list = {KJI_STRBUF_INIT, 0};
    int r = study->storage->ops->list_studies(study->storage->self, add_name, &list, err);
    if (r >= 0)
        r = kji_fail(err, KJ_ENOENT, "there is no study \"%s\" in %s; there %s%s", study->name,
                     study->storage->url, list.n ? "are " : "is none", list.text.text);
    kji_strbuf_done(&list.text);
    return r;
}

static const char *direction_text(int direction)
{
    return direction == KJ_DIRECTION_MAXIMIZE   ? "maximize"
           : direction == KJ_DIRECTION_MINIMIZE ? "minimize"
                                                : "not set";
}

static int adopt(kj_study *study, const kji_study_row *row, const kj_study_options *options,
                 kj_error *err)
{
    if (!(options->flags & KJ_STUDY_LOAD) && options->flags != 0)
        return kji_fail(err, KJ_EEXIST, "there is a study \"%s\" already in %s", study->name,
                        study->storage->url);
    if (row->n_objectives > 1)
        return kji_fail(err, KJ_EUNSUPPORTED,
                        "study \"%s\" has %d objectives; only one is supported", study->name,
                        (int)row->n_objectives);
    if (options->direction != KJ_DIRECTION_NOT_SET && options->direction != row->direction)
        return kji_fail(err, KJ_EARG, "study \"%s\" exists with direction %s, not %s", study->name,
                        direction_text(row->direction), direction_text(options->direction));
    study->id = row->id;
    study->direction = row->direction;
    return 0;
}

static int find_or_create(kj_study *study, const kj_study_options *options, kj_error *err)
{
    const kji_storage_ops *ops = study->storage->ops;
    void *self = study->storage->self;
    kji_study_row row;
    int r = ops->find_study(self, study->name, &row, err);
    if (r != 0)
        return r < 0 ? r : adopt(study, &row, options, err);
    if (!(options->flags & KJ_STUDY_CREATE))
        return unknown_study(study, err);
    study->direction = options->direction ? options->direction : KJ_DIRECTION_MINIMIZE;
    kj_error failure = KJ_ERROR_INIT;
    r = ops->create_study(self, study->name, study->direction, &study->id, &failure);
    if (r >= 0)
        return r;
    if (r != KJ_EEXIST || !(options->flags & KJ_STUDY_LOAD))
        return kji_forward(err, &failure);
    /* Another process was faster. */
    r = ops->find_study(self, study->name, &row, err);
    if (r == 0)
        return kji_fail(err, KJ_ENOENT, "study \"%s\" was deleted meanwhile", study->name);
    return r < 0 ? r : adopt(study, &row, options, err);
}

static int set_up(kj_study *study, const kj_study_options *options, kj_error *err)
{
    if (options->direction < 0 || options->direction > KJ_DIRECTION_MAXIMIZE)
        return kji_fail(err, KJ_EARG, "%d is no direction", (int)options->direction);
    int r = take_name(study, options, err);
    if (r >= 0)
        r = kji_sampler_new(options->sampler, options->sampler_options,
                            options->has_seed ? &options->seed : NULL, &study->sampler, err);
    if (r >= 0)
        r = kji_pruner_new(options->pruner, options->pruner_options, &study->pruner, err);
    if (r >= 0)
        r = find_or_create(study, options, err);
    if (r < 0)
        return r;
    study->history = kji_history_new(study->direction);
    return study->history ? 0 : kji_fail_memory(err);
}

int kj_study_open(kj_storage *storage, const kj_study_options *options, kj_study **ret_study,
                  kj_error *err)
{
    if (!storage || !options)
        return kji_fail(err, KJ_EARG, "a storage and options are needed");
    int r = kji_check_size(options->size, sizeof *options, "kj_study_options", err);
    if (r < 0)
        return r;
    kj_study *study = calloc(1, sizeof *study);
    if (!study)
        return kji_fail_memory(err);
    study->storage = storage;
    r = set_up(study, options, err);
    if (r < 0)
        kj_study_close(study);
    else
        *ret_study = study;
    return r < 0 ? r : 0;
}

void kj_study_close(kj_study *study)
{
    if (!study)
        return;
    for (size_t k = 0; k < study->n_space; k++) {
        free(study->space[k].name);
        kji_distribution_unref(study->space[k].distribution);
    }
    free(study->space);
    free(study->mark.key);
    free(study->mark.json);
    kji_history_free(study->history);
    kji_sampler_free(study->sampler);
    kji_pruner_free(study->pruner);
    free(study->name);
    free(study);
}

const char *kj_study_get_name(const kj_study *study)
{
    return study->name;
}

int kj_study_get_direction(const kj_study *study)
{
    return study->direction;
}

int kj_study_set_fact(kj_study *study, const char *key, const char *json, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    int r = kji_check_name(key, "the fact's key", err);
    if (r >= 0)
        r = kji_to_optuna_json(json, "the fact", &text, err);
    return r < 0 ? r
                 : study->storage->ops->set_fact(study->storage->self, study->id, key, text, err);
}

int kj_study_add_fact(kj_study *study, const char *key, const char *json, char **ret_json,
                      kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    int r = kji_check_name(key, "the fact's key", err);
    if (r >= 0)
        r = kji_to_optuna_json(json, "the fact", &text, err);
    return r < 0 ? r
                 : study->storage->ops->add_fact(study->storage->self, study->id, key, text,
                                                 ret_json, err);
}

int kj_study_get_fact(kj_study *study, const char *key, char **ret_json, kj_error *err)
{
    int r = kji_check_name(key, "the fact's key", err);
    return r < 0
               ? r
               : study->storage->ops->get_fact(study->storage->self, study->id, key, ret_json, err);
}

int kj_study_mark_claims(kj_study *study, const char *key, const char *json, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    int r = kji_check_name(key, "the mark's key", err);
    if (r >= 0)
        r = kji_to_optuna_json(json, "the mark", &text, err);
    if (r < 0)
        return r;
    char *name = strdup(key);
    if (!name)
        return kji_fail_memory(err);
    free(study->mark.key);
    free(study->mark.json);
    study->mark = (kji_attribute){name, kji_take(&text)};
    return 0;
}

int kj_study_ask(kj_study *study, kj_trial **ret_trial, kj_error *err)
{
    kji_trial *stored;
    const kji_attribute *mark = study->mark.key ? &study->mark : NULL;
    int r = study->storage->ops->claim_trial(study->storage->self, study->id, mark, &stored, err);
    if (r < 0)
        return r;
    if (!study->has_asked && stored->number > 0)
        kji_sampler_go_on(study->sampler, stored->number);
    study->has_asked = true;
    return kji_trial_handle_new(study, stored, ret_trial, err);
}

int kj_study_get_trial(kj_study *study, int64_t number, kj_trial **ret_trial, kj_error *err)
{
    kji_trial *stored;
    int r = study->storage->ops->read_trial(study->storage->self, study->id, number, &stored, err);
    if (r < 0)
        return r;
    if (r == 0)
        return kji_fail(err, KJ_ENOENT, "study \"%s\" has no trial %lld", study->name,
                        (long long)number);
    return kji_trial_handle_new(study, stored, ret_trial, err);
}

static int check_params(const char *json, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *object = NULL;
    int r = kji_json_parse(json, strlen(json), &object, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "the parameters");
    if (!json_object_is_type(object, json_type_object))
        return kji_fail(err, KJ_EARG, "the parameters must be a JSON object");
    json_object_object_foreach(object, name, member)
    {
        kj_value value;
        r = kji_check_name(name, "a parameter's name", err);
        if (r < 0)
            return r;
        if (!kji_json_get_value(member, &value))
            return kji_fail(err, KJ_EARG, "parameter \"%s\" must be a single value", name);
    }
    return 0;
}

static int take_attribute(void *userdata, const char *key, const char *json, kj_error *err)
{
    int r = kji_check_name(key, "an attribute's key", err);
    if (r < 0)
        return r;
    return kji_attributes_set(userdata, key, json) ? 0 : kji_fail_memory(err);
}

int kj_study_enqueue(kj_study *study, const char *params_json, const char *attributes_json,
                     int64_t *ret_number, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *params = NULL;
    KJI_CLEANUP(kji_attributes_done) kji_attributes user = {0};
    const char *given = params_json ? params_json : "{}";
    int r = kji_to_optuna_json(given, "the parameters", &params, err);
    if (r >= 0)
        r = check_params(given, err);
    if (r < 0)
        return r;
    r = attributes_json ? kji_optuna_json_members(attributes_json, take_attribute, &user, err) : 0;
    if (r < 0)
        return kji_fail_prefix(err, r, "the attributes");
    int64_t number;
    kji_queued queued = {params, &user};
    r = study->storage->ops->queue_trial(study->storage->self, study->id, &queued, &number, err);
    if (r < 0)
        return r;
    if (ret_number)
        *ret_number = number;
    return 0;
}
