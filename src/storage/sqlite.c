/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite as an engine of the relational storages. Write transactions begin with BEGIN IMMEDIATE, so
 * that nothing is decided on rows that another process is changing.
 *
 * A file that we create gets the write-ahead log on a local file system and keeps the rollback
 * journal on a network one, where shared memory does not reach. The mode of a file that exists is
 * never changed: others have chosen it. Commits are flushed to the disk; with the write-ahead log
 * those of KJI_WRITE_LAZY are not, which is 20 to 60 times as fast, and go with the next flush.
 */
#include "rdb.h"

#include "errors.h"
#include "files.h"
#include "number.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { BUSY_TIMEOUT_MS = 10000, MAX_COLUMNS = 8 };

typedef struct sqlite_storage {
    kji_rdb rdb; /* first: the slots of rdb.c cast to it */
    sqlite3 *db;
    char *path;
    int busy_ms;
    bool wal;
    bool lazy;                               /* commits are not flushed (only with wal) */
    sqlite3_stmt *statements[KJI_SQL_COUNT]; /* prepared at first use */
} sqlite_storage;

static const char *const texts[] = {
#define KJI_SQL_TEXT(name, text) text,
    KJI_SQL_MAP(KJI_SQL_TEXT)
#undef KJI_SQL_TEXT
};

static int map_code(int code)
{
    if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY)
        return KJ_EEXIST;
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return KJ_EBUSY;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return KJ_EPERM;
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
        return KJ_EIO;
    case SQLITE_NOMEM:
        return KJ_EMEM;
    default:
        return KJ_EDATABASE;
    }
}

static int fail(sqlite_storage *s, kj_error *err)
{
    int native = s->db ? sqlite3_extended_errcode(s->db) : SQLITE_NOMEM;
    int code = map_code(native);
    switch (code) {
    case KJ_EBUSY:
        return kji_fail_native(err, code, "sqlite", native,
                               "%s is locked by another process, for more than %d ms", s->path,
                               s->busy_ms);
    case KJ_EPERM:
        return kji_fail_native(err, code, "sqlite", native, "%s (or its folder) is read-only",
                               s->path);
    default:
        if ((native & 0xff) == SQLITE_NOTADB)
            return kji_fail_native(err, code, "sqlite", native, "%s is not an SQLite database",
                                   s->path);
        return kji_fail_native(err, code, "sqlite", native, "%s: %s", s->path,
                               s->db ? sqlite3_errmsg(s->db) : "out of memory");
    }
}

static sqlite_storage *storage_of(kji_rdb *rdb)
{
    return (sqlite_storage *)rdb;
}

static int bind(sqlite3_stmt *statement, int at, const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_INT:
        return sqlite3_bind_int64(statement, at, value->i);
    case KJ_TYPE_FLOAT:
        return sqlite3_bind_double(statement, at, value->f);
    case KJ_TYPE_STRING:
        return sqlite3_bind_text(statement, at, value->s, -1, SQLITE_STATIC);
    default:
        return sqlite3_bind_null(statement, at);
    }
}

static kj_value column(sqlite3_stmt *statement, int at)
{
    switch (sqlite3_column_type(statement, at)) {
    case SQLITE_INTEGER:
        return kji_sql_int(sqlite3_column_int64(statement, at));
    case SQLITE_FLOAT:
        return kji_sql_double(sqlite3_column_double(statement, at));
    case SQLITE_NULL:
        return (kj_value){.type = KJ_TYPE_NONE};
    default: /* text, and blobs as text */
        return kji_sql_text((const char *)sqlite3_column_text(statement, at));
    }
}

static int step_through(sqlite_storage *s, sqlite3_stmt *statement, kji_row_fn fn, void *userdata,
                        kj_error *err)
{
    for (;;) {
        int r = sqlite3_step(statement);
        if (r == SQLITE_DONE)
            return sqlite3_changes(s->db);
        if (r != SQLITE_ROW)
            return fail(s, err);
        kj_value row[MAX_COLUMNS];
        int n = sqlite3_column_count(statement);
        for (int k = 0; k < n && k < MAX_COLUMNS; k++) {
            row[k] = column(statement, k);
            if (row[k].type == KJ_TYPE_STRING && !row[k].s)
                return kji_fail_memory(err);
        }
        r = fn ? fn(userdata, row, err) : 0;
        if (r != 0)
            return r < 0 ? r : 0;
    }
}

static int sqlite_run(kji_rdb *rdb, int which, const kj_value *params, size_t n, kji_row_fn fn,
                      void *userdata, kj_error *err)
{
    sqlite_storage *s = storage_of(rdb);
    sqlite3_stmt **statement = &s->statements[which];
    if (!*statement && sqlite3_prepare_v3(s->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT,
                                          statement, NULL) != SQLITE_OK)
        return fail(s, err);
    for (size_t k = 0; k < n; k++)
        if (bind(*statement, (int)k + 1, &params[k]) != SQLITE_OK)
            return fail(s, err);
    int r = step_through(s, *statement, fn, userdata, err);
    sqlite3_reset(*statement);
    sqlite3_clear_bindings(*statement);
    return r;
}

