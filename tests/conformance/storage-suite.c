/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules that every storage keeps, through the public interface, run for each of them. A new
 * storage takes part by a row in `storages`.
 */
#include "storage.h"

#include "kji-test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How to open one, and what it cannot do. */
typedef struct quirks {
    const char *name;
    bool is_shared; /* a second storage on the same URL sees the same studies */
    bool is_file;
} quirks;

static const quirks storages[] = {
    {.name = "memory"},
    {.name = "sqlite", .is_shared = true, .is_file = true},
};

typedef struct fixture {
    const quirks *quirks;
    char dir[64];
    char url[128];
    kj_storage *storage;
} fixture;

static kj_error err = KJ_ERROR_INIT;

#define OK(call)                                                  \
    do {                                                          \
        int ok_result = (call);                                   \
        if (ok_result < 0)                                        \
            fail_msg("%s: %d %s", #call, ok_result, err.message); \
    } while (0)

static int set_up(void **state)
{
    fixture *f = *state;
    snprintf(f->dir, sizeof f->dir, "/tmp/kji-storage-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->url, sizeof f->url, f->quirks->is_file ? "%s:///%s/a.db" : "%s:", f->quirks->name,
             f->dir);
    OK(kj_storage_open(f->url, &f->storage, &err));
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    kj_storage_close(f->storage);
    kji_test_remove_tree(f->dir);
    return 0;
}

static kj_study *open_study(kj_storage *storage, const char *name, uint32_t flags, int direction)
{
    kj_study *study = NULL;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = name;
    options.flags = flags;
    options.direction = direction;
    options.has_seed = 1;
    OK(kj_study_open(storage, &options, &study, &err));
    return study;
}

static kj_study *create(void **state, const char *name)
{
    return open_study(((fixture *)*state)->storage, name, KJ_STUDY_CREATE, KJ_DIRECTION_MINIMIZE);
}

static kj_trial *ask(kj_study *study)
{
    kj_trial *trial = NULL;
    OK(kj_study_ask(study, &trial, &err));
    return trial;
}

static void finish(kj_study *study, kj_trial *trial, int end, double value)
{
    OK(kj_study_tell(study, trial, end, &value, end == KJ_TRIAL_COMPLETE, &err));
    kj_trial_free(trial);
}

static void test_studies_are_found_by_name(void **state)
{
    fixture *f = *state;
    kj_study *study = create(state, "日本語 'quoted' \"x\"");
    kj_study_close(study);
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = "日本語 'quoted' \"x\"";
    options.flags = KJ_STUDY_CREATE;
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EEXIST);
    assert_non_null(strstr(err.message, "there is a study \"日本語"));
    options.flags = KJ_STUDY_CREATE | KJ_STUDY_LOAD;
    OK(kj_study_open(f->storage, &options, &study, &err));
    assert_int_equal(kj_study_get_direction(study), KJ_DIRECTION_MINIMIZE);
    assert_string_equal(kj_study_get_name(study), options.name);
    kj_study_close(study);
    options.direction = KJ_DIRECTION_MAXIMIZE;
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "exists with direction minimize, not maximize"));
    options.name = "other";
    options.flags = 0;
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_ENOENT);
    assert_non_null(strstr(err.message, "there is no study \"other\""));
    assert_non_null(strstr(err.message, "日本語"));
}

static void test_bad_names_are_refused(void **state)
{
    fixture *f = *state;
    kj_study *study = NULL;
    char name[600];
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.flags = KJ_STUDY_CREATE;
    memset(name, 'x', 513);
    name[513] = 0;
    options.name = name;
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "it has 513 characters, 512 are possible"));
    options.name = "\xff";
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EARG);
    name[512] = 0;
    options.name = name;
    OK(kj_study_open(f->storage, &options, &study, &err));
    kj_study_close(study);
    options.name = NULL;
    OK(kj_study_open(f->storage, &options, &study, &err));
    assert_memory_equal(kj_study_get_name(study), "no-name-", 8);
    assert_int_equal(strlen(kj_study_get_name(study)), 8 + 36);
    kj_study_close(study);
    options.flags = KJ_STUDY_LOAD;
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EARG);
    options.name = "x";
    options.flags = KJ_STUDY_CREATE;
    options.pruner = "madian";
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_EARG);
    options.pruner = NULL;
    options.flags = KJ_STUDY_LOAD; /* a refused option created nothing */
    assert_int_equal(kj_study_open(f->storage, &options, &study, &err), KJ_ENOENT);
}

