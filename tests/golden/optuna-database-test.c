/* SPDX-License-Identifier: Apache-2.0 */
/* Golden: a database that Optuna 5.0.0 wrote, against what Optuna read back from it. */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "storage.h"

#include "kji-test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct golden {
    char dir[64];
    kj_storage *storage;
    kji_history *history;
    size_t n_studies, n_trials, n_params, n_reports;
} golden;

static kj_error err = KJ_ERROR_INIT;

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    assert_true(json_object_object_get_ex(object, key, &value));
    return value;
}

/* The test opens a copy: opening adds our own tables. */
static void open_copy(golden *g)
{
    char url[160], *bytes;
    size_t size;
    snprintf(g->dir, sizeof g->dir, "/tmp/kji-golden-XXXXXX");
    assert_non_null(mkdtemp(g->dir));
    assert_int_equal(
        kji_read_file(AT_FDCWD, kji_test_data("optuna/studies.db"), 1 << 22, &bytes, &size, NULL),
        0);
    int fd = open(g->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(kji_write_file_atomic(fd, "studies.db", bytes, size, &err), 0);
    close(fd);
    free(bytes);
    snprintf(url, sizeof url, "sqlite:///%s/studies.db", g->dir);
    if (kj_storage_open(url, &g->storage, &err) < 0)
        fail_msg("%s", err.message);
}

static void next_study(golden *g, struct json_object *line)
{
    kji_study_row row;
    const char *name = kji_json_string(line, "study_name");
    struct json_object *directions = member(line, "directions");
    assert_int_equal(g->storage->ops->find_study(g->storage->self, name, &row, &err), 1);
    assert_int_equal(row.id, json_object_get_int64(member(line, "study_id")));
    assert_int_equal(row.n_objectives, json_object_array_length(directions));
    assert_string_equal(row.direction == KJ_DIRECTION_MAXIMIZE ? "MAXIMIZE" : "MINIMIZE",
                        json_object_get_string(json_object_array_get_idx(directions, 0)));
    kji_history_free(g->history);
    g->history = kji_history_new(row.direction);
    if (g->storage->ops->refresh(g->storage->self, row.id, false, g->history, &err) < 0)
        fail_msg("study %s: %s", name, err.message);
    assert_int_equal(g->history->n_trials, json_object_get_int64(member(line, "n_trials")));
    g->n_studies++;
}

/* Local time with six digits, as the expected file has it. */
static void check_time(struct json_object *json, int64_t us)
{
    char text[80], local[KJI_TIME_TEXT];
    if (!json) {
        assert_true(us == KJI_TIME_NONE);
        return;
    }
    kji_time_local_text(us, local);
    local[10] = 'T';
    snprintf(text, sizeof text, "%.19s.%06d", local, (int)(us % 1000000));
    assert_string_equal(text, json_object_get_string(json));
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void check_params(golden *g, struct json_object *line, const kji_trial *trial)
{
    struct json_object *internal = member(line, "params_internal"),
                       *distributions = member(line, "distributions");
    size_t k = 0;
    json_object_object_foreach(member(line, "params"), name, value)
    {
        const kji_param *param = &trial->params[k++];
        double expected;
        kj_value external, wanted;
        assert_true(k <= trial->n_params);
        assert_string_equal(param->name, name);
        assert_true(kji_json_get_double(member(internal, name), &expected));
        assert_true(same(param->internal, expected));
        assert_int_equal(
            kji_distribution_to_external(param->distribution, param->internal, &external, &err), 0);
        assert_true(kji_json_get_value(value, &wanted));
        if (external.type == KJ_TYPE_STRING)
            assert_string_equal(external.s, wanted.s);
        else if (external.type == KJ_TYPE_INT)
            assert_int_equal(external.i, wanted.i);
        kji_distribution *d = NULL;
        assert_int_equal(kji_distribution_parse(
                             json_object_to_json_string(member(distributions, name)), &d, &err),
                         0);
        KJI_CLEANUP(kji_freep) char *a = kji_distribution_text(d);
        KJI_CLEANUP(kji_freep) char *b = kji_distribution_text(param->distribution);
        assert_string_equal(a, b);
        kji_distribution_unref(d);
    }
    assert_int_equal(k, trial->n_params);
    g->n_params += k;
}

static void check_reports(golden *g, struct json_object *array, const kji_trial *trial)
{
    size_t n = json_object_array_length(array);
    assert_int_equal(n, trial->n_reports);
    for (size_t k = 0; k < n; k++) {
        struct json_object *pair = json_object_array_get_idx(array, k);
        int64_t step = json_object_get_int64(json_object_array_get_idx(pair, 0));
        double value;
        assert_true(kji_json_get_double(json_object_array_get_idx(pair, 1), &value));
        bool found = false;
        for (size_t r = 0; r < n && !found; r++)
            found = trial->reports[r].step == step && same(trial->reports[r].value, value);
        assert_true(found);
    }
    g->n_reports += n;
}

/* The texts are kept as Optuna wrote them; here only which keys there are, and simple values. */
static void check_attributes(struct json_object *object, const kji_attributes *attributes)
{
    assert_int_equal(json_object_object_length(object), attributes->n);
    json_object_object_foreach(object, key, value)
    {
        const char *json = kji_attributes_get(attributes, key);
        assert_non_null(json);
        if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) != INT64_MAX)
            assert_int_equal(strtoll(json, NULL, 10), json_object_get_int64(value));
    }
}