static int64_t sqlite_last_id(kji_rdb *rdb)
{
    return sqlite3_last_insert_rowid(storage_of(rdb)->db);
}

static int execute(sqlite_storage *s, const char *sql, kj_error *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, err);
}

static int set_lazy(sqlite_storage *s, bool lazy, kj_error *err)
{
    int r = execute(s, lazy ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL", err);
    if (r >= 0)
        s->lazy = lazy;
    return r;
}

/* SQLite goes on with a deleted file as if nothing were, and what it stores is lost. */
static int check_not_moved(sqlite_storage *s, kj_error *err)
{
    int moved = 0;
    if (sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved)
        return kji_fail(err, KJ_EDATABASE, "%s was deleted, moved or replaced while it was in use",
                        s->path);
    return 0;
}

static int sqlite_begin(kji_rdb *rdb, enum kji_begin how, kj_error *err)
{
    sqlite_storage *s = storage_of(rdb);
    bool lazy = how == KJI_WRITE_LAZY && s->wal;
    int r = check_not_moved(s, err);
    if (r >= 0 && how != KJI_READ && lazy != s->lazy)
        r = set_lazy(s, lazy, err);
    return r < 0 ? r : execute(s, how == KJI_READ ? "BEGIN" : "BEGIN IMMEDIATE", err);
}

static void sqlite_rollback(kji_rdb *rdb)
{
    sqlite_storage *s = storage_of(rdb);
    if (!sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

static int sqlite_commit(kji_rdb *rdb, kj_error *err)
{
    int r = execute(storage_of(rdb), "COMMIT", err);
    if (r < 0)
        sqlite_rollback(rdb);
    return r;
}

static int first_int(void *userdata, int n, char **columns, char **names)
{
    (void)names;
    if (n > 0 && columns[0])
        kji_parse_int64(columns[0], strlen(columns[0]), userdata);
    return 0;
}

static int sqlite_get_version(kji_rdb *rdb, int64_t *ret_version, kj_error *err)
{
    sqlite_storage *s = storage_of(rdb);
    *ret_version = -1;
    return sqlite3_exec(s->db, "PRAGMA data_version", first_int, ret_version, NULL) == SQLITE_OK
               ? 0
               : fail(s, err);
}

static const kji_rdb_driver driver = {
    .run = sqlite_run,
    .last_id = sqlite_last_id,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .get_version = sqlite_get_version,
};

/* "///PATH" or "///PATH?timeout=SECONDS" */
static int parse_where(sqlite_storage *s, const char *where, kj_error *err)
{
    const char *path = where + 3, *query;
    if (strncmp(where, "///", 3) != 0 || *path == 0 || *path == '?')
        return kji_fail(err, KJ_EARG, "\"sqlite:%s\" names no file: it must be sqlite:///PATH",
                        where);
    query = strchr(path, '?');
    s->busy_ms = BUSY_TIMEOUT_MS;
    if (query) {
        static const char key[] = "?timeout=";
        const char *text = query + sizeof key - 1;
        double seconds;
        if (strncmp(query, key, sizeof key - 1) != 0 ||
            !kji_parse_double(text, strlen(text), &seconds) || !(seconds >= 0 && seconds <= 86400))
            return kji_fail(err, KJ_EARG,
                            "\"%s\" behind the file is not understood: only ?timeout=SECONDS is",
                            query);
        s->busy_ms = (int)(seconds * 1000);
    }
    s->path = strndup(path, query ? (size_t)(query - path) : strlen(path));
    return s->path ? 0 : kji_fail_memory(err);
}

static int open_file(sqlite_storage *s, kj_error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(s->path, &s->db, flags, NULL) != SQLITE_OK) {
        if (s->db && (sqlite3_errcode(s->db) & 0xff) == SQLITE_CANTOPEN)
            return kji_fail_native(err, KJ_EIO, "sqlite", sqlite3_extended_errcode(s->db),
                                   "%s cannot be opened or created: does its folder exist, and "
                                   "may you write there?",
                                   s->path);
        return fail(s, err);
    }
    sqlite3_busy_timeout(s->db, s->busy_ms);
    if (sqlite3_db_readonly(s->db, "main") == 1)
        return kji_fail(err, KJ_EPERM, "%s is read-only", s->path);
    return 0;
}

typedef struct inventory {
    unsigned found; /* bit k: kji_rdb_tables[k] is there */
    unsigned all;
    int n_tables; /* whatever they are */
} inventory;

static int take_table(void *userdata, int n, char **columns, char **names)
{
    (void)n, (void)names;
    inventory *i = userdata;
    i->n_tables++;
    for (int k = 0; kji_rdb_tables[k] && columns[0]; k++)
        if (strcmp(columns[0], kji_rdb_tables[k]) == 0)
            i->found |= 1u << k;
    return 0;
}

static int take_inventory(sqlite_storage *s, inventory *ret, kj_error *err)
{
    *ret = (inventory){0};
    for (int k = 0; kji_rdb_tables[k]; k++)
        ret->all |= 1u << k;
    return sqlite3_exec(s->db, "SELECT name FROM sqlite_master WHERE type = 'table'", take_table,
                        ret, NULL) == SQLITE_OK
               ? 0
               : fail(s, err);
}

static bool has_table(const inventory *i, const char *name)
{
    for (int k = 0; kji_rdb_tables[k]; k++)
        if (strcmp(kji_rdb_tables[k], name) == 0)
            return i->found & (1u << k);
    return false;
}

/* 1 = everything is there, 0 = something is to be written, < 0 = not ours. */
static int check_schema(sqlite_storage *s, int *ret_revision, kj_error *err)
{
    inventory i;
    int r = take_inventory(s, &i, err);
    if (r < 0)
        return r;
    bool has_alembic = has_table(&i, "alembic_version");
    bool has_info = has_table(&i, "version_info");
    if (has_table(&i, "studies") && !has_alembic && !has_info)
        return kji_fail(err, KJ_EREVISION, "%s has a table \"studies\" that is not Optuna's",
                        s->path);
    *ret_revision = kji_rdb_check_revision(&s->rdb, has_alembic, has_info, err);
    if (*ret_revision < 0)
        return *ret_revision;
    int64_t version;
    r = has_info ? kji_rdb_get_int(&s->rdb, KJI_SQL_GET_SCHEMA_VERSION, NULL, 0, &version, err) : 0;
    return r < 0 ? r : r == 1 && *ret_revision == 1 && i.found == i.all;
}

static int write_schema(sqlite_storage *s, kj_error *err)
{
    /* Looked at again under the write lock: another process may have been faster. */
    int revision;
    int r = check_schema(s, &revision, err);
    for (int k = 0; r == 0 && kji_rdb_schema[k]; k++)
        r = execute(s, kji_rdb_schema[k], err);
    return r == 0 ? kji_rdb_stamp(&s->rdb, revision == 0, err) : r;
}

static int choose_journal(sqlite_storage *s, kj_error *err)
{
    inventory i;
    int r = take_inventory(s, &i, err);
    if (r < 0)
        return r;
    if (i.n_tables == 0 && !kji_is_network_path(s->path)) {
        /* Of several processes that create the file at once one does this, the others may be
         * told that it is busy: they find it done. */
        r = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (r != SQLITE_OK && r != SQLITE_BUSY)
            return fail(s, err);
    }
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(s->db, "PRAGMA journal_mode", -1, &statement, NULL) != SQLITE_OK)
        return fail(s, err);
    r = sqlite3_step(statement) == SQLITE_ROW ? 0 : fail(s, err);
    const unsigned char *mode = r < 0 ? NULL : sqlite3_column_text(statement, 0);
    s->wal = mode && strcmp((const char *)mode, "wal") == 0;
    sqlite3_finalize(statement);
    return r < 0 ? r : set_lazy(s, false, err);
}

static int sqlite_open(void *self, const char *where, kj_error *err)
{
    sqlite_storage *s = self;
    s->rdb.driver = &driver;
    int r = parse_where(s, where, err);
    if (r < 0)
        return r;
    s->rdb.place = s->path;
    int revision;
    r = open_file(s, err);
    if (r >= 0)
        r = choose_journal(s, err);
    if (r >= 0)
        r = check_schema(s, &revision, err);
    if (r != 0)
        return r < 0 ? r : 0;
    r = sqlite_begin(&s->rdb, KJI_WRITE, err);
    if (r < 0)
        return r;
    r = write_schema(s, err);
    if (r >= 0)
        return sqlite_commit(&s->rdb, err);
    sqlite_rollback(&s->rdb);
    return r;
}

static void sqlite_close(void *self)
{
    sqlite_storage *s = self;
    for (int k = 0; k < KJI_SQL_COUNT; k++)
        sqlite3_finalize(s->statements[k]);
    sqlite3_close(s->db);
    free(s->path);
}

const kji_storage_ops kji_storage_sqlite = {
    .size = sizeof(kji_storage_ops),
    .scheme = "sqlite",
    .help = "sqlite:///PATH",
    .instance_size = sizeof(sqlite_storage),
    .open = sqlite_open,
    .close = sqlite_close,
    .create_study = kji_rdb_create_study,
    .find_study = kji_rdb_find_study,
    .list_studies = kji_rdb_list_studies,
    .get_fact = kji_rdb_get_fact,
    .set_fact = kji_rdb_set_fact,
    .add_fact = kji_rdb_add_fact,
    .claim_trial = kji_rdb_claim_trial,
    .queue_trial = kji_rdb_queue_trial,
    .change_trial = kji_rdb_change_trial,
    .find_param = kji_rdb_find_param,
    .read_trial = kji_rdb_read_trial,
    .refresh = kji_rdb_refresh,
};