static void test_facts(void **state)
{
    kj_study *study = create(state, "s"), *other = create(state, "t");
    char *json = NULL;
    assert_int_equal(kj_study_get_fact(study, "k", &json, &err), 0);
    OK(kj_study_set_fact(study, "k", "{\"a\":[1,null]}", &err));
    OK(kj_study_set_fact(study, "k", "{\"a\":[2,NaN]}", &err));
    assert_int_equal(kj_study_get_fact(study, "k", &json, &err), 1);
    assert_string_equal(json, "{\"a\": [2, NaN]}");
    kj_free(json);
    assert_int_equal(kj_study_get_fact(other, "k", &json, &err), 0);
    assert_int_equal(kj_study_set_fact(study, "k", "{", &err), KJ_EDATA);
    assert_int_equal(kj_study_add_fact(study, "new", "[1]", &json, &err), 0);
    assert_int_equal(kj_study_add_fact(study, "new", "[2]", &json, &err), 1);
    assert_string_equal(json, "[1]");
    kj_free(json);
    assert_non_null(strstr(err.message, "the fact: not JSON at byte 1"));
    kj_study_close(study);
    kj_study_close(other);
}

static const kj_distribution lr = {
    .size = sizeof lr, .kind = KJ_DISTRIBUTION_FLOAT, .low = 1e-5, .high = 0.1, .log = 1};
static const kj_distribution units = {.size = sizeof units,
                                      .kind = KJ_DISTRIBUTION_INT,
                                      .int_low = 16,
                                      .int_high = 128,
                                      .int_step = 16};

static kj_distribution categories(const char *second)
{
    static kj_value choices[3];
    choices[0] = (kj_value){.type = KJ_TYPE_STRING, .s = "アダム"};
    choices[1] = (kj_value){.type = KJ_TYPE_STRING, .s = second};
    choices[2] = (kj_value){.type = KJ_TYPE_NONE};
    return (kj_distribution){.size = sizeof(kj_distribution),
                             .kind = KJ_DISTRIBUTION_CATEGORICAL,
                             .choices = choices,
                             .n_choices = 3};
}

static void test_a_whole_trial(void **state)
{
    kj_study *study = create(state, "s");
    kj_trial *trial = ask(study);
    kj_value a, b, c, again;
    kj_distribution opt = categories("sgd");
    assert_int_equal(kj_trial_get_number(trial), 0);
    OK(kj_trial_suggest(trial, "lr", &lr, &a, &err));
    OK(kj_trial_suggest(trial, "単位", &units, &b, &err));
    OK(kj_trial_suggest(trial, "opt", &opt, &c, &err));
    OK(kj_trial_suggest(trial, "lr", &lr, &again, &err));
    assert_true(a.type == KJ_TYPE_FLOAT && a.f >= 1e-5 && a.f < 0.1 && again.f == a.f);
    assert_true(b.type == KJ_TYPE_INT && b.i % 16 == 0 && b.i >= 16 && b.i <= 128);
    double reports[] = {0.5, NAN, INFINITY, -INFINITY};
    for (int k = 3; k >= 0; k--)
        assert_int_equal(kj_trial_report(trial, k * 10, reports[k], &err), 0);
    assert_int_equal(kj_trial_report(trial, 10, 7, &err), 1);
    assert_int_equal(kj_trial_report(trial, -1, 7, &err), KJ_EARG);
    OK(kj_trial_set_attribute(trial, "note", "\"日\"", &err));
    OK(kj_trial_set_attribute(trial, "big", "123456789012345678901234567890", &err));
    assert_int_equal(kj_trial_set_attribute(trial, "bad", "nope", &err), KJ_EDATA);
    finish(study, trial, KJ_TRIAL_COMPLETE, 0.25);

    kj_trial_list *list = NULL;
    OK(kj_study_list_trials(study, &list, &err));
    kj_study_close(study); /* the list outlives it */
    assert_int_equal(kj_trial_list_size(list), 1);
    const kj_trial_info *info = kj_trial_list_get(list, 0);
    assert_int_equal(info->state, KJ_TRIAL_COMPLETE);
    assert_true(info->has_value && info->value == 0.25);
    assert_int_equal(info->n_params, 3);
    assert_string_equal(info->params[0].name, "lr");
    assert_true(info->params[0].value.f == a.f);
    assert_string_equal(info->params[1].name, "単位");
    assert_true(info->params[1].value.i == b.i);
    assert_int_equal(info->params[2].value.type, c.type);
    assert_int_equal(info->n_reports, 4);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(info->report_steps[k], k * 10);
        assert_true(info->report_values[k] == reports[k] ||
                    (k == 1 && isnan(info->report_values[k])));
    }
    assert_string_equal(info->attributes_json,
                        "{\"note\": \"\\u65e5\", \"big\": 123456789012345678901234567890}");
    assert_int_equal(strlen(info->start), 19);
    assert_int_equal(strlen(info->complete), 19);
    assert_null(info->cut);
    assert_ptr_equal(kj_trial_list_best(list), info);
    assert_null(kj_trial_list_get(list, 1));
    kj_trial_list_free(list);
}

