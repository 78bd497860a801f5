/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A study through the C interface, for test_optuna_study.py:
 *
 *     study-driver URL STUDY run N        creates or continues the study by N trials
 *     study-driver URL STUDY enqueue JSON
 *     study-driver URL STUDY dump         every trial as a line of JSON, as we see it
 *     study-driver URL STUDY space        a trial whose lr is not compatible: prints the error
 */
#include <kajitori/engine.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kj_error err = KJ_ERROR_INIT;

static void check(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, err.message);
    exit(1);
}

#define CHECK(call) check(call, #call)

static const kj_value choices[] = {
    {.type = KJ_TYPE_STRING, .s = "sgd"},
    {.type = KJ_TYPE_STRING, .s = "アダム \"x\""},
    {.type = KJ_TYPE_NONE},
    {.type = KJ_TYPE_FLOAT, .f = 0.5},
    {.type = KJ_TYPE_INT, .i = 3},
};

static const struct {
    const char *name;
    kj_distribution distribution;
} space[] = {
    {"lr",
     {.size = sizeof(kj_distribution),
      .kind = KJ_DISTRIBUTION_FLOAT,
      .low = 1e-5,
      .high = 0.1,
      .log = 1}},
    {"momentum",
     {.size = sizeof(kj_distribution), .kind = KJ_DISTRIBUTION_FLOAT, .low = -1, .high = 1}},
    {"drop",
     {.size = sizeof(kj_distribution),
      .kind = KJ_DISTRIBUTION_FLOAT,
      .low = 0,
      .high = 1,
      .step = 0.3}},
    {"ユニット",
     {.size = sizeof(kj_distribution),
      .kind = KJ_DISTRIBUTION_INT,
      .int_low = 16,
      .int_high = 130,
      .int_step = 16}},
    {"depth",
     {.size = sizeof(kj_distribution),
      .kind = KJ_DISTRIBUTION_INT,
      .int_low = 1,
      .int_high = 64,
      .log = 1}},
    {"optimizer",
     {.size = sizeof(kj_distribution),
      .kind = KJ_DISTRIBUTION_CATEGORICAL,
      .choices = choices,
      .n_choices = 5}},
};

enum { N_PARAMS = sizeof space / sizeof *space, N_STEPS = 5 };

/* The reports of trial `number`: now and then one that is no finite number. */
static double report_of(int64_t number, int step, double quality)
{
    if (number % 7 == 3 && step == 1)
        return NAN;
    if (number % 7 == 5 && step == 2)
        return INFINITY;
    if (number % 7 == 6 && step == 0)
        return -INFINITY;
    return quality + 1.0 / (step + 1);
}

static void run_trial(kj_study *study, kj_trial *trial)
{
    kj_value values[N_PARAMS];
    int64_t number = kj_trial_get_number(trial);
    for (int k = 0; k < N_PARAMS; k++)
        CHECK(kj_trial_suggest(trial, space[k].name, &space[k].distribution, &values[k], &err));
    CHECK(kj_trial_set_attribute(trial, "メモ",
                                 "{\"by\": \"kajitori\", \"big\": 36893488147419103232}", &err));
    double quality = fabs(values[1].f) + (double)values[3].i / 128;
    for (int step = 0; step < N_STEPS; step++) {
        CHECK(kj_trial_report(trial, step, report_of(number, step, quality), &err));
        int prune = kj_trial_should_prune(trial, NULL, &err);
        CHECK(prune);
        if (prune) {
            CHECK(kj_study_tell(study, trial, KJ_TRIAL_PRUNED, NULL, 0, &err));
            return;
        }
    }
    if (number % 11 == 9)
        CHECK(kj_study_tell(study, trial, KJ_TRIAL_FAIL, NULL, 0, &err));
    else
        CHECK(kj_study_tell(study, trial, KJ_TRIAL_COMPLETE, &quality, 1, &err));
}

static void run(kj_study *study, int n)
{
    for (int k = 0; k < n; k++) {
        kj_trial *trial;
        CHECK(kj_study_ask(study, &trial, &err));
        run_trial(study, trial);
        kj_trial_free(trial);
    }
}

static void put_double(double value)
{
    if (isnan(value))
        printf("NaN");
    else if (isinf(value))
        printf(value < 0 ? "-Infinity" : "Infinity");
    else
        printf(value == floor(value) && fabs(value) < 1e15 ? "%.1f" : "%.17g", value);
}

static void put_string(const char *text)
{
    putchar('"');
    for (; *text; text++)
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('"');
}

static void put_value(const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_BOOL:
        printf(value->i ? "true" : "false");
        break;
    case KJ_TYPE_INT:
        printf("%" PRId64, value->i);
        break;
    case KJ_TYPE_FLOAT:
        put_double(value->f);
        break;
    case KJ_TYPE_STRING:
        put_string(value->s);
        break;
    default:
        printf("null");
    }
}

static void dump_trial(const kj_trial_info *t)
{
    printf("{\"number\": %" PRId64 ", \"state\": \"%s\", \"value\": ", t->number,
           kj_trial_state_name(t->state));
    if (t->has_value)
        put_double(t->value);
    else
        printf("null");
    printf(", \"start\": \"%s\", \"complete\": \"%s\", \"params\": {", t->start, t->complete);
    for (uint64_t k = 0; k < t->n_params; k++) {
        if (k > 0)
            printf(", ");
        put_string(t->params[k].name);
        printf(": ");
        put_value(&t->params[k].value);
    }
    printf("}, \"reports\": [");
    for (uint64_t k = 0; k < t->n_reports; k++) {
        printf("%s[%" PRId64 ", ", k ? ", " : "", t->report_steps[k]);
        put_double(t->report_values[k]);
        printf("]");
    }
    printf("], \"cut\": ");
    if (t->cut)
        put_string(t->cut->reason);
    else
        printf("null");
    printf(", \"attributes\": %s}\n", t->attributes_json);
}

static void dump(kj_study *study)
{
    kj_trial_list *list;
    CHECK(kj_study_list_trials(study, &list, &err));
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++)
        dump_trial(kj_trial_list_get(list, k));
    kj_trial_list_free(list);
}

static void try_other_space(kj_study *study)
{
    kj_trial *trial;
    kj_value value;
    kj_distribution linear = {
        .size = sizeof linear, .kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1};
    CHECK(kj_study_ask(study, &trial, &err));
    int r = kj_trial_suggest(trial, "lr", &linear, &value, &err);
    printf("%d %s\n", r, err.message);
    CHECK(kj_study_tell(study, trial, KJ_TRIAL_FAIL, NULL, 0, &err));
    kj_trial_free(trial);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    kj_storage *storage;
    kj_study *study;
    kj_study_options options = KJ_STUDY_OPTIONS_INIT;
    options.name = argv[2];
    options.flags = KJ_STUDY_CREATE | KJ_STUDY_LOAD;
    options.has_seed = 1;
    options.seed = 5;
    options.pruner_options = "n_startup_trials=4";
    CHECK(kj_storage_open(argv[1], &storage, &err));
    CHECK(kj_study_open(storage, &options, &study, &err));
    if (strcmp(argv[3], "run") == 0 && argc == 5)
        run(study, atoi(argv[4]));
    else if (strcmp(argv[3], "enqueue") == 0 && argc == 5)
        CHECK(kj_study_enqueue(study, argv[4], "{\"from\": \"driver\"}", NULL, &err));
    else if (strcmp(argv[3], "space") == 0)
        try_other_space(study);
    else
        dump(study);
    kj_study_close(study);
    kj_storage_close(storage);
    return 0;
}
