/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rows to trials. Rows may have been written by others, or by hand: whatever Optuna could not
 * read either is KJ_EDATA with the table, the trial and the value; what it reads is read.
 *
 * A refresh reads what is new (trial_id above the highest seen) and asks for each trial that was
 * unfinished whether it still is. Where nobody has committed since and nothing of ours has begun
 * or ended, not even that is necessary for a reader who only needs finished trials.
 */
#include "rdb.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"

#include <math.h>
#include <string.h>

typedef struct trial_rows {
    kji_trial **items;
    size_t n, capacity;
    const char *place;
} trial_rows;

static int bad_row(const trial_rows *rows, int64_t trial_id, const char *table, const char *what,
                   kj_error *err)
{
    return kji_fail(err, KJ_EDATA, "%s: table %s, trial_id %lld: %s", rows->place, table,
                    (long long)trial_id, what);
}

static bool take_time(const kj_value *value, int64_t *ret_us)
{
    return value->type == KJ_TYPE_NONE ||
           (value->type == KJ_TYPE_STRING && kji_time_parse(value->s, ret_us));
}

static int take_trial(void *userdata, const kj_value *row, kj_error *err)
{
    trial_rows *rows = userdata;
    int64_t id = row[0].i;
    int state = row[2].type == KJ_TYPE_STRING ? kji_trial_state_parse(row[2].s) : -1;
    if (state < 0)
        return bad_row(rows, id, "trials", "the state is not one of Optuna's", err);
    if (row[1].type != KJ_TYPE_INT)
        return bad_row(rows, id, "trials", "there is no number", err);
    kji_trial *trial = kji_trial_new();
    if (!trial || !kji_reserve(&rows->items, &rows->capacity, rows->n + 1, sizeof(kji_trial *))) {
        kji_trial_free(trial);
        return kji_fail_memory(err);
    }
    rows->items[rows->n++] = trial;
    trial->id = id;
    trial->number = row[1].i;
    trial->state = state;
    if (!take_time(&row[3], &trial->start_us) || !take_time(&row[4], &trial->complete_us))
        return bad_row(rows, id, "trials", "a time is not YYYY-MM-DD HH:MM:SS.ffffff", err);
    return 0;
}

static void rows_done(trial_rows *rows)
{
    for (size_t k = 0; k < rows->n; k++)
        kji_trial_free(rows->items[k]);
    free(rows->items);
}

typedef struct child {
    kji_trial *trial;
    kji_attributes *attributes;
    const trial_rows *rows;
} child;

static bool get_number(const kj_value *value, double *ret_number)
{
    *ret_number = value->type == KJ_TYPE_FLOAT ? value->f : (double)value->i;
    return value->type == KJ_TYPE_FLOAT || value->type == KJ_TYPE_INT;
}

/* The pair (number, type): NULL exactly when the type is not FINITE. */
static bool get_typed(const kj_value *value, const kj_value *type, bool nan_allowed,
                      double *ret_number)
{
    if (type->type != KJ_TYPE_STRING)
        return false;
    if (strcmp(type->s, "FINITE") == 0)
        return get_number(value, ret_number);
    if (value->type != KJ_TYPE_NONE)
        return false;
    if (strcmp(type->s, "INF_POS") == 0)
        *ret_number = INFINITY;
    else if (strcmp(type->s, "INF_NEG") == 0)
        *ret_number = -INFINITY;
    else if (nan_allowed && strcmp(type->s, "NAN") == 0)
        *ret_number = NAN;
    else
        return false;
    return true;
}

static int take_value(void *userdata, const kj_value *row, kj_error *err)
{
    child *c = userdata;
    double number;
    if (row[0].type != KJ_TYPE_INT || !get_typed(&row[1], &row[2], false, &number))
        return bad_row(c->rows, c->trial->id, "trial_values", "value and value_type do not fit",
                       err);
    /* Objectives may be numbered with gaps: their order counts. */
    return kji_trial_set_value(c->trial, c->trial->n_values, number) ? 0 : kji_fail_memory(err);
}