static void test_finished_trials_do_not_change(void **state)
{
    kj_study *study = create(state, "s");
    kj_trial *first = ask(study), *same = NULL;
    kj_value value;
    OK(kj_study_get_trial(study, 0, &same, &err));
    double one = 1;
    assert_int_equal(kj_study_tell(study, first, KJ_TRIAL_COMPLETE, NULL, 0, &err), KJ_EARG);
    assert_int_equal(kj_study_tell(study, first, KJ_TRIAL_PRUNED, &one, 1, &err), KJ_EARG);
    assert_int_equal(kj_study_tell(study, first, KJ_TRIAL_RUNNING, NULL, 0, &err), KJ_EARG);
    assert_int_equal(kj_study_tell(study, first, KJ_TRIAL_COMPLETE, &(double){NAN}, 1, &err),
                     KJ_EARG);
    OK(kj_study_tell(study, first, KJ_TRIAL_COMPLETE, &one, 1, &err));
    assert_int_equal(kj_study_tell(study, first, KJ_TRIAL_COMPLETE, &one, 1, &err), KJ_ESTATE);
    assert_string_equal(err.message, "trial 0 is COMPLETE: only a RUNNING trial can be ended");
    assert_int_equal(kj_trial_report(first, 1, 1, &err), KJ_ESTATE);
    /* The other handle does not know yet; the storage does. */
    assert_int_equal(kj_trial_report(same, 1, 1, &err), 0);
    assert_int_equal(kj_trial_flush(same, &err), KJ_ESTATE);
    assert_int_equal(kj_trial_suggest(same, "lr", &lr, &value, &err), KJ_ESTATE);
    assert_int_equal(kj_trial_set_attribute(same, "k", "1", &err), KJ_ESTATE);
    assert_int_equal(kj_study_tell(study, same, KJ_TRIAL_FAIL, NULL, 0, &err), KJ_ESTATE);
    kj_trial_free(first);
    kj_trial_free(same);
    assert_int_equal(kj_study_get_trial(study, 1, &same, &err), KJ_ENOENT);
    assert_string_equal(err.message, "study \"s\" has no trial 1");
    kj_study_close(study);
}

static void test_incompatible_parameters_are_refused(void **state)
{
    fixture *f = *state;
    kj_study *study = create(state, "s");
    kj_trial *trial = ask(study);
    kj_value value;
    kj_distribution sgd = categories("sgd");
    OK(kj_trial_suggest(trial, "lr", &lr, &value, &err));
    OK(kj_trial_suggest(trial, "opt", &sgd, &value, &err));
    finish(study, trial, KJ_TRIAL_COMPLETE, 1);
    /* Known from here, and, after reopening, from the storage. */
    for (int k = 0; k < 2; k++) {
        trial = ask(study);
        kj_distribution linear = lr, wider = lr, rms = categories("rms");
        linear.log = 0;
        wider.high = 1;
        assert_int_equal(kj_trial_suggest(trial, "lr", &linear, &value, &err), KJ_EARG);
        assert_non_null(strstr(err.message, "parameter \"lr\" has another log setting than"));
        assert_int_equal(kj_trial_suggest(trial, "lr", &units, &value, &err), KJ_EARG);
        assert_non_null(strstr(err.message, "another kind of distribution"));
        assert_int_equal(kj_trial_suggest(trial, "opt", &rms, &value, &err), KJ_EARG);
        assert_non_null(strstr(err.message, "other choices"));
        OK(kj_trial_suggest(trial, "lr", &wider, &value, &err));
        kj_trial_free(trial);
        kj_study_close(study);
        study = open_study(f->storage, "s", KJ_STUDY_LOAD, KJ_DIRECTION_NOT_SET);
    }
    trial = ask(study);
    kj_distribution wrong = lr;
    wrong.low = 0;
    assert_int_equal(kj_trial_suggest(trial, "lr", &wrong, &value, &err), KJ_EARG);
    assert_string_equal(err.message, "parameter \"lr\": with log, low must be above 0; it is 0.0");
    kj_trial_free(trial);
    kj_study_close(study);
}

