/* SPDX-License-Identifier: Apache-2.0 */
#include "distribution.h"
#include "errors.h"
#include "history.h"
#include "json.h"
#include "mem.h"
#include "optuna-json.h"

#include "kji-test.h"

#include <math.h>
#include <string.h>

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

/* A bound beyond 64 bits, which this version cuts (docs/studies.md). */
static bool has_wide_bound(const char *json)
{
    return strstr(json, "100000000000000000000") || strstr(json, "9223372036854775808");
}

static double number(struct json_object *json)
{
    double value = 0;
    assert_true(kji_json_get_double(json, &value));
    return value;
}

/* Positional [low, high] or keyword arguments of Optuna's constructor. */
static kj_distribution construct(struct json_object *one, kj_value *choices)
{
    const char *class_name = kji_json_string(one, "class");
    struct json_object *args = member(one, "args"), *kwargs = member(one, "kwargs");
    kj_distribution d = {.size = sizeof d};
    if (strcmp(class_name, "CategoricalDistribution") == 0) {
        struct json_object *array = json_object_array_get_idx(args, 0);
        d.kind = KJ_DISTRIBUTION_CATEGORICAL;
        d.choices = choices;
        d.n_choices = json_object_array_length(array);
        for (size_t k = 0; k < d.n_choices; k++) {
            struct json_object *choice = json_object_array_get_idx(array, k);
            assert_true(kji_json_get_value(choice, &choices[k]));
            if (choices[k].type == KJ_TYPE_STRING && strcmp(choices[k].s, "NaN") == 0)
                choices[k] = (kj_value){.type = KJ_TYPE_FLOAT, .f = NAN};
        }
        return d;
    }
    bool is_int = strcmp(class_name, "IntDistribution") == 0;
    d.kind = is_int ? KJ_DISTRIBUTION_INT : KJ_DISTRIBUTION_FLOAT;
    d.low = number(json_object_array_get_idx(args, 0));
    d.high = number(json_object_array_get_idx(args, 1));
    if (is_int) {
        d.int_low = (int64_t)d.low;
        d.int_high = (int64_t)d.high;
    }
    d.log = json_object_get_boolean(member(kwargs, "log"));
    if (member(kwargs, "step")) {
        d.step = number(member(kwargs, "step"));
        d.int_step = (int64_t)d.step;
    }
    return d;
}

static void check_values(struct json_object *one, const kji_distribution *d)
{
    struct json_object *values = member(one, "values");
    for (size_t k = 0; k < json_object_array_length(values); k++) {
        struct json_object *v = json_object_array_get_idx(values, k);
        kj_value value, back;
        double internal = 0;
        if (strcmp(json_object_to_json_string(member(v, "value")), "100000000000000000000") == 0 ||
            !kji_json_get_value(member(v, "value"), &value))
            continue;
        if (value.type == KJ_TYPE_INT && value.i == INT64_MAX)
            continue; /* 10^20 is no kj_value */
        if (value.type == KJ_TYPE_STRING && kji_json_get_double(member(v, "value"), &value.f))
            value.type = KJ_TYPE_FLOAT;
        int r = kji_distribution_to_internal(d, &value, &internal, NULL);
        if (member(v, "error")) {
            assert_int_equal(r, KJ_EARG);
            continue;
        }
        assert_int_equal(r, 0);
        assert_true(internal == number(member(v, "internal")));
        assert_int_equal(kji_distribution_contains(d, internal),
                         json_object_get_boolean(member(v, "contains")));
        if (kji_distribution_to_external(d, internal, &back, NULL) == 0 &&
            back.type == KJ_TYPE_FLOAT && isfinite(back.f))
            assert_true(back.f == number(member(v, "external")));
    }
}

