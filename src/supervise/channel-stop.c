/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first rung: `stop` over the channel. The client's calls block, so they run on a thread of
 * libuv's pool; the trial's grace timer runs meanwhile, so a run that does not answer costs no more
 * than a run that does not stop.
 */
#include "worker.h"

#include "errors.h"
#include "json.h"
#include "mem.h"

#include <kajitori/client.h>

#include <string.h>

enum { ANSWER_MS = 2000 };

typedef struct ask {
    uv_work_t work;
    kji_trial_run *run; /* for the loop only */
    char run_id[65];
    char *params_json;
    int result;
    kj_error err;
} ask;

static int open_run(const char *run_id, kj_client **ret_client, kj_error *err)
{
    kj_run_list *list;
    int r = kj_run_list_load(NULL, &list, err);
    if (r < 0)
        return r;
    r = kji_fail(err, KJ_ENORUN, "run %s is not there", run_id);
    for (uint64_t k = 0; k < kj_run_list_size(list); k++) {
        const kj_run_info *info = kj_run_list_get(list, k);
        if (strcmp(info->id, run_id) == 0)
            r = kj_client_open(info->dir, ret_client, err);
    }
    kj_run_list_free(list);
    return r;
}

static void ask_in_pool(uv_work_t *work)
{
    ask *a = work->data;
    kj_client *client;
    a->result = open_run(a->run_id, &client, &a->err);
    if (a->result < 0)
        return;
    char *answer = NULL;
    a->result =
        kj_client_command(client, a->params_json, KJ_WAIT_ACCEPTED, ANSWER_MS, &answer, &a->err);
    kj_free(answer);
    kj_client_close(client);
}

static void on_answer(uv_work_t *work, int status)
{
    ask *a = work->data;
    kji_trial_run *run = a->run;
    if (!run->released && status == 0) {
        if (a->result >= 0 && run->stage == KJI_STAGE_ASKING)
            kji_worker_emit(run->worker, KJ_TUNE_STOPPING, run->number, "channel");
        else if (a->result < 0)
            kji_trial_run_event(run, KJI_EVENT_CHANNEL_FAILED);
    }
    free(a->params_json);
    free(a);
    kji_trial_run_closed(run);
}

static char *stop_params(const kji_trial_run *run)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *params = json_object_new_object();
    json_object_object_add(params, "verb", json_object_new_string("stop"));
    json_object_object_add(params, "at", json_object_new_string("now"));
    json_object_object_add(params, "by", json_object_new_string(run->cut ? "pruner" : "worker"));
    json_object_object_add(
        params, "reason",
        json_object_new_string(run->cut ? run->cut_reason : "the worker was interrupted"));
    return kji_json_text(params);
}

void kji_channel_stop(kji_trial_run *run)
{
    ask *a = calloc(1, sizeof *a);
    if (!a || !(a->params_json = stop_params(run))) {
        free(a);
        kji_trial_run_event(run, KJI_EVENT_CHANNEL_FAILED);
        return;
    }
    a->run = run;
    a->work.data = a;
    a->err = (kj_error)KJ_ERROR_INIT;
    memcpy(a->run_id, run->record.run_id, sizeof a->run_id);
    run->n_open++;
    if (uv_queue_work(&run->worker->loop, &a->work, ask_in_pool, on_answer) < 0) {
        run->n_open--;
        free(a->params_json);
        free(a);
        kji_trial_run_event(run, KJI_EVENT_CHANNEL_FAILED);
    }
}
