/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all relational storages share: Optuna's schema v3.2.0.a, the statements (rdb-sql.h) and the
 * storage slots over them. An engine adds a driver (run a statement, transactions, open).
 */
#ifndef KJI_RDB_H
#define KJI_RDB_H

#include "rdb-sql.h"
#include "storage.h"

#define KJI_RDB_REVISION "v3.2.0.a"

typedef struct kji_rdb kji_rdb;

/* One row, borrowed for the call. 0 = go on, 1 = that is enough, < 0 = an error it has filled. */
typedef int (*kji_row_fn)(void *userdata, const kj_value *row, kj_error *err);

enum kji_begin {
    KJI_READ,      /* a snapshot */
    KJI_WRITE,     /* other writers wait from here to the end; on the disk when it is committed */
    KJI_WRITE_LAZY /* the same, but a power cut may take it until the next KJI_WRITE is committed */
};

typedef struct kji_rdb_driver {
    /* Runs a statement (enum kji_sql) with `n` parameters: KJ_TYPE_NONE is NULL. `fn` gets each
     * row. The number of rows that were changed, or < 0; KJ_EEXIST for a value that must be
     * unique. Statements do not nest in `fn`. */
    int (*run)(kji_rdb *db, int statement, const kj_value *params, size_t n, kji_row_fn fn,
               void *userdata, kj_error *err);
    /* The key of the row inserted last. */
    int64_t (*last_id)(kji_rdb *db);
    /* KJ_EBUSY after the busy timeout. */
    int (*begin)(kji_rdb *db, enum kji_begin how, kj_error *err);
    int (*commit)(kji_rdb *db, kj_error *err); /* on failure everything is rolled back */
    void (*rollback)(kji_rdb *db);
    /* A number that is another one whenever somebody else has committed. */
    int (*get_version)(kji_rdb *db, int64_t *ret_version, kj_error *err);
} kji_rdb_driver;

/* The first member of every relational storage's instance. */
struct kji_rdb {
    const kji_rdb_driver *driver;
    const char *place;     /* for messages: the file, the server; the driver's */
    int64_t n_transitions; /* trials that this storage has created, claimed or ended */
};

/* The tables in the order in which they are to be created; NULL ends it. */
extern const char *const kji_rdb_tables[];
extern const char *const kji_rdb_schema[];

/* For a database that has the tables alembic_version and version_info: 1 = it is of our revision,
 * 0 = it has no revision yet and may be stamped, KJ_EREVISION. */
int kji_rdb_check_revision(kji_rdb *db, bool has_alembic, bool has_version_info, kj_error *err);
/* Writes the version rows. */
int kji_rdb_stamp(kji_rdb *db, bool with_revision, kj_error *err);

/* The slots of kji_storage_ops. */
int kji_rdb_create_study(void *self, const char *name, int direction, int64_t *ret_id,
                         kj_error *err);
int kji_rdb_find_study(void *self, const char *name, kji_study_row *ret_row, kj_error *err);
int kji_rdb_list_studies(void *self, kji_name_fn fn, void *userdata, kj_error *err);
int kji_rdb_get_fact(void *self, int64_t study_id, const char *key, char **ret_json, kj_error *err);
int kji_rdb_set_fact(void *self, int64_t study_id, const char *key, const char *json,
                     kj_error *err);
int kji_rdb_add_fact(void *self, int64_t study_id, const char *key, const char *json,
                     char **ret_json, kj_error *err);
int kji_rdb_claim_trial(void *self, int64_t study_id, const kji_attribute *mark,
                        kji_trial **ret_trial, kj_error *err);
int kji_rdb_queue_trial(void *self, int64_t study_id, const kji_queued *queued, int64_t *ret_number,
                        kj_error *err);
int kji_rdb_change_trial(void *self, int64_t study_id, int64_t trial_id, const kji_changes *changes,
                         kj_error *err);
int kji_rdb_find_param(void *self, int64_t study_id, const char *name, kji_distribution **ret,
                       kj_error *err);
int kji_rdb_read_trial(void *self, int64_t study_id, int64_t number, kji_trial **ret_trial,
                       kj_error *err);
int kji_rdb_refresh(void *self, int64_t study_id, bool finished_only, kji_history *history,
                    kj_error *err);

/* Between rdb.c and rdb-read.c. */
kj_value kji_sql_int(int64_t value);
kj_value kji_sql_text(const char *text); /* borrowed */
kj_value kji_sql_double(double value);   /* NaN is NULL */
/* The one int of the first row: 1, or 0 when there is no row. */
int kji_rdb_get_int(kji_rdb *db, int statement, const kj_value *params, size_t n,
                    int64_t *ret_value, kj_error *err);
/* A trial in a transaction that is open already: 1, or 0. */
int kji_rdb_load_trial(kji_rdb *db, int statement, int64_t study_id, int64_t key,
                       kji_trial **ret_trial, kj_error *err);

#endif
