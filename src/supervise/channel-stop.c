/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first rung: `prune` over the channel for a trial that was cut, with what the rule saw, and
 * `stop` for others, and for runs whose library is older than prune. The client's calls block, so
 * they run on a thread of libuv's pool; the trial's grace timer runs meanwhile, so a run that does
 * not answer costs no more than a run that does not stop.
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
    char *prune_json; /* NULL: it was not cut */
    char *stop_json;
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

/* An own verb of this name is something else. */
static bool knows_prune(kj_client *client)
{
    char *answer = NULL;
    if (kj_client_call(client, "help", "{\"verb\": \"prune\"}", ANSWER_MS, &answer, NULL) < 0)
        return false;
    KJI_CLEANUP(kji_json_putp) struct json_object *help = NULL;
    struct json_object *verbs, *own;
    bool knows = kji_json_parse(answer, strlen(answer), &help, NULL) >= 0 &&
                 json_object_object_get_ex(help, "verbs", &verbs) &&
                 json_object_object_get_ex(json_object_array_get_idx(verbs, 0), "own", &own) &&
                 !json_object_get_boolean(own);
    kj_free(answer);
    return knows;
}

static void ask_in_pool(uv_work_t *work)
{
    ask *a = work->data;
    kj_client *client;
    a->result = open_run(a->run_id, &client, &a->err);
    if (a->result < 0)
        return;
    char *answer = NULL;
    const char *params = a->prune_json && knows_prune(client) ? a->prune_json : a->stop_json;
    a->result = kj_client_command(client, params, KJ_WAIT_ACCEPTED, ANSWER_MS, &answer, &a->err);
    kj_free(answer);
    kj_client_close(client);
}

static void free_ask(ask *a)
{
    if (!a)
        return;
    free(a->prune_json);
    free(a->stop_json);
    free(a);
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
    free_ask(a);
    kji_trial_run_closed(run);
}

static void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, json_object_new_string(text));
}

static struct json_object *cut_args(const kji_trial_run *run)
{
    struct json_object *args = json_object_new_object();
    if (run->cut_rule)
        add_text(args, "rule", run->cut_rule);
    json_object_object_add(args, "value", kji_json_new_double(run->cut_value));
    json_object_object_add(args, "threshold", kji_json_new_double(run->cut_threshold));
    return args;
}

static char *command_params(const kji_trial_run *run, const char *verb, struct json_object *args)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *params = json_object_new_object();
    add_text(params, "verb", verb);
    if (args)
        json_object_object_add(params, "args", args);
    add_text(params, "at", "now");
    add_text(params, "by", run->cut ? "pruner" : "worker");
    add_text(params, "reason", run->cut ? run->cut_reason : "the worker was interrupted");
    return kji_json_text(params);
}

static ask *new_ask(kji_trial_run *run)
{
    ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->stop_json = command_params(run, "stop", NULL);
    if (run->cut)
        a->prune_json = command_params(run, "prune", cut_args(run));
    if (!a->stop_json || (run->cut && !a->prune_json)) {
        free_ask(a);
        return NULL;
    }
    a->run = run;
    a->work.data = a;
    a->err = (kj_error)KJ_ERROR_INIT;
    memcpy(a->run_id, run->record.run_id, sizeof a->run_id);
    return a;
}

void kji_channel_stop(kji_trial_run *run)
{
    ask *a = new_ask(run);
    if (!a) {
        kji_trial_run_event(run, KJI_EVENT_CHANNEL_FAILED);
        return;
    }
    run->n_open++;
    if (uv_queue_work(&run->worker->loop, &a->work, ask_in_pool, on_answer) < 0) {
        run->n_open--;
        free_ask(a);
        kji_trial_run_event(run, KJI_EVENT_CHANNEL_FAILED);
    }
}