static bool check_constructor(struct json_object *one)
{
    kj_value choices[32];
    kj_error err = KJ_ERROR_INIT;
    kji_distribution *d = NULL;
    const char *json = kji_json_string(one, "json");
    if (json && has_wide_bound(json))
        return false;
    kj_distribution from = construct(one, choices);
    bool zero_step = member(member(one, "kwargs"), "step") && from.step == 0;
    if (zero_step) /* 0 is "no step" in our interface */
        return false;
    int r = kji_distribution_new(&from, &d, &err);
    if (member(one, "error")) {
        assert_int_equal(r, KJ_EARG);
        return true;
    }
    assert_int_equal(r, 0);
    KJI_CLEANUP(kji_freep) char *text = kji_distribution_text(d);
    assert_string_equal(text, json);
    assert_int_equal(kji_distribution_is_single(d), json_object_get_boolean(member(one, "single")));
    check_values(one, d);
    kji_distribution_unref(d);
    return true;
}

static bool check_parsing(struct json_object *one)
{
    kji_distribution *d = NULL;
    const char *json = kji_json_string(one, "json");
    int r = kji_distribution_parse(json, &d, NULL);
    if (member(one, "error")) {
        assert_int_equal(r, KJ_EDATA);
        return true;
    }
    assert_int_equal(r, 0);
    KJI_CLEANUP(kji_freep) char *text = kji_distribution_text(d);
    assert_int_equal(kji_distribution_is_single(d), json_object_get_boolean(member(one, "single")));
    bool wide = has_wide_bound(json);
    if (!wide)
        assert_string_equal(text, kji_json_string(one, "again"));
    kji_distribution_unref(d);
    return !wide;
}

static bool check_pair(struct json_object *one)
{
    struct json_object *pair = member(one, "compatible");
    kji_distribution *a = NULL, *b = NULL;
    assert_int_equal(kji_distribution_parse(
                         json_object_get_string(json_object_array_get_idx(pair, 0)), &a, NULL),
                     0);
    assert_int_equal(kji_distribution_parse(
                         json_object_get_string(json_object_array_get_idx(pair, 1)), &b, NULL),
                     0);
    assert_int_equal(kji_distribution_check_compatible("x", a, b, NULL) == 0,
                     json_object_get_boolean(member(one, "ok")));
    kji_distribution_unref(a);
    kji_distribution_unref(b);
    return true;
}

static void test_distributions_are_optunas(void **state)
{
    (void)state;
    struct json_object *vectors = kji_test_json("vectors/distributions.json"),
                       *cases = member(vectors, "cases");
    size_t n = json_object_array_length(cases), checked = 0;
    for (size_t k = 0; k < n; k++) {
        struct json_object *one = json_object_array_get_idx(cases, k);
        checked += member(one, "class")  ? check_constructor(one)
                   : member(one, "json") ? check_parsing(one)
                                         : check_pair(one);
    }
    assert_int_equal(n, 278);
    assert_int_equal(n - checked, 5); /* three with wide bounds, two with step=0 */
    json_object_put(vectors);
}

