/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of all trials of one study on this host (docs/tune.md):
 *
 *     worker.lock  locked (flock) by the one worker that uses the folder
 *     study.json   which study it belongs to, and its own id
 */
#ifndef KJI_TRIALS_FOLDER_H
#define KJI_TRIALS_FOLDER_H

#include "worker.h"

/* Sixteen hexadecimal digits and a NUL. */
int kji_make_id(char id[KJI_ID_TEXT], kj_error *err);

/* Opens it, makes it when it is missing, and locks it: KJ_EBUSY when another worker has. */
int kji_trials_folder_lock(kji_tune_config *config, kj_error *err);

/* For a study that is still to be created: KJ_EEXIST when the folder belongs to one. */
int kji_trials_folder_check_new(kji_tune_config *config, kj_error *err);

/* From now on it belongs to this study; KJ_EEXIST when it belongs to another. Fills folder_id. */
int kji_trials_folder_join(kji_tune_config *config, const char *study_id, kj_error *err);

#endif
