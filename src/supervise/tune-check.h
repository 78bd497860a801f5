/* SPDX-License-Identifier: Apache-2.0 */
/* What kj_tune_open checks before anything is written or started. */
#ifndef KJI_TUNE_CHECK_H
#define KJI_TUNE_CHECK_H

#include "worker.h"

/* Fills a zeroed config (fds -1) from options; on failure the caller frees what is there. */
int kji_tune_config_init(kji_tune_config *config, const kj_tune_options *options, kj_error *err);
void kji_tune_config_done(kji_tune_config *config);

/* "train" for `python3 -u dir/train.py --lr {lr}`; for free. NULL when memory is gone. */
char *kji_tune_default_study(const char *const *command, uint64_t n_command);

/* {"lr": "1e-05..0.1:log", …}; for free. */
char *kji_tune_space_json(const kji_tune_config *config);

/* Compares with what the study was made with: KJ_ESTATE names the parameter, old and new. */
int kji_tune_compare_space(const kji_tune_config *config, const char *stored_json, kj_error *err);

#endif
