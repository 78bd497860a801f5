/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writing half of the relational storages. Every slot is one write transaction that takes the
 * write lock first and looks then: numbers, claims and "is it finished already" are decided while
 * nobody else can write.
 */
#include "rdb.h"

#include "errors.h"
#include "mem.h"
#include "strbuf.h"

#include <math.h>
#include <string.h>

kj_value kji_sql_int(int64_t value)
{
    return (kj_value){.type = KJ_TYPE_INT, .i = value};
}

kj_value kji_sql_text(const char *text)
{
    return (kj_value){.type = KJ_TYPE_STRING, .s = text};
}

kj_value kji_sql_double(double value)
{
    return isnan(value) ? (kj_value){.type = KJ_TYPE_NONE}
                        : (kj_value){.type = KJ_TYPE_FLOAT, .f = value};
}

static int run(kji_rdb *db, int statement, const kj_value *params, size_t n, kj_error *err)
{
    return db->driver->run(db, statement, params, n, NULL, NULL, err);
}

static int take_int(void *userdata, const kj_value *row, kj_error *err)
{
    (void)err;
    int64_t **target = userdata;
    if (*target && row[0].type == KJ_TYPE_INT)
        **target = row[0].i;
    *target = NULL;
    return 1;
}

int kji_rdb_get_int(kji_rdb *db, int statement, const kj_value *params, size_t n,
                    int64_t *ret_value, kj_error *err)
{
    int64_t *target = ret_value;
    int r = db->driver->run(db, statement, params, n, take_int, &target, err);
    return r < 0 ? r : target == NULL;
}

/* Ends a write transaction: commits when r is not an error. */
static int end(kji_rdb *db, int r, kj_error *err)
{
    if (r < 0) {
        db->driver->rollback(db);
        return r;
    }
    return db->driver->commit(db, err);
}

static const char *const direction_names[] = {"NOT_SET", "MINIMIZE", "MAXIMIZE"};

static int add_study(kji_rdb *db, const char *name, int direction, int64_t *ret_id, kj_error *err)
{
    kj_value params[] = {kji_sql_text(name), kji_sql_int(0)};
    int r = run(db, KJI_SQL_ADD_STUDY, params, 1, err);
    if (r == KJ_EEXIST)
        return kji_fail(err, KJ_EEXIST, "there is a study \"%s\" already in %s", name, db->place);
    if (r < 0)
        return r;
    int64_t id = db->driver->last_id(db);
    params[0] = kji_sql_text(direction_names[direction]);
    params[1] = kji_sql_int(id);
    r = run(db, KJI_SQL_ADD_DIRECTION, params, 2, err);
    if (r >= 0)
        *ret_id = id;
    return r;
}

int kji_rdb_create_study(void *self, const char *name, int direction, int64_t *ret_id,
                         kj_error *err)
{
    kji_rdb *db = self;
    int r = db->driver->begin(db, KJI_WRITE, err);
    return r < 0 ? r : end(db, add_study(db, name, direction, ret_id, err), err);
}

typedef struct found_study {
    kji_study_row row;
    bool found;
    const char *place;
} found_study;

static int take_study(void *userdata, const kj_value *row, kj_error *err)
{
    found_study *f = userdata;
    f->found = true;
    f->row.id = row[0].i;
    f->row.n_objectives = (int32_t)row[2].i;
    f->row.direction = KJ_DIRECTION_NOT_SET;
    if (row[1].type == KJ_TYPE_NONE)
        return 1;
    for (int k = 0; k < 3 && row[1].type == KJ_TYPE_STRING; k++) {
        if (strcmp(row[1].s, direction_names[k]) == 0) {
            f->row.direction = k;
            return 1;
        }
    }
    return kji_fail(err, KJ_EDATA, "%s: table study_directions, study_id %lld: unknown direction",
                    f->place, (long long)row[0].i);
}

int kji_rdb_find_study(void *self, const char *name, kji_study_row *ret_row, kj_error *err)
{
    kji_rdb *db = self;
    found_study found = {.place = db->place};
    kj_value params[] = {kji_sql_text(name)};
    int r = db->driver->run(db, KJI_SQL_FIND_STUDY, params, 1, take_study, &found, err);
    if (r < 0)
        return r;
    if (found.found)
        *ret_row = found.row;
    return found.found;
}

typedef struct name_list {
    kji_name_fn fn;
    void *userdata;
} name_list;

static int take_name(void *userdata, const kj_value *row, kj_error *err)
{
    (void)err;
    name_list *list = userdata;
    return list->fn(list->userdata, row[0].type == KJ_TYPE_STRING ? row[0].s : "") != 0;
}