static void test_two_handles_agree(void **state)
{
    fixture *f = *state;
    kj_study *study = create(state, "s"), *other = open_study(f->storage, "s", KJ_STUDY_LOAD, 0);
    kj_trial *first = ask(study), *second = NULL;
    kj_value a, b;
    OK(kj_study_get_trial(other, kj_trial_get_number(first), &second, &err));
    OK(kj_trial_suggest(first, "lr", &lr, &a, &err));
    for (int k = 0; k < 2; k++) {
        OK(kj_trial_suggest(second, "lr", &lr, &b, &err));
        assert_true(a.f == b.f);
    }
    kj_distribution linear = lr;
    linear.log = 0;
    assert_int_equal(kj_trial_suggest(second, "lr", &linear, &b, &err), KJ_EARG);
    OK(kj_trial_suggest(second, "units", &units, &b, &err));
    OK(kj_trial_suggest(first, "units", &units, &a, &err));
    assert_true(a.i == b.i);
    kj_trial_free(first);
    kj_trial_free(second);
    kj_study_close(study);
    kj_study_close(other);
}

static void test_enqueued_trials_come_first(void **state)
{
    kj_study *study = create(state, "s");
    int64_t number = -1;
    kj_value value;
    kj_trial_free(ask(study));
    OK(kj_study_enqueue(study, "{\"lr\": 0.05, \"opt\": null}",
                        "{\"who\": [\"me\", 1.5], \"\\u30e1\\\"\":36893488147419103232}", &number,
                        &err));
    assert_int_equal(number, 1);
    OK(kj_study_enqueue(study, NULL, NULL, &number, &err));
    assert_int_equal(number, 2);
    assert_int_equal(kj_study_enqueue(study, "[1]", NULL, &number, &err), KJ_EARG);
    assert_int_equal(kj_study_enqueue(study, "{\"a\": [1]}", NULL, &number, &err), KJ_EARG);
    assert_int_equal(kj_study_enqueue(study, "{\"a\": nope}", NULL, &number, &err), KJ_EDATA);
    assert_int_equal(kj_study_enqueue(study, NULL, "[1]", &number, &err), KJ_EARG);
    assert_string_equal(err.message, "the attributes: not a JSON object");
    assert_int_equal(kj_study_enqueue(study, NULL, "{\"a\": 1,}", &number, &err), KJ_EDATA);
    assert_int_equal(kj_study_enqueue(study, NULL, "{\"a\\u0000\": 1}", &number, &err), KJ_EARG);
    kj_trial *trial = ask(study);
    kj_distribution opt = categories("sgd");
    assert_int_equal(kj_trial_get_number(trial), 1);
    OK(kj_trial_suggest(trial, "lr", &lr, &value, &err));
    assert_true(value.f == 0.05);
    OK(kj_trial_suggest(trial, "opt", &opt, &value, &err));
    assert_int_equal(value.type, KJ_TYPE_NONE);
    OK(kj_trial_suggest(trial, "units", &units, &value, &err)); /* not fixed: sampled */
    kj_trial_free(trial);
    trial = ask(study);
    assert_int_equal(kj_trial_get_number(trial), 2);
    kj_trial_free(trial);
    OK(kj_study_enqueue(study, "{\"lr\": \"high\"}", NULL, NULL, &err));
    trial = ask(study);
    assert_int_equal(kj_trial_get_number(trial), 3);
    assert_int_equal(kj_trial_suggest(trial, "lr", &lr, &value, &err), KJ_EARG);
    assert_string_equal(err.message, "parameter \"lr\": the value \"high\" is not a number");
    kj_trial_free(trial);
    trial = ask(study);
    assert_int_equal(kj_trial_get_number(trial), 4);
    kj_trial_free(trial);
    kj_trial_list *list;
    OK(kj_study_list_trials(study, &list, &err));
    assert_string_equal(kj_trial_list_get(list, 1)->attributes_json,
                        "{\"who\": [\"me\", 1.5], \"\\u30e1\\\"\": 36893488147419103232}");
    kj_trial_list_free(list);
    kj_study_close(study);
}

