/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optuna's thirteen tables at revision v3.2.0.a, and two of ours that other tools ignore
 * (docs/studies.md). All are created even when Optuna never opens the file: its dashboard does not
 * create what is missing.
 */
#include "rdb.h"

#include "errors.h"

#include <string.h>

enum { SCHEMA_VERSION = 12 };

const char *const kji_rdb_tables[] = {
    "studies",
    "study_directions",
    "study_user_attributes",
    "study_system_attributes",
    "trials",
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_params",
    "trial_values",
    "trial_intermediate_values",
    "trial_heartbeats",
    "version_info",
    "alembic_version",
    "kajitori_decisions",
    "kajitori_facts",
    NULL,
};

#define ATTRIBUTES(table, id, owner, owners)                                                     \
    "CREATE TABLE IF NOT EXISTS " table " (" id " INTEGER NOT NULL, " owner " INTEGER, "         \
    "\"key\" VARCHAR(512), value_json TEXT, PRIMARY KEY (" id "), UNIQUE (" owner ", \"key\"), " \
    "FOREIGN KEY(" owner ") REFERENCES " owners " (" owner "))"

const char *const kji_rdb_schema[] = {
    "CREATE TABLE IF NOT EXISTS studies (study_id INTEGER NOT NULL, study_name VARCHAR(512) NOT "
    "NULL, PRIMARY KEY (study_id))",
    "CREATE UNIQUE INDEX IF NOT EXISTS ix_studies_study_name ON studies (study_name)",
    "CREATE TABLE IF NOT EXISTS version_info (version_info_id INTEGER NOT NULL, schema_version "
    "INTEGER, library_version VARCHAR(256), PRIMARY KEY (version_info_id), CHECK "
    "(version_info_id=1))",
    "CREATE TABLE IF NOT EXISTS study_directions (study_direction_id INTEGER NOT NULL, direction "
    "VARCHAR(8) NOT NULL, study_id INTEGER NOT NULL, objective INTEGER NOT NULL, PRIMARY KEY "
    "(study_direction_id), UNIQUE (study_id, objective), FOREIGN KEY(study_id) REFERENCES studies "
    "(study_id))",
    ATTRIBUTES("study_user_attributes", "study_user_attribute_id", "study_id", "studies"),
    ATTRIBUTES("study_system_attributes", "study_system_attribute_id", "study_id", "studies"),
    "CREATE TABLE IF NOT EXISTS trials (trial_id INTEGER NOT NULL, number INTEGER, study_id "
    "INTEGER, state VARCHAR(8) NOT NULL, datetime_start DATETIME, datetime_complete DATETIME, "
    "PRIMARY KEY (trial_id), FOREIGN KEY(study_id) REFERENCES studies (study_id))",
    "CREATE INDEX IF NOT EXISTS ix_trials_study_id ON trials (study_id)",
    ATTRIBUTES("trial_user_attributes", "trial_user_attribute_id", "trial_id", "trials"),
    ATTRIBUTES("trial_system_attributes", "trial_system_attribute_id", "trial_id", "trials"),
    "CREATE TABLE IF NOT EXISTS trial_params (param_id INTEGER NOT NULL, trial_id INTEGER, "
    "param_name VARCHAR(512), param_value FLOAT, distribution_json TEXT, PRIMARY KEY (param_id), "
    "UNIQUE (trial_id, param_name), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE IF NOT EXISTS trial_values (trial_value_id INTEGER NOT NULL, trial_id INTEGER "
    "NOT NULL, objective INTEGER NOT NULL, value FLOAT, value_type VARCHAR(7) NOT NULL, PRIMARY "
    "KEY (trial_value_id), UNIQUE (trial_id, objective), FOREIGN KEY(trial_id) REFERENCES trials "
    "(trial_id))",
    "CREATE TABLE IF NOT EXISTS trial_intermediate_values (trial_intermediate_value_id INTEGER "
    "NOT NULL, trial_id INTEGER NOT NULL, step INTEGER NOT NULL, intermediate_value FLOAT, "
    "intermediate_value_type VARCHAR(7) NOT NULL, PRIMARY KEY (trial_intermediate_value_id), "
    "UNIQUE (trial_id, step), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE IF NOT EXISTS trial_heartbeats (trial_heartbeat_id INTEGER NOT NULL, trial_id "
    "INTEGER NOT NULL, heartbeat DATETIME NOT NULL, PRIMARY KEY (trial_heartbeat_id), UNIQUE "
    "(trial_id), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT "
    "alembic_version_pkc PRIMARY KEY (version_num))",
    "CREATE TABLE IF NOT EXISTS kajitori_decisions (decision_id INTEGER NOT NULL, trial_id "
    "INTEGER NOT NULL, step INTEGER NOT NULL, rule VARCHAR(64) NOT NULL, prune INTEGER NOT NULL, "
    "value FLOAT, threshold FLOAT, peers TEXT NOT NULL, reason TEXT NOT NULL, time DATETIME NOT "
    "NULL, PRIMARY KEY (decision_id), UNIQUE (trial_id, step, rule))",
    "CREATE TABLE IF NOT EXISTS kajitori_facts (fact_id INTEGER NOT NULL, study_id INTEGER NOT "
    "NULL, \"key\" VARCHAR(512) NOT NULL, value_json TEXT NOT NULL, PRIMARY KEY (fact_id), UNIQUE "
    "(study_id, \"key\"))",
    NULL,
};