int kji_rdb_list_studies(void *self, kji_name_fn fn, void *userdata, kj_error *err)
{
    kji_rdb *db = self;
    name_list list = {fn, userdata};
    int r = db->driver->run(db, KJI_SQL_LIST_STUDIES, NULL, 0, take_name, &list, err);
    return r < 0 ? r : 0;
}

static int take_text(void *userdata, const kj_value *row, kj_error *err)
{
    char **text = userdata;
    if (row[0].type != KJ_TYPE_STRING)
        return 1;
    *text = strdup(row[0].s);
    return *text ? 1 : kji_fail_memory(err);
}

int kji_rdb_get_fact(void *self, int64_t study_id, const char *key, char **ret_json, kj_error *err)
{
    kji_rdb *db = self;
    char *json = NULL;
    kj_value params[] = {kji_sql_int(study_id), kji_sql_text(key)};
    int r = db->driver->run(db, KJI_SQL_GET_FACT, params, 2, take_text, &json, err);
    if (r < 0)
        return r;
    if (json)
        *ret_json = json;
    return json != NULL;
}

int kji_rdb_set_fact(void *self, int64_t study_id, const char *key, const char *json, kj_error *err)
{
    kji_rdb *db = self;
    kj_value params[] = {kji_sql_int(study_id), kji_sql_text(key), kji_sql_text(json)};
    int r = db->driver->begin(db, KJI_WRITE, err);
    return r < 0 ? r : end(db, run(db, KJI_SQL_SET_FACT, params, 3, err), err);
}

int kji_rdb_add_fact(void *self, int64_t study_id, const char *key, const char *json,
                     char **ret_json, kj_error *err)
{
    kji_rdb *db = self;
    kj_value params[] = {kji_sql_int(study_id), kji_sql_text(key), kji_sql_text(json)};
    char *there = NULL;
    int r = db->driver->begin(db, KJI_WRITE, err);
    if (r < 0)
        return r;
    r = kji_rdb_get_fact(self, study_id, key, &there, err);
    if (r == 0)
        r = run(db, KJI_SQL_SET_FACT, params, 3, err);
    r = end(db, r, err);
    if (r < 0 || !there) {
        free(there);
        return r < 0 ? r : 0;
    }
    *ret_json = there;
    return 1;
}

static int add_trial(kji_rdb *db, int64_t study_id, int state, int64_t *ret_id, kj_error *err)
{
    int64_t ignored;
    char now[KJI_TIME_TEXT];
    kj_value params[] = {
        kji_sql_int(study_id), kji_sql_text(kj_trial_state_name(state)), {.type = KJ_TYPE_NONE}};
    int r = kji_rdb_get_int(db, KJI_SQL_HAS_STUDY, params, 1, &ignored, err);
    if (r == 0)
        return kji_fail(err, KJ_ENOENT, "the study is gone from %s", db->place);
    if (state == KJ_TRIAL_RUNNING)
        params[2] = kji_sql_text(kji_time_text(kji_time_now(), now));
    if (r >= 0)
        r = run(db, KJI_SQL_ADD_TRIAL, params, 3, err);
    if (r < 0)
        return r;
    *ret_id = db->driver->last_id(db);
    params[1] = kji_sql_int(*ret_id);
    return run(db, KJI_SQL_NUMBER_TRIAL, params, 2, err);
}

static int claim(kji_rdb *db, int64_t study_id, int64_t *ret_id, kj_error *err)
{
    kj_value params[] = {kji_sql_int(study_id), {.type = KJ_TYPE_NONE}};
    int r = kji_rdb_get_int(db, KJI_SQL_FIND_WAITING, params, 1, ret_id, err);
    if (r < 0)
        return r;
    if (r == 0)
        return add_trial(db, study_id, KJ_TRIAL_RUNNING, ret_id, err);
    char now[KJI_TIME_TEXT];
    params[0] = kji_sql_int(*ret_id);
    params[1] = kji_sql_text(kji_time_text(kji_time_now(), now));
    return run(db, KJI_SQL_CLAIM_TRIAL, params, 2, err);
}

static int set_user(kji_rdb *db, int64_t trial_id, const kji_attribute *attribute, kj_error *err)
{
    kj_value params[] = {kji_sql_int(trial_id), kji_sql_text(attribute->key),
                         kji_sql_text(attribute->json)};
    return run(db, KJI_SQL_SET_USER, params, 3, err);
}

