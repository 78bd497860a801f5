/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optuna's recorded answers (tests/data/pruners, one scenario per line), replayed through
 * every registered pruner that has scenarios. A new pruner of Optuna's takes
 * part by a row in `known`.
 */
#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "pruner.h"

#include "strbuf.h"

#include "kji-test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Our name, Optuna's class (which is the file's name), and how many scenarios there are. */
static const struct {
    const char *name, *class_name;
    size_t n_scenarios;
} known[] = {
    {"median", "MedianPruner", 25},
    {"none", "NopPruner", 5},
};

typedef struct replay {
    kji_history *history;
    kji_pruner *pruner;
    char *options;
    const char *name;
    kji_trial *live[4096]; /* by number: what the worker knows of its trial */
    size_t n_answers;
} replay;

static const char *text_at(struct json_object *event, size_t k)
{
    return json_object_get_string(json_object_array_get_idx(event, k));
}

static int64_t int_at(struct json_object *event, size_t k)
{
    return json_object_get_int64(json_object_array_get_idx(event, k));
}

static double double_at(struct json_object *event, size_t k)
{
    double value = NAN;
    assert_true(kji_json_get_double(json_object_array_get_idx(event, k), &value));
    return value;
}

static char *options_text(struct json_object *args)
{
    kji_strbuf text = KJI_STRBUF_INIT;
    json_object_object_foreach(args, key, value) kji_strbuf_printf(
        &text, "%s%s=%s", text.size ? "," : "", key, json_object_get_string(value));
    return kji_strbuf_take(&text);
}

/* A ready-made trial: into the history alone, as if another process had stored it. */
static void add(replay *r, struct json_object *event, int64_t number, int state)
{
    kji_trial *trial = kji_trial_new();
    struct json_object *reports = json_object_array_get_idx(event, 4);
    trial->number = trial->id = number;
    trial->state = state;
    for (size_t k = 0; k < json_object_array_length(reports); k++) {
        struct json_object *pair = json_object_array_get_idx(reports, k);
        assert_true(kji_trial_add_report(trial, int_at(pair, 0), double_at(pair, 1)) >= 0);
    }
    assert_int_equal(kji_history_put(r->history, trial, NULL), 0);
}

/* A trial that somebody works on; one that was WAITING keeps its reports. */
static void ask(replay *r, int64_t number)
{
    const kji_trial *waiting = kji_history_find(r->history, number);
    r->live[number] = waiting ? kji_trial_copy(waiting) : kji_trial_new();
    r->live[number]->number = r->live[number]->id = number;
    r->live[number]->state = KJ_TRIAL_RUNNING;
}

static void tell(replay *r, int64_t number, int state)
{
    kji_trial *trial = kji_trial_copy(r->live[number]);
    trial->state = state;
    assert_int_equal(kji_history_put(r->history, trial, NULL), 0);
}

static void should_prune(replay *r, struct json_object *event, size_t at)
{
    kji_decision decision;
    int64_t number = int_at(event, 1);
    bool expected = json_object_get_boolean(json_object_array_get_idx(event, 2));
    assert_int_equal(kji_pruner_decide(r->pruner, r->history, r->live[number], &decision, NULL), 0);
    if (decision.prune != expected)
        fail_msg("event %zu, trial %lld: %s", at, (long long)number, decision.reason);
    assert_string_equal(decision.rule, r->name);
    assert_true(decision.reason[0] != 0);
    r->n_answers++;
}

static void carry_out(replay *r, struct json_object *event, size_t at)
{
    const char *kind = text_at(event, 0);
    if (strcmp(kind, "add") == 0)
        add(r, event, int_at(event, 1), kji_trial_state_parse(text_at(event, 2)));
    else if (strcmp(kind, "ask") == 0)
        ask(r, int_at(event, 1));
    else if (strcmp(kind, "report") == 0)
        assert_true(kji_trial_add_report(r->live[int_at(event, 1)], int_at(event, 2),
                                         double_at(event, 3)) >= 0);
    else if (strcmp(kind, "should_prune") == 0)
        should_prune(r, event, at);
    else if (strcmp(kind, "tell") == 0)
        tell(r, int_at(event, 1), kji_trial_state_parse(text_at(event, 2)));
    else if (strcmp(kind, "fresh_pruner") == 0) {
        kji_pruner_free(r->pruner);
        assert_int_equal(kji_pruner_new(r->name, r->options, &r->pruner, NULL), 0);
    } else {
        assert_string_equal(kind, "constraint"); /* without meaning for these rules */
    }
}