static void check_trial(golden *g, struct json_object *line)
{
    int64_t number = json_object_get_int64(member(line, "number"));
    const kji_trial *trial = kji_history_find(g->history, number);
    assert_non_null(trial);
    assert_int_equal(trial->id, json_object_get_int64(member(line, "trial_id")));
    assert_string_equal(kj_trial_state_name(trial->state), kji_json_string(line, "state"));
    check_time(member(line, "datetime_start"), trial->start_us);
    check_time(member(line, "datetime_complete"), trial->complete_us);
    struct json_object *values = member(line, "values");
    assert_int_equal(trial->n_values, values ? json_object_array_length(values) : 0);
    for (size_t k = 0; k < trial->n_values; k++) {
        double value;
        assert_true(kji_json_get_double(json_object_array_get_idx(values, k), &value));
        assert_true(trial->values[k] == value);
    }
    check_params(g, line, trial);
    check_reports(g, member(line, "intermediate_values"), trial);
    check_attributes(member(line, "user_attrs"), &trial->user);
    check_attributes(member(line, "system_attrs"), &trial->system);
    assert_null(trial->cut);
    g->n_trials++;
}

static void test_optunas_database_reads_the_same(void **state)
{
    (void)state;
    golden g = {.n_studies = 0};
    char *text;
    size_t size;
    setenv("TZ", "Asia/Tokyo", 1); /* that of the writer */
    tzset();
    open_copy(&g);
    assert_int_equal(kji_read_file(AT_FDCWD, kji_test_data("optuna/studies.expected.jsonl"),
                                   1 << 22, &text, &size, NULL),
                     0);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_object *json;
        assert_int_equal(kji_json_parse(line, (size_t)(end - line), &json, &err), 0);
        const char *kind = kji_json_string(json, "kind");
        if (strcmp(kind, "study") == 0)
            next_study(&g, json);
        else if (strcmp(kind, "trial") == 0)
            check_trial(&g, json);
        json_object_put(json);
    }
    assert_int_equal(g.n_studies, 25);
    assert_int_equal(g.n_trials, 227);
    assert_true(g.n_params > 500 && g.n_reports > 300);
    free(text);
    kji_history_free(g.history);
    kj_storage_close(g.storage);
    kji_test_remove_tree(g.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optunas_database_reads_the_same)};
    return cmocka_run_group_tests_name("optuna-database", tests, NULL, NULL);
}
