/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every statement of the relational storages, X(name, text). Parameters are ?1, ?2, …; a driver
 * whose engine writes them otherwise translates. Columns are always named: databases that Optuna
 * upgraded have them in another order.
 */
#ifndef KJI_RDB_SQL_H
#define KJI_RDB_SQL_H

#define KJI_SQL_TRIAL \
    "SELECT trial_id, number, state, datetime_start, datetime_complete FROM trials "

#define KJI_SQL_MAP(X)                                                                            \
    X(FIND_STUDY,                                                                                 \
      "SELECT s.study_id, (SELECT d.direction FROM study_directions d WHERE d.study_id = "        \
      "s.study_id ORDER BY d.objective LIMIT 1), (SELECT COUNT(*) FROM study_directions d "       \
      "WHERE d.study_id = s.study_id) FROM studies s WHERE s.study_name = ?1")                    \
    X(LIST_STUDIES, "SELECT study_name FROM studies ORDER BY study_id")                           \
    X(HAS_STUDY, "SELECT 1 FROM studies WHERE study_id = ?1")                                     \
    X(ADD_STUDY, "INSERT INTO studies (study_name) VALUES (?1)")                                  \
    X(ADD_DIRECTION,                                                                              \
      "INSERT INTO study_directions (direction, study_id, objective) VALUES (?1, ?2, 0)")         \
    X(GET_FACT, "SELECT value_json FROM kajitori_facts WHERE study_id = ?1 AND \"key\" = ?2")     \
    X(SET_FACT, "INSERT INTO kajitori_facts (study_id, \"key\", value_json) VALUES (?1, ?2, ?3) " \
                "ON CONFLICT (study_id, \"key\") DO UPDATE SET value_json = excluded.value_json") \
    X(FIND_WAITING, "SELECT trial_id FROM trials WHERE study_id = ?1 AND state = 'WAITING' "      \
                    "ORDER BY number LIMIT 1")                                                    \
    X(CLAIM_TRIAL, "UPDATE trials SET state = 'RUNNING', datetime_start = ?2 "                    \
                   "WHERE trial_id = ?1 AND state = 'WAITING'")                                   \
    X(ADD_TRIAL, "INSERT INTO trials (study_id, state, datetime_start) VALUES (?1, ?2, ?3)")      \
    X(NUMBER_TRIAL,                                                                               \
      "UPDATE trials SET number = (SELECT COUNT(*) FROM trials t WHERE t.study_id = ?1 AND "      \
      "t.trial_id < ?2) WHERE trial_id = ?2")                                                     \
    X(GET_STATE, "SELECT number, state FROM trials WHERE trial_id = ?1 AND study_id = ?2")        \
    X(END_TRIAL, "UPDATE trials SET state = ?2, datetime_complete = ?3 "                          \
                 "WHERE trial_id = ?1 AND state = 'RUNNING'")                                     \
    X(FIND_PARAM, "SELECT p.distribution_json FROM trials t JOIN trial_params p ON p.trial_id = " \
                  "t.trial_id WHERE t.study_id = ?1 AND p.param_name = ?2 LIMIT 1")               \
    X(ADD_PARAM,                                                                                  \
      "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "          \
      "VALUES (?1, ?2, ?3, ?4) ON CONFLICT (trial_id, param_name) DO NOTHING")                    \
    X(ADD_REPORT, "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "   \
                  "intermediate_value_type) VALUES (?1, ?2, ?3, ?4) "                             \
                  "ON CONFLICT (trial_id, step) DO NOTHING")                                      \
    X(SET_VALUE,                                                                                  \
      "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?1, 0, ?2, "     \
      "?3) ON CONFLICT (trial_id, objective) DO UPDATE SET value = excluded.value, "              \
      "value_type = excluded.value_type")                                                         \
    X(SET_USER,                                                                                   \
      "INSERT INTO trial_user_attributes (trial_id, \"key\", value_json) VALUES (?1, ?2, ?3) "    \
      "ON CONFLICT (trial_id, \"key\") DO UPDATE SET value_json = excluded.value_json")           \
    X(SET_SYSTEM,                                                                                 \
      "INSERT INTO trial_system_attributes (trial_id, \"key\", value_json) VALUES (?1, ?2, "      \
      "?3) ON CONFLICT (trial_id, \"key\") DO UPDATE SET value_json = excluded.value_json")       \
    X(ADD_DECISION,                                                                               \
      "INSERT INTO kajitori_decisions (trial_id, step, rule, prune, value, threshold, peers, "    \
      "reason, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "                                \
      "ON CONFLICT (trial_id, step, rule) DO NOTHING")                                            \
    X(NEW_TRIALS, KJI_SQL_TRIAL "WHERE study_id = ?1 AND trial_id > ?2 ORDER BY trial_id")        \
    X(TRIAL_BY_ID, KJI_SQL_TRIAL "WHERE study_id = ?1 AND trial_id = ?2")                         \
    X(TRIAL_BY_NUMBER, KJI_SQL_TRIAL "WHERE study_id = ?1 AND number = ?2")                       \
    X(GET_PARAMS, "SELECT param_name, param_value, distribution_json FROM trial_params "          \
                  "WHERE trial_id = ?1 ORDER BY param_id")                                        \
    X(GET_VALUES, "SELECT objective, value, value_type FROM trial_values WHERE trial_id = ?1 "    \
                  "ORDER BY objective")                                                           \
    X(GET_REPORTS, "SELECT step, intermediate_value, intermediate_value_type FROM "               \
                   "trial_intermediate_values WHERE trial_id = ?1 ORDER BY step")                 \
    X(GET_USER, "SELECT \"key\", value_json FROM trial_user_attributes WHERE trial_id = ?1 "      \
                "ORDER BY trial_user_attribute_id")                                               \
    X(GET_SYSTEM, "SELECT \"key\", value_json FROM trial_system_attributes WHERE trial_id = ?1 "  \
                  "ORDER BY trial_system_attribute_id")                                           \
    X(GET_CUT, "SELECT rule, reason, step, value, threshold, peers FROM kajitori_decisions "      \
               "WHERE trial_id = ?1 AND prune = 1 ORDER BY decision_id DESC LIMIT 1")             \
    X(GET_REVISIONS, "SELECT version_num FROM alembic_version")                                   \
    X(GET_SCHEMA_VERSION, "SELECT schema_version FROM version_info")                              \
    X(ADD_REVISION, "INSERT INTO alembic_version (version_num) VALUES (?1)")                      \
    X(ADD_VERSION_INFO,                                                                           \
      "INSERT INTO version_info (version_info_id, schema_version, library_version) "              \
      "SELECT 1, 12, ?1 WHERE NOT EXISTS (SELECT 1 FROM version_info)")

enum kji_sql {
#define KJI_SQL_ENUM(name, text) KJI_SQL_##name,
    KJI_SQL_MAP(KJI_SQL_ENUM)
#undef KJI_SQL_ENUM
        KJI_SQL_COUNT
};

#endif