static size_t replay_scenario(const char *name, const char *line, size_t size)
{
    struct json_object *scenario, *events, *args;
    replay r = {.name = name};
    assert_int_equal(kji_json_parse(line, size, &scenario, NULL), 0);
    assert_true(json_object_object_get_ex(scenario, "events", &events));
    assert_true(json_object_object_get_ex(scenario, "args", &args));
    bool maximize = strcmp(kji_json_string(scenario, "direction"), "maximize") == 0;
    r.history = kji_history_new(maximize ? KJ_DIRECTION_MAXIMIZE : KJ_DIRECTION_MINIMIZE);
    r.options = options_text(args);
    assert_int_equal(kji_pruner_new(name, r.options, &r.pruner, NULL), 0);
    for (size_t k = 0; k < json_object_array_length(events); k++)
        carry_out(&r, json_object_array_get_idx(events, k), k);
    for (size_t k = 0; k < sizeof r.live / sizeof *r.live; k++)
        kji_trial_free(r.live[k]);
    kji_pruner_free(r.pruner);
    kji_history_free(r.history);
    free(r.options);
    json_object_put(scenario);
    return r.n_answers;
}

static void test_answers_are_optunas(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        char name[80], *text;
        size_t size, n_scenarios = 0, n_answers = 0;
        snprintf(name, sizeof name, "pruners/%s.jsonl", known[k].class_name);
        assert_int_equal(kji_read_file(AT_FDCWD, kji_test_data(name), 1 << 24, &text, &size, NULL),
                         0);
        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
            n_answers += replay_scenario(known[k].name, line, (size_t)(end - line));
            n_scenarios++;
        }
        free(text);
        assert_int_equal(n_scenarios, known[k].n_scenarios);
        assert_true(n_answers > 100);
        print_message("# %s: %zu scenarios, %zu answers\n", known[k].name, n_scenarios, n_answers);
    }
}

/* Every rule must keep to the contract of pruner.h, whatever it is. */
static void test_every_pruner_is_pure(void **state)
{
    (void)state;
    kji_history *history = kji_history_new(KJ_DIRECTION_MINIMIZE);
    for (int64_t k = 0; k < 8; k++) {
        kji_trial *trial = kji_trial_new();
        trial->number = trial->id = k;
        trial->state = KJ_TRIAL_COMPLETE;
        assert_int_equal(kji_trial_add_report(trial, 0, (double)k), 1);
        assert_int_equal(kji_history_put(history, trial, NULL), 0);
    }
    kji_trial *empty = kji_trial_new(), *worst = kji_trial_new();
    assert_int_equal(kji_trial_add_report(worst, 0, 100), 1);
    const kji_pruner_ops *ops;
    for (size_t k = 0; (ops = kji_pruner_at(k)); k++) {
        kji_pruner *pruner;
        kji_decision first, second;
        assert_int_equal(kji_pruner_new(ops->name, NULL, &pruner, NULL), 0);
        assert_int_equal(kji_pruner_decide(pruner, history, empty, &first, NULL), 0);
        assert_int_equal(first.prune, 0); /* nothing was reported */
        assert_int_equal(kji_pruner_decide(pruner, history, worst, &first, NULL), 0);
        assert_int_equal(kji_pruner_decide(pruner, history, worst, &second, NULL), 0);
        assert_int_equal(first.prune, second.prune);
        assert_string_equal(first.reason, second.reason);
        assert_true(strchr(first.reason, '\n') == NULL && first.reason[0] != 0);
        for (size_t o = 0; o < ops->n_options; o++)
            assert_true(ops->options[o].help[0] != 0);
        kji_pruner_free(pruner);
    }
    kji_trial_free(empty);
    kji_trial_free(worst);
    kji_history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_optunas),
        cmocka_unit_test(test_every_pruner_is_pure),
    };
    return cmocka_run_group_tests_name("pruner-suite", tests, NULL, NULL);
}