static void test_a_cut_is_stored_with_its_decision(void **state)
{
    fixture *f = *state;
    kj_study *study = create(state, "s");
    for (int k = 0; k < 5; k++) {
        kj_trial *trial = ask(study);
        OK(kj_trial_report(trial, 3, k, &err));
        assert_int_equal(kj_trial_should_prune(trial, NULL, &err), 0);
        finish(study, trial, KJ_TRIAL_COMPLETE, k);
    }
    kj_trial *trial = ask(study);
    kj_decision decision = KJ_DECISION_INIT;
    OK(kj_trial_report(trial, 2, 9, &err));
    OK(kj_trial_report(trial, 3, 8, &err));
    assert_int_equal(kj_trial_should_prune(trial, &decision, &err), 1);
    assert_int_equal(decision.prune, 1);
    assert_true(decision.n_peers == 5 && decision.peers[4] == 4 && decision.threshold == 2);
    assert_int_equal(kj_trial_should_prune(trial, NULL, &err), 1);
    /* A handle made anew has what was stored before the end. */
    kj_trial_free(trial);
    OK(kj_study_get_trial(study, 5, &trial, &err));
    assert_int_equal(kj_trial_report(trial, 2, 1, &err), 1);
    finish(study, trial, KJ_TRIAL_PRUNED, 0);
    kj_study_close(study);
    study = open_study(f->storage, "s", KJ_STUDY_LOAD, KJ_DIRECTION_NOT_SET);
    kj_trial_list *list;
    OK(kj_study_list_trials(study, &list, &err));
    const kj_trial_info *info = kj_trial_list_get(list, 5);
    assert_true(info->state == KJ_TRIAL_PRUNED && info->has_value && info->value == 8);
    assert_true(info->n_reports == 2 && info->report_values[0] == 9);
    assert_string_equal(info->cut->rule, "median");
    assert_string_equal(info->cut->reason,
                        "best 8.0 until step 3 is worse than the median 2.0 of 5 trials");
    assert_true(info->cut->step == 3 && info->cut->value == 8 && info->cut->threshold == 2);
    assert_true(info->cut->n_peers == 5 && info->cut->peers[0] == 0);
    assert_null(kj_trial_list_get(list, 4)->cut);
    assert_int_equal(kj_trial_list_best(list)->number, 0);
    kj_trial_list_free(list);
    kj_study_close(study);
}

/* No new trial comes between: the end of another trial alone must reach the rule. */
static void test_a_rule_sees_what_has_ended_meanwhile(void **state)
{
    kj_study *study = create(state, "s");
    kj_trial *trials[6];
    kj_decision decision = KJ_DECISION_INIT;
    for (int k = 0; k < 6; k++)
        trials[k] = ask(study);
    OK(kj_trial_report(trials[5], 0, 9, &err));
    for (int k = 0; k < 5; k++) {
        assert_int_equal(kj_trial_should_prune(trials[5], &decision, &err), 0);
        OK(kj_trial_report(trials[k], 0, k, &err));
        finish(study, trials[k], KJ_TRIAL_COMPLETE, k);
    }
    assert_int_equal(kj_trial_should_prune(trials[5], &decision, &err), 1);
    assert_int_equal(decision.n_peers, 5);
    kj_trial_free(trials[5]);
    kj_study_close(study);
}

static void test_ends_without_a_value(void **state)
{
    kj_study *study = create(state, "s");
    finish(study, ask(study), KJ_TRIAL_FAIL, 0);
    finish(study, ask(study), KJ_TRIAL_PRUNED, 0);
    kj_trial *trial = ask(study);
    OK(kj_trial_report(trial, 0, 1, &err));
    OK(kj_trial_report(trial, 1, NAN, &err));
    finish(study, trial, KJ_TRIAL_PRUNED, 0);
    finish(study, ask(study), KJ_TRIAL_COMPLETE, INFINITY);
    finish(study, ask(study), KJ_TRIAL_COMPLETE, -INFINITY);
    kj_trial_list *list;
    OK(kj_study_list_trials(study, &list, &err));
    for (uint64_t k = 0; k < 3; k++)
        assert_false(kj_trial_list_get(list, k)->has_value);
    assert_true(kj_trial_list_get(list, 3)->value == INFINITY);
    assert_int_equal(kj_trial_list_best(list)->number, 4);
    kj_trial_list_free(list);
    kj_study_close(study);
}