static void test_bad_distributions_say_why(void **state)
{
    (void)state;
    static const struct {
        kj_distribution d;
        const char *message;
    } cases[] = {
        {{.kind = KJ_DISTRIBUTION_FLOAT, .low = 1, .high = 0.5}, "low 1.0 is above high 0.5"},
        {{.kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = 1, .log = 1},
         "with log, low must be above 0; it is 0.0"},
        {{.kind = KJ_DISTRIBUTION_FLOAT, .low = 1, .high = 2, .log = 1, .step = 1},
         "a range can have log or a step, not both"},
        {{.kind = KJ_DISTRIBUTION_FLOAT, .low = 0, .high = INFINITY, .step = 1},
         "a range with a step must be finite; it is 0.0 to inf"},
        {{.kind = KJ_DISTRIBUTION_INT, .int_low = 0, .int_high = 4, .log = 1},
         "with log, low must be at least 1; it is 0"},
        {{.kind = KJ_DISTRIBUTION_CATEGORICAL},
         "a categorical parameter needs at least one choice"},
        {{.kind = 9}, "9 is no kind of distribution"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kj_error err = KJ_ERROR_INIT;
        kji_distribution *d = NULL;
        assert_int_equal(kji_distribution_new(&cases[k].d, &d, &err), KJ_EARG);
        assert_string_equal(err.message, cases[k].message);
    }
    kj_distribution all = {
        .kind = KJ_DISTRIBUTION_INT, .int_low = INT64_MIN, .int_high = INT64_MAX, .int_step = 2};
    kji_distribution *d;
    assert_int_equal(kji_distribution_new(&all, &d, NULL), 0);
    assert_true(d->is.int_high == INT64_MAX - 1);
    kji_distribution_unref(d);
}

static void test_json_is_rewritten_as_python_writes_it(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } good[] = {
        {" {\"a\":1,\"b\":[true,null]} ", "{\"a\": 1, \"b\": [true, null]}"},
        {"[]", "[]"},
        {"{ }", "{}"},
        {"\"日本 🚀\\/\\u0041\\ud83d\"", "\"\\u65e5\\u672c \\ud83d\\ude80/A\\ud83d\""},
        {"\"\\\"\\\\\\b\\f\\n\\r\\t\x7f\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\\u007f\""},
        {"[NaN,Infinity,-Infinity,-0.0,1E+5]", "[NaN, Infinity, -Infinity, -0.0, 1E+5]"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
    };
    static const char *const bad[] = {
        "",
        "[1,]",
        "{\"a\"}",
        "{'a':1}",
        "nan",
        "01",
        "1.",
        "+1",
        "\"\t\"",
        "\"\xff\"",
        "\"\\x\"",
        "1 2",
        "tru",
        "[1",
        "\"a",
        "{\"a\":1,}",
        "\"\\u12g4\"",
        "-",
        "-Inf",
        "\"\xed\xa0\x80\"",
        "\"\xc0\x80\"",
    };
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        kji_strbuf out = KJI_STRBUF_INIT;
        assert_int_equal(kji_optuna_json_rewrite(good[k].from, strlen(good[k].from), &out, NULL),
                         0);
        assert_string_equal(out.text, good[k].to);
        kji_strbuf_done(&out);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        kji_strbuf out = KJI_STRBUF_INIT;
        assert_int_equal(kji_optuna_json_rewrite(bad[k], strlen(bad[k]), &out, NULL), KJ_EDATA);
        kji_strbuf_done(&out);
    }
    char deep[2000];
    memset(deep, '[', sizeof deep);
    kji_strbuf out = KJI_STRBUF_INIT;
    assert_int_equal(kji_optuna_json_rewrite(deep, sizeof deep, &out, NULL), KJ_EDATA);
    kji_strbuf_done(&out);
}