int kji_rdb_claim_trial(void *self, int64_t study_id, const kji_attribute *mark,
                        kji_trial **ret_trial, kj_error *err)
{
    kji_rdb *db = self;
    int64_t id;
    kji_trial *trial = NULL;
    int r = db->driver->begin(db, KJI_WRITE, err);
    if (r < 0)
        return r;
    r = claim(db, study_id, &id, err);
    if (r >= 0 && mark)
        r = set_user(db, id, mark, err);
    if (r >= 0)
        r = kji_rdb_load_trial(db, KJI_SQL_TRIAL_BY_ID, study_id, id, &trial, err);
    r = end(db, r, err);
    if (r < 0) {
        kji_trial_free(trial);
        return r;
    }
    db->n_transitions++;
    *ret_trial = trial;
    return 0;
}

static int queue(kji_rdb *db, int64_t study_id, const kji_queued *queued, int64_t *ret_number,
                 kj_error *err)
{
    int64_t id;
    int r = add_trial(db, study_id, KJ_TRIAL_WAITING, &id, err);
    if (r < 0)
        return r;
    kj_value params[] = {kji_sql_int(id), kji_sql_text("fixed_params"),
                         kji_sql_text(queued->fixed_params_json)};
    r = run(db, KJI_SQL_SET_SYSTEM, params, 3, err);
    for (size_t k = 0; r >= 0 && queued->user && k < queued->user->n; k++)
        r = set_user(db, id, &queued->user->items[k], err);
    if (r < 0)
        return r;
    params[1] = kji_sql_int(study_id);
    return kji_rdb_get_int(db, KJI_SQL_GET_STATE, params, 2, ret_number, err);
}

int kji_rdb_queue_trial(void *self, int64_t study_id, const kji_queued *queued, int64_t *ret_number,
                        kj_error *err)
{
    kji_rdb *db = self;
    int64_t number;
    int r = db->driver->begin(db, KJI_WRITE, err);
    if (r < 0)
        return r;
    r = end(db, queue(db, study_id, queued, &number, err), err);
    if (r < 0)
        return r;
    db->n_transitions++;
    *ret_number = number;
    return 0;
}

int kji_rdb_find_param(void *self, int64_t study_id, const char *name, kji_distribution **ret,
                       kj_error *err)
{
    kji_rdb *db = self;
    KJI_CLEANUP(kji_freep) char *json = NULL;
    kj_value params[] = {kji_sql_int(study_id), kji_sql_text(name)};
    int r = db->driver->run(db, KJI_SQL_FIND_PARAM, params, 2, take_text, &json, err);
    if (r < 0 || !json)
        return r < 0 ? r : 0;
    r = kji_distribution_parse(json, ret, err);
    return r < 0 ? kji_fail_prefix(err, r, "%s: parameter \"%s\"", db->place, name) : 1;
}

typedef struct trial_state {
    int64_t number;
    int state;
    bool found;
} trial_state;

static int take_state(void *userdata, const kj_value *row, kj_error *err)
{
    (void)err;
    int state = row[1].type == KJ_TYPE_STRING ? kji_trial_state_parse(row[1].s) : -1;
    *(trial_state *)userdata = (trial_state){row[0].i, state, true};
    return 1;
}

static int check_state(kji_rdb *db, int64_t study_id, int64_t trial_id, bool to_end, kj_error *err)
{
    trial_state s = {0, 0, false};
    kj_value params[] = {kji_sql_int(trial_id), kji_sql_int(study_id)};
    int r = db->driver->run(db, KJI_SQL_GET_STATE, params, 2, take_state, &s, err);
    if (r < 0)
        return r;
    if (!s.found)
        return kji_fail(err, KJ_ENOENT, "the trial is gone from %s", db->place);
    if (s.state == KJ_TRIAL_RUNNING || (s.state == KJ_TRIAL_WAITING && !to_end))
        return 0;
    if (s.state < 0)
        return kji_fail(err, KJ_EDATA,
                        "%s: table trials, trial_id %lld: the state is not one of "
                        "Optuna's",
                        db->place, (long long)trial_id);
    return kji_storage_refuse_state(s.number, s.state, to_end, err);
}

static int write_param(kji_rdb *db, int64_t study_id, int64_t trial_id, const kji_changes *c,
                       kj_error *err)
{
    if (!c->param_name)
        return 0;
    kji_distribution *old = NULL;
    int r = c->param_is_known ? 0 : kji_rdb_find_param(db, study_id, c->param_name, &old, err);
    if (r > 0)
        r = kji_distribution_check_compatible(c->param_name, old, c->param_distribution, err);
    kji_distribution_unref(old);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep) char *json = kji_distribution_text(c->param_distribution);
    if (!json)
        return kji_fail_memory(err);
    kj_value params[] = {kji_sql_int(trial_id), kji_sql_text(c->param_name),
                         kji_sql_double(c->param_internal), kji_sql_text(json)};
    r = run(db, KJI_SQL_ADD_PARAM, params, 4, err);
    return r != 0 ? r : kji_storage_refuse_param(c->param_name, err);
}

