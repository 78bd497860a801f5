/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker before us left behind. A RUNNING trial that was claimed for this folder is ours:
 * its shim lives (it is followed on), or it has ended (it is finished from what is on disk), or
 * nobody knows (it is lost, also when the worker died before it could make the trial's folder). All
 * are the same trial-run whose first look at the lock decides. Any other belongs to another host or
 * to an Optuna process.
 */
#include "worker.h"

#include "errors.h"
#include "json.h"
#include "mem.h"

#include <string.h>

static bool was_claimed_here(const kji_worker *worker, const kj_trial_info *info)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    if (!info->attributes_json ||
        kji_json_parse(info->attributes_json, strlen(info->attributes_json), &json, NULL) < 0)
        return false;
    const char *id = kji_json_string(json, "kajitori:folder");
    return id && strcmp(id, worker->config->folder_id) == 0;
}

static int adopt_one(kji_worker *worker, const kj_trial_info *info, int dir_fd, kj_error *err)
{
    kj_trial *trial;
    int r = kj_study_get_trial(worker->study, info->number, &trial, err);
    if (r < 0) {
        kji_closep(&dir_fd);
        return r;
    }
    return kji_trial_run_adopt(worker, trial, info, dir_fd, err);
}

static int adopt_all(kji_worker *worker, const kj_trial_list *list, uint64_t *ret_n_foreign,
                     kj_error *err)
{
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        const kj_trial_info *info = kj_trial_list_get(list, k);
        if (info->state != KJ_TRIAL_RUNNING)
            continue;
        int dir_fd = -1;
        kj_error failure = KJ_ERROR_INIT;
        int r = kji_trial_dir_open(worker->config->trials_fd, info->number, &dir_fd, &failure);
        if (r == KJ_ENOENT && !was_claimed_here(worker, info)) {
            ++*ret_n_foreign;
            continue;
        }
        if (r < 0 && r != KJ_ENOENT)
            return kji_forward(err, &failure);
        r = adopt_one(worker, info, dir_fd, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int kji_adopt(kji_worker *worker, kj_error *err)
{
    kj_trial_list *list;
    int r = kj_study_list_trials(worker->study, &list, err);
    if (r < 0)
        return r;
    uint64_t n_foreign = 0;
    r = adopt_all(worker, list, &n_foreign, err);
    kj_trial_list_free(list);
    if (r >= 0 && n_foreign)
        kji_worker_warn(worker, -1,
                        "%llu running trials were not started for %s; they belong to another host "
                        "or program and are left alone",
                        (unsigned long long)n_foreign, worker->config->trials_dir);
    return r;
}