static int take_report(void *userdata, const kj_value *row, kj_error *err)
{
    child *c = userdata;
    double number;
    if (row[0].type != KJ_TYPE_INT || !get_typed(&row[1], &row[2], true, &number))
        return bad_row(c->rows, c->trial->id, "trial_intermediate_values",
                       "intermediate_value and its type do not fit", err);
    return kji_trial_add_report(c->trial, row[0].i, number) < 0 ? kji_fail_memory(err) : 0;
}

static int take_param(void *userdata, const kj_value *row, kj_error *err)
{
    child *c = userdata;
    if (row[0].type != KJ_TYPE_STRING || row[2].type != KJ_TYPE_STRING)
        return bad_row(c->rows, c->trial->id, "trial_params", "name or distribution is missing",
                       err);
    double internal = NAN;
    if (row[1].type != KJ_TYPE_NONE && !get_number(&row[1], &internal))
        return bad_row(c->rows, c->trial->id, "trial_params", "param_value is not a number", err);
    kji_distribution *distribution;
    int r = kji_distribution_parse(row[2].s, &distribution, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "%s: table trial_params, trial_id %lld", c->rows->place,
                               (long long)c->trial->id);
    kj_value value;
    r = kji_distribution_to_external(distribution, internal, &value, err);
    if (r < 0)
        kji_fail_prefix(err, r, "%s: table trial_params, trial_id %lld", c->rows->place,
                        (long long)c->trial->id);
    else if (!kji_trial_add_param(c->trial, row[0].s, internal, distribution))
        r = kji_fail_memory(err);
    kji_distribution_unref(distribution);
    return r;
}

static int take_attribute(void *userdata, const kj_value *row, kj_error *err)
{
    child *c = userdata;
    if (row[0].type != KJ_TYPE_STRING || row[1].type != KJ_TYPE_STRING)
        return bad_row(c->rows, c->trial->id, "trial_*_attributes", "key or value_json is missing",
                       err);
    return kji_attributes_set(c->attributes, row[0].s, row[1].s) ? 0 : kji_fail_memory(err);
}

/* NULL stands for NaN. */
static double number_or_nan(const kj_value *value)
{
    double number;
    return get_number(value, &number) ? number : NAN;
}

static int take_cut(void *userdata, const kj_value *row, kj_error *err)
{
    child *c = userdata;
    KJI_CLEANUP(kji_json_putp) struct json_object *peers = NULL;
    if (row[0].type != KJ_TYPE_STRING || row[1].type != KJ_TYPE_STRING ||
        row[5].type != KJ_TYPE_STRING ||
        kji_json_parse(row[5].s, strlen(row[5].s), &peers, NULL) < 0 ||
        !json_object_is_type(peers, json_type_array))
        return bad_row(c->rows, c->trial->id, "kajitori_decisions", "a column is malformed", err);
    size_t n = json_object_array_length(peers);
    KJI_CLEANUP(kji_freep) int64_t *numbers = calloc(n ? n : 1, sizeof *numbers);
    if (!numbers)
        return kji_fail_memory(err);
    for (size_t k = 0; k < n; k++)
        numbers[k] = json_object_get_int64(json_object_array_get_idx(peers, k));
    return kji_trial_set_cut(c->trial, row[0].s, row[1].s, row[2].i, number_or_nan(&row[3]),
                             number_or_nan(&row[4]), numbers, n)
               ? 0
               : kji_fail_memory(err);
}

