/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kj_tune_*: checks, the study with its facts, the folder of trials, then the worker.
 *
 * Three facts are kept with the study: its search space and its metric, so that a changed command
 * line does not mix two searches, and an id that the trials folder repeats, so that a new database
 * is never continued with an old folder.
 */
#include "tune-check.h"

#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "trials-folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

struct kj_tune {
    kji_tune_config config;
    kj_storage *storage;
    kj_study *study;
    bool created;
    atomic_int interrupts;
    int interrupt_fd;
};

static int wanted_direction(const kj_tune_options *options)
{
    return options->direction ? options->direction : KJ_DIRECTION_MINIMIZE;
}

static const char *direction_name(int direction)
{
    return direction == KJ_DIRECTION_MAXIMIZE   ? "--maximize"
           : direction == KJ_DIRECTION_MINIMIZE ? "--minimize"
                                                : "not set";
}

static int text_to_json(const char *text, char **ret_json, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = json_object_new_string(text);
    *ret_json = json ? kji_json_text(json) : NULL;
    return *ret_json ? 0 : kji_fail_memory(err);
}

static int compare_metric(const kj_tune *tune, const char *stored, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = kji_json_parse(stored, strlen(stored), &json, err);
    if (r < 0)
        return r;
    const char *before = json_object_get_string(json);
    if (before && strcmp(before, tune->config.metric) == 0)
        return 0;
    return kji_fail(err, KJ_ESTATE,
                    "the metric of study %s has changed: it was %s and is now %s; a new metric is "
                    "a new study: name it with --study NAME",
                    tune->config.study_name, before ? before : "null", tune->config.metric);
}

static int compare_direction(const kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    int before = kj_study_get_direction(tune->study), now = wanted_direction(options);
    if (before == now)
        return 0;
    return kji_fail(err, KJ_ESTATE,
                    "the direction of study %s has changed: it was %s and is now %s; another "
                    "direction is a new study: name it with --study NAME",
                    tune->config.study_name, direction_name(before), direction_name(now));
}

/* What the study knows of must not have changed; what it has no fact of may be anything. */
static int check_facts(kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *space = NULL;
    KJI_CLEANUP(kji_freep) char *metric = NULL;
    int r = compare_direction(tune, options, err);
    if (r >= 0)
        r = kj_study_get_fact(tune->study, "search_space", &space, err);
    if (r == 1)
        r = kji_tune_compare_space(&tune->config, space, err);
    if (r >= 0)
        r = kj_study_get_fact(tune->study, "metric", &metric, err);
    if (r == 1)
        r = compare_metric(tune, metric, err);
    return r < 0 ? r : 0;
}

/* Another worker may set them at the same moment: then its facts hold. */
static int set_facts(kj_tune *tune, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *space = kji_tune_space_json(&tune->config);
    KJI_CLEANUP(kji_freep) char *metric = NULL;
    KJI_CLEANUP(kji_freep) char *other_space = NULL;
    KJI_CLEANUP(kji_freep) char *other_metric = NULL;
    if (!space)
        return kji_fail_memory(err);
    int r = text_to_json(tune->config.metric, &metric, err);
    if (r >= 0)
        r = kj_study_add_fact(tune->study, "search_space", space, &other_space, err);
    if (r == 1)
        r = kji_tune_compare_space(&tune->config, other_space, err);
    if (r >= 0)
        r = kj_study_add_fact(tune->study, "metric", metric, &other_metric, err);
    if (r == 1)
        r = compare_metric(tune, other_metric, err);
    return r < 0 ? r : 0;
}

/* The study's id, made when it has none; for free. */
static int get_study_id(kj_tune *tune, char **ret_id, kj_error *err)
{
    char id[KJI_ID_TEXT], json[KJI_ID_TEXT + 2];
    int r = kji_make_id(id, err);
    if (r < 0)
        return r;
    snprintf(json, sizeof json, "\"%s\"", id);
    KJI_CLEANUP(kji_freep) char *there = NULL;
    KJI_CLEANUP(kji_json_putp) struct json_object *value = NULL;
    r = kj_study_add_fact(tune->study, "tune_id", json, &there, err);
    if (r == 1)
        r = kji_json_parse(there, strlen(there), &value, err);
    if (r < 0)
        return r;
    const char *known = value ? json_object_get_string(value) : id;
    *ret_id = strdup(known ? known : "");
    return *ret_id ? 0 : kji_fail_memory(err);
}

static int open_study(const kj_tune *tune, const kj_tune_options *options, kj_storage *storage,
                      uint32_t flags, kj_study **ret_study, kj_error *err)
{
    kj_study_options study = KJ_STUDY_OPTIONS_INIT;
    study.flags = flags;
    study.name = tune->config.study_name;
    if (flags & KJ_STUDY_CREATE)
        study.direction = wanted_direction(options);
    study.has_seed = options->has_seed;
    study.seed = options->seed;
    study.sampler = options->sampler;
    study.sampler_options = options->sampler_options;
    study.pruner = options->pruner;
    study.pruner_options = options->pruner_options;
    return kj_study_open(storage, &study, ret_study, err);
}