/* A number as Optuna stores it: NULL with a type where it is not finite. */
static void typed(double number, kj_value params[2])
{
    params[0] = isfinite(number) ? kji_sql_double(number) : (kj_value){.type = KJ_TYPE_NONE};
    params[1] = kji_sql_text(isnan(number)      ? "NAN"
                             : isfinite(number) ? "FINITE"
                             : number > 0       ? "INF_POS"
                                                : "INF_NEG");
}

static int write_reports(kji_rdb *db, int64_t trial_id, const kji_changes *c, kj_error *err)
{
    for (size_t k = 0; k < c->n_reports; k++) {
        kj_value params[4] = {kji_sql_int(trial_id), kji_sql_int(c->reports[k].step)};
        typed(c->reports[k].value, &params[2]);
        int r = run(db, KJI_SQL_ADD_REPORT, params, 4, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int write_decision(kji_rdb *db, int64_t trial_id, const kji_decision *d, kj_error *err)
{
    if (!d)
        return 0;
    kji_strbuf peers = KJI_STRBUF_INIT;
    for (uint64_t k = 0; k < d->n_peers; k++)
        kji_strbuf_printf(&peers, "%s%lld", k ? ", " : "[", (long long)d->peers[k]);
    kji_strbuf_puts(&peers, d->n_peers ? "]" : "[]");
    KJI_CLEANUP(kji_freep) char *peers_json = kji_strbuf_take(&peers);
    if (!peers_json)
        return kji_fail_memory(err);
    char now[KJI_TIME_TEXT];
    kj_value params[] = {
        kji_sql_int(trial_id),
        kji_sql_int(d->step),
        kji_sql_text(d->rule),
        kji_sql_int(d->prune),
        kji_sql_double(d->value),
        kji_sql_double(d->threshold),
        kji_sql_text(peers_json),
        kji_sql_text(d->reason),
        kji_sql_text(kji_time_text(kji_time_now(), now)),
    };
    return run(db, KJI_SQL_ADD_DECISION, params, sizeof params / sizeof *params, err);
}

static int write_end(kji_rdb *db, int64_t trial_id, const kji_changes *c, kj_error *err)
{
    if (!c->has_state)
        return 0;
    kj_value params[3] = {kji_sql_int(trial_id)};
    if (c->has_value) {
        typed(c->value, &params[1]);
        int r = run(db, KJI_SQL_SET_VALUE, params, 3, err);
        if (r < 0)
            return r;
    }
    char now[KJI_TIME_TEXT];
    params[1] = kji_sql_text(kj_trial_state_name(c->state));
    params[2] = kji_sql_text(kji_time_text(kji_time_now(), now));
    return run(db, KJI_SQL_END_TRIAL, params, 3, err);
}

static int write_changes(kji_rdb *db, int64_t study_id, int64_t trial_id, const kji_changes *c,
                         kj_error *err)
{
    int r = check_state(db, study_id, trial_id, c->has_state, err);
    if (r >= 0)
        r = write_param(db, study_id, trial_id, c, err);
    if (r >= 0)
        r = write_reports(db, trial_id, c, err);
    if (r >= 0 && c->user_key) {
        kj_value params[] = {kji_sql_int(trial_id), kji_sql_text(c->user_key),
                             kji_sql_text(c->user_json)};
        r = run(db, KJI_SQL_SET_USER, params, 3, err);
    }
    if (r >= 0)
        r = write_decision(db, trial_id, c->decision, err);
    return r < 0 ? r : write_end(db, trial_id, c, err);
}

/* Reports come often, and are worth little without the trial that a power cut ends, too. */
static bool only_reports(const kji_changes *c)
{
    return !c->param_name && !c->user_key && !c->decision && !c->has_state;
}

int kji_rdb_change_trial(void *self, int64_t study_id, int64_t trial_id, const kji_changes *changes,
                         kj_error *err)
{
    kji_rdb *db = self;
    int r = db->driver->begin(db, only_reports(changes) ? KJI_WRITE_LAZY : KJI_WRITE, err);
    if (r < 0)
        return r;
    r = end(db, write_changes(db, study_id, trial_id, changes, err), err);
    if (r >= 0)
        db->n_transitions += changes->has_state;
    return r;
}