static void test_times(void **state)
{
    (void)state;
    char text[KJI_TIME_TEXT];
    int64_t us;
    assert_true(kji_time_parse("2026-11-30 13:26:00.008444", &us));
    assert_string_equal(kji_time_text(us, text), "2026-11-30 13:26:00.008444");
    static const char *const same[] = {"2026-11-30 13:26:00", "2026-11-30T13:26:00",
                                       "2026-11-30 13:26:00.0", "2026-11-30 13:26:00+09:00"};
    for (size_t k = 0; k < 4; k++) {
        assert_true(kji_time_parse(same[k], &us));
        assert_string_equal(kji_time_text(us, text), "2026-11-30 13:26:00.000000");
    }
    assert_true(kji_time_parse("1969-12-31 23:59:59.5", &us));
    assert_true(us == -500000);
    assert_string_equal(kji_time_text(us, text), "1969-12-31 23:59:59.500000");
    assert_true(kji_time_parse("0001-01-01", &us));
    assert_string_equal(kji_time_text(us, text), "0001-01-01 00:00:00.000000");
    static const char *const bad[] = {"",
                                      "now",
                                      "1700000000",
                                      "2026-13-01 00:00:00",
                                      "2026-01-01 25:00:00",
                                      "2026-01-01 00:00:00 x"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(kji_time_parse(bad[k], &us));
    assert_string_equal(kji_time_local_text(KJI_TIME_NONE, text), "");
}

static kji_trial *make_trial(int64_t number, int state, const double *values, size_t n)
{
    kji_trial *trial = kji_trial_new();
    trial->id = number + 1;
    trial->number = number;
    trial->state = state;
    for (size_t k = 0; k < n; k++)
        assert_int_equal(kji_trial_add_report(trial, (int64_t)k, values[k]), 1);
    return trial;
}

static void test_history_orders_what_is_complete(void **state)
{
    (void)state;
    kji_history *h = kji_history_new(KJ_DIRECTION_MINIMIZE);
    assert_int_equal(
        kji_history_put(h, make_trial(1, KJ_TRIAL_COMPLETE, (double[]){3, NAN}, 2), NULL), 0);
    assert_int_equal(
        kji_history_put(h, make_trial(0, KJ_TRIAL_COMPLETE, (double[]){1, 2}, 2), NULL), 0);
    assert_int_equal(kji_history_put(h, make_trial(3, KJ_TRIAL_RUNNING, (double[]){2}, 1), NULL),
                     0);
    assert_int_equal(kji_history_put(h, make_trial(2, KJ_TRIAL_PRUNED, (double[]){9}, 1), NULL), 0);
    assert_int_equal(h->n_trials, 4);
    assert_int_equal(h->n_complete, 2);
    for (int64_t k = 0; k < 4; k++)
        assert_int_equal(kji_history_find(h, k)->number, k);
    assert_int_equal(kji_history_find_step(h, 0)->n, 2);
    assert_int_equal(
        kji_history_put(h, make_trial(3, KJ_TRIAL_COMPLETE, (double[]){2, -INFINITY}, 2), NULL), 0);
    const kji_step_stats *s = kji_history_find_step(h, 0);
    assert_true(s->n == 3 && s->n_nan == 0);
    assert_true(s->values[0] == 1 && s->values[1] == 2 && s->values[2] == 3);
    assert_true(s->numbers[0] == 0 && s->numbers[1] == 3 && s->numbers[2] == 1);
    s = kji_history_find_step(h, 1);
    assert_true(s->n == 3 && s->n_nan == 1 && isnan(s->values[2]) && s->numbers[2] == 1);
    assert_null(kji_history_find_step(h, 2));
    assert_null(kji_history_find(h, 7));
    kj_error err = KJ_ERROR_INIT;
    assert_int_equal(kji_history_put(h, make_trial(0, KJ_TRIAL_FAIL, NULL, 0), &err), KJ_EDATA);
    kji_trial *twin = make_trial(0, KJ_TRIAL_COMPLETE, (double[]){1, 1, 1}, 3);
    assert_int_equal(kji_history_put(h, twin, &err), KJ_EDATA); /* and nothing of it is counted */
    assert_true(h->n_complete == 3 && kji_history_find_step(h, 0)->n == 3);
    assert_null(kji_history_find_step(h, 2));
    kji_history_free(h);
}

static void test_a_copy_is_whole(void **state)
{
    (void)state;
    kji_trial *t = make_trial(4, KJ_TRIAL_PRUNED, (double[]){3, INFINITY}, 2);
    kji_distribution *d;
    assert_int_equal(
        kji_distribution_parse("{\"type\": \"categorical\", \"choices\": [\"a\", 1]}", &d, NULL),
        0);
    assert_true(kji_trial_add_param(t, "c", 1, d));
    kji_distribution_unref(d);
    assert_true(kji_attributes_set(&t->user, "k", "1") && kji_attributes_set(&t->user, "k", "2"));
    assert_true(kji_trial_set_cut(t, "median", "why", 1, 3, 2, (int64_t[]){0, 2}, 2));
    assert_true(kji_trial_set_value(t, 1, 5));
    kji_trial *copy = kji_trial_copy(t);
    kji_trial_free(t);
    assert_int_equal(copy->n_params, 1);
    assert_string_equal(kji_trial_find_param(copy, "c")->name, "c");
    assert_string_equal(kji_attributes_get(&copy->user, "k"), "2");
    assert_true(isnan(copy->values[0]) && copy->values[1] == 5);
    assert_true(copy->cut->n_peers == 2 && copy->cut->peers[1] == 2);
    assert_int_equal(kji_trial_last_step(copy), 1);
    assert_int_equal(kji_trial_add_report(copy, 1, 0), 0);
    kji_trial_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions_are_optunas),
        cmocka_unit_test(test_bad_distributions_say_why),
        cmocka_unit_test(test_json_is_rewritten_as_python_writes_it),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_history_orders_what_is_complete),
        cmocka_unit_test(test_a_copy_is_whole),
    };
    return cmocka_run_group_tests_name("study", tests, NULL, NULL);
}