static int try_to_draw(const kj_tune *tune, kj_study *study, kj_error *err)
{
    kj_trial *trial;
    int r = kj_study_ask(study, &trial, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < tune->config.n_params && r >= 0; k++) {
        kj_value value;
        r = kj_trial_suggest(trial, tune->config.params[k].name,
                             &tune->config.params[k].distribution, &value, err);
    }
    kj_trial_free(trial);
    return r;
}

/* Sampler, pruner, their options and the ranges, tried on a study that is nowhere: a wrong one must
 * not leave a database behind. */
static int check_study_options(const kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    kj_storage *storage;
    int r = kj_storage_open("memory:", &storage, err);
    if (r < 0)
        return r;
    kj_study *study = NULL;
    r = open_study(tune, options, storage, KJ_STUDY_CREATE, &study, err);
    if (r >= 0)
        r = try_to_draw(tune, study, err);
    kj_study_close(study);
    kj_storage_close(storage);
    return r;
}

/* Loads the study: 1, or 0 when it is still to be created. */
static int load_study(kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    kj_error failure = KJ_ERROR_INIT;
    int r = open_study(tune, options, tune->storage, KJ_STUDY_LOAD, &tune->study, &failure);
    if (r == KJ_ENOENT)
        return 0;
    if (r < 0) {
        if (err)
            *err = failure;
        return r;
    }
    r = check_facts(tune, options, err);
    return r < 0 ? r : 1;
}

/* Creates the study, or loads it when another worker was faster. */
static int create_study(kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    int r = kji_trials_folder_check_new(&tune->config, err);
    if (r < 0)
        return r;
    kj_error failure = KJ_ERROR_INIT;
    r = open_study(tune, options, tune->storage, KJ_STUDY_CREATE, &tune->study, &failure);
    tune->created = r >= 0;
    if (r == KJ_EEXIST)
        return load_study(tune, options, err);
    if (r < 0 && err)
        *err = failure;
    return r;
}

/* By this mark the next worker knows a trial whose folder we did not live to make. */
static int mark_claims(kj_tune *tune, kj_error *err)
{
    char json[KJI_ID_TEXT + 2];
    snprintf(json, sizeof json, "\"%s\"", tune->config.folder_id);
    return kj_study_mark_claims(tune->study, "kajitori:folder", json, err);
}

static int open_everything(kj_tune *tune, const kj_tune_options *options, kj_error *err)
{
    int r = kji_tune_config_init(&tune->config, options, err);
    if (r >= 0)
        r = check_study_options(tune, options, err);
    if (r < 0)
        return r;
    const char *url =
        options->storage && *options->storage ? options->storage : "sqlite:///kajitori.db";
    r = kj_storage_open(url, &tune->storage, err);
    if (r < 0)
        return r;
    int loaded = load_study(tune, options, err);
    if (loaded < 0)
        return loaded;
    r = kji_trials_folder_lock(&tune->config, err);
    if (r >= 0 && !loaded)
        r = create_study(tune, options, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep) char *id = NULL;
    r = get_study_id(tune, &id, err);
    if (r >= 0)
        r = kji_trials_folder_join(&tune->config, id, err);
    if (r >= 0)
        r = set_facts(tune, err);
    return r < 0 ? r : mark_claims(tune, err);
}

int kj_tune_open(const kj_tune_options *options, kj_tune **ret_tune, kj_error *err)
{
    if (!options || options->size < sizeof *options)
        return kji_fail(err, KJ_EARG, "kj_tune_options: size is not set");
    kj_tune *tune = calloc(1, sizeof *tune);
    if (!tune)
        return kji_fail_memory(err);
    tune->config.trials_fd = tune->config.worker_lock = -1;
    tune->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = tune->interrupt_fd < 0 ? kji_fail_errno(err, KJ_EIO, errno, "eventfd")
                                   : open_everything(tune, options, err);
    if (r < 0) {
        kj_tune_close(tune);
        return r;
    }
    *ret_tune = tune;
    return 0;
}

int kj_tune_run(kj_tune *tune, kj_error *err)
{
    if (tune->config.on_event) {
        kj_tune_event event = {.size = sizeof event,
                               .kind = KJ_TUNE_STUDY_OPENED,
                               .trial = -1,
                               .step = -1,
                               .text = tune->created ? "created" : "resumed"};
        tune->config.on_event(tune->config.userdata, &event);
    }
    return kji_worker_run(&tune->config, tune->study, &tune->interrupts, tune->interrupt_fd, err);
}

void kj_tune_interrupt(kj_tune *tune)
{
    int saved = errno;
    atomic_fetch_add(&tune->interrupts, 1);
    uint64_t one = 1;
    ssize_t n = write(tune->interrupt_fd, &one, sizeof one);
    (void)n; /* full means that the loop has been woken already */
    errno = saved;
}

kj_study *kj_tune_get_study(kj_tune *tune)
{
    return tune->study;
}

void kj_tune_close(kj_tune *tune)
{
    if (!tune)
        return;
    kj_study_close(tune->study);
    kj_storage_close(tune->storage);
    kji_tune_config_done(&tune->config);
    kji_closep(&tune->interrupt_fd);
    free(tune);
}