static int load_children(kji_rdb *db, const trial_rows *rows, kji_trial *trial, kj_error *err)
{
    const struct {
        int statement;
        kji_row_fn take;
        kji_attributes *attributes;
    } parts[] = {
        {KJI_SQL_GET_PARAMS, take_param, NULL},
        {KJI_SQL_GET_VALUES, take_value, NULL},
        {KJI_SQL_GET_REPORTS, take_report, NULL},
        {KJI_SQL_GET_USER, take_attribute, &trial->user},
        {KJI_SQL_GET_SYSTEM, take_attribute, &trial->system},
        {KJI_SQL_GET_CUT, take_cut, NULL},
    };
    kj_value id = kji_sql_int(trial->id);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        child c = {trial, parts[k].attributes, rows};
        int r = db->driver->run(db, parts[k].statement, &id, 1, parts[k].take, &c, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int kji_rdb_load_trial(kji_rdb *db, int statement, int64_t study_id, int64_t key,
                       kji_trial **ret_trial, kj_error *err)
{
    trial_rows found = {.place = db->place};
    kj_value params[] = {kji_sql_int(study_id), kji_sql_int(key)};
    int r = db->driver->run(db, statement, params, 2, take_trial, &found, err);
    if (r >= 0 && found.n > 0)
        r = load_children(db, &found, found.items[0], err);
    int n = found.n > 0;
    if (r >= 0 && n) {
        *ret_trial = found.items[0];
        found.items[0] = NULL;
    }
    rows_done(&found);
    return r < 0 ? r : n;
}

int kji_rdb_read_trial(void *self, int64_t study_id, int64_t number, kji_trial **ret_trial,
                       kj_error *err)
{
    kji_rdb *db = self;
    int r = db->driver->begin(db, KJI_READ, err);
    if (r < 0)
        return r;
    r = kji_rdb_load_trial(db, KJI_SQL_TRIAL_BY_NUMBER, study_id, number, ret_trial, err);
    db->driver->rollback(db);
    return r;
}

/* Reads again the trials that were unfinished, into `found`. */
static int ask_unfinished(kji_rdb *db, int64_t study_id, const kji_history *history,
                          trial_rows *found, kj_error *err)
{
    for (size_t k = 0; k < history->n_trials; k++) {
        const kji_trial *trial = history->trials[k];
        if (kji_trial_is_finished(trial))
            continue;
        size_t before = found->n;
        kj_value params[] = {kji_sql_int(study_id), kji_sql_int(trial->id)};
        int r = db->driver->run(db, KJI_SQL_TRIAL_BY_ID, params, 2, take_trial, found, err);
        if (r < 0)
            return r;
        if (found->n == before)
            return kji_fail(err, KJ_ENOENT, "trial %lld is gone: was the study deleted?",
                            (long long)trial->number);
    }
    return 0;
}

static int put_rows(kji_rdb *db, bool finished_only, trial_rows *found, kji_history *history,
                    kj_error *err)
{
    for (size_t k = 0; k < found->n; k++) {
        kji_trial *trial = found->items[k];
        bool is_open = !kji_trial_is_finished(trial);
        if (finished_only && is_open && kji_history_find(history, trial->number))
            continue;
        int r = finished_only && is_open ? 0 : load_children(db, found, trial, err);
        if (r < 0)
            return r;
        found->items[k] = NULL;
        r = kji_history_put(history, trial, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int refresh_inside(kji_rdb *db, int64_t study_id, bool finished_only, kji_history *history,
                          kj_error *err)
{
    trial_rows found = {.place = db->place};
    int r = ask_unfinished(db, study_id, history, &found, err);
    if (r >= 0) {
        kj_value params[] = {kji_sql_int(study_id), kji_sql_int(history->max_id)};
        r = db->driver->run(db, KJI_SQL_NEW_TRIALS, params, 2, take_trial, &found, err);
    }
    if (r >= 0)
        r = put_rows(db, finished_only, &found, history, err);
    rows_done(&found);
    return r;
}

int kji_rdb_refresh(void *self, int64_t study_id, bool finished_only, kji_history *history,
                    kj_error *err)
{
    kji_rdb *db = self;
    int64_t version;
    int r = db->driver->begin(db, KJI_READ, err);
    if (r < 0)
        return r;
    r = db->driver->get_version(db, &version, err);
    bool unchanged =
        finished_only && version == history->stamp[0] && db->n_transitions == history->stamp[1];
    if (r >= 0 && !unchanged)
        r = refresh_inside(db, study_id, finished_only, history, err);
    db->driver->rollback(db);
    if (r < 0)
        return r;
    history->stamp[0] = version;
    history->stamp[1] = db->n_transitions;
    return 0;
}