/* Optuna's revisions before ours. */
static const char *const older_revisions[] = {"v0.9.0.a", "v1.2.0.a", "v1.3.0.a",
                                              "v2.4.0.a", "v2.6.0.a", "v3.0.0.a",
                                              "v3.0.0.b", "v3.0.0.c", "v3.0.0.d"};

typedef struct revisions {
    char first[40];
    size_t n;
} revisions;

static int take_revision(void *userdata, const kj_value *row, kj_error *err)
{
    (void)err;
    revisions *r = userdata;
    if (r->n++ == 0 && row[0].type == KJ_TYPE_STRING)
        strncat(r->first, row[0].s, sizeof r->first - 1);
    return 0;
}

static int refuse_older(kji_rdb *db, const char *revision, kj_error *err)
{
    return kji_fail(err, KJ_EREVISION,
                    "%s has schema revision %s, older than " KJI_RDB_REVISION
                    ": `optuna storage upgrade --storage sqlite:///%s` brings it to that",
                    db->place, revision, db->place);
}

int kji_rdb_check_revision(kji_rdb *db, bool has_alembic, bool has_version_info, kj_error *err)
{
    revisions found = {"", 0};
    int r = has_alembic
                ? db->driver->run(db, KJI_SQL_GET_REVISIONS, NULL, 0, take_revision, &found, err)
                : 0;
    if (r < 0)
        return r;
    if (found.n > 1)
        return kji_fail(err, KJ_EREVISION, "%s is damaged: alembic_version has %zu rows, not one",
                        db->place, found.n);
    if (found.n == 1) {
        if (strcmp(found.first, KJI_RDB_REVISION) == 0)
            return 1;
        for (size_t k = 0; k < sizeof older_revisions / sizeof *older_revisions; k++)
            if (strcmp(found.first, older_revisions[k]) == 0)
                return refuse_older(db, found.first, err);
        return kji_fail(err, KJ_EREVISION,
                        "%s has schema revision %s, which this version of kajitori does not know "
                        "(it knows " KJI_RDB_REVISION ")",
                        db->place, found.first);
    }
    int64_t version = SCHEMA_VERSION;
    if (has_version_info)
        r = kji_rdb_get_int(db, KJI_SQL_GET_SCHEMA_VERSION, NULL, 0, &version, err);
    if (r < 0)
        return r;
    return version == SCHEMA_VERSION ? 0 : refuse_older(db, older_revisions[0], err);
}

int kji_rdb_stamp(kji_rdb *db, bool with_revision, kj_error *err)
{
    kj_value value = kji_sql_text("kajitori " KJI_VERSION);
    int r = db->driver->run(db, KJI_SQL_ADD_VERSION_INFO, &value, 1, NULL, NULL, err);
    if (r < 0 || !with_revision)
        return r;
    value = kji_sql_text(KJI_RDB_REVISION);
    return db->driver->run(db, KJI_SQL_ADD_REVISION, &value, 1, NULL, NULL, err);
}