static void test_two_storages_see_each_other(void **state)
{
    fixture *f = *state;
    if (!f->quirks->is_shared)
        return;
    kj_storage *storage = NULL;
    kj_study *mine = create(state, "s");
    OK(kj_storage_open(f->url, &storage, &err));
    kj_study *theirs = open_study(storage, "s", KJ_STUDY_LOAD, KJ_DIRECTION_NOT_SET);
    for (int k = 0; k < 6; k++) {
        kj_study *study = k % 2 ? mine : theirs;
        kj_trial *trial = ask(study);
        assert_int_equal(kj_trial_get_number(trial), k);
        OK(kj_trial_report(trial, 0, k, &err));
        finish(study, trial, KJ_TRIAL_COMPLETE, k);
    }
    for (int k = 0; k < 2; k++) {
        kj_trial *trial = ask(k ? mine : theirs);
        kj_decision decision = KJ_DECISION_INIT;
        OK(kj_trial_report(trial, 0, 100, &err));
        assert_int_equal(kj_trial_should_prune(trial, &decision, &err), 1);
        assert_int_equal(decision.n_peers, 6); /* those of both */
        kj_trial_free(trial);
    }
    kj_trial_list *list;
    OK(kj_study_list_trials(mine, &list, &err));
    assert_int_equal(kj_trial_list_size(list), 8);
    kj_trial_list_free(list);
    kj_study_close(mine);
    kj_study_close(theirs);
    kj_storage_close(storage);
}

static void test_urls(void **state)
{
    (void)state;
    kj_storage *storage = NULL;
    static const struct {
        const char *url, *message;
    } cases[] = {
        {"", "\"\" is not a storage: it must be sqlite:///PATH or memory:"},
        {"a.db", "\"a.db\" is not a storage: it must be sqlite:///PATH or memory:"},
        {"mysql://x", "\"mysql://x\" is not a storage: it must be sqlite:///PATH or memory:"},
        {"sqlite://", "\"sqlite://\" names no file: it must be sqlite:///PATH"},
        {"sqlite:///", "\"sqlite:///\" names no file: it must be sqlite:///PATH"},
        {"sqlite:///a?mode=ro",
         "\"?mode=ro\" behind the file is not understood: only ?timeout=SECONDS is"},
        {"memory:x", "\"memory:x\" is not a storage: it must be memory:"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        assert_int_equal(kj_storage_open(cases[k].url, &storage, &err), KJ_EARG);
        assert_string_equal(err.message, cases[k].message);
    }
    assert_null(storage);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } rules[] = {
#define RULE(name) {#name, test_##name}
        RULE(studies_are_found_by_name),
        RULE(bad_names_are_refused),
        RULE(facts),
        RULE(a_whole_trial),
        RULE(finished_trials_do_not_change),
        RULE(incompatible_parameters_are_refused),
        RULE(two_handles_agree),
        RULE(enqueued_trials_come_first),
        RULE(a_cut_is_stored_with_its_decision),
        RULE(a_rule_sees_what_has_ended_meanwhile),
        RULE(ends_without_a_value),
        RULE(two_storages_see_each_other),
        RULE(urls),
#undef RULE
    };
    enum {
        N_RULES = sizeof rules / sizeof *rules,
        N_STORAGES = sizeof storages / sizeof *storages
    };
    static struct CMUnitTest tests[N_RULES * N_STORAGES];
    static fixture fixtures[N_RULES * N_STORAGES];
    static char names[N_RULES * N_STORAGES][80];
    for (size_t k = 0; k < N_RULES * N_STORAGES; k++) {
        fixtures[k].quirks = &storages[k / N_RULES];
        snprintf(names[k], sizeof names[k], "%s: %s", fixtures[k].quirks->name,
                 rules[k % N_RULES].name);
        tests[k] =
            (struct CMUnitTest){names[k], rules[k % N_RULES].run, set_up, tear_down, &fixtures[k]};
    }
    for (size_t k = 0; kji_storage_at(k); k++) /* none is left out */
        if (k >= N_STORAGES)
            return 1;
    return cmocka_run_group_tests_name("storage-suite", tests, NULL, NULL);
}
