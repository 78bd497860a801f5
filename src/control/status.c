/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"
#include "json.h"
#include "mask.h"
#include "recover.h"
#include "run-impl.h"
#include "utf8.h"

#include <unistd.h>

enum { SCHEDULED_SHOWN = 100 };

static void add_int(struct json_object *object, const char *key, int64_t value)
{
    json_object_object_add(object, key, json_object_new_int64(value));
}

/*
 * Seconds since the training was last seen at a safe point: never more than the truth. Between
 * visits the only sign of life is the step counter; where it has moved since the last look, the
 * training was there a moment ago. Asking arms the next safe point to tell when it was.
 */
static double idle_seconds(kj_run *run)
{
    int64_t now = kji_monotonic_ms();
    if (run->paused || kji_run_step(run) != run->moved_step) {
        run->moved_ms = now;
        run->moved_step = kji_run_step(run);
    }
    kji_run_pend(run, KJI_PENDING_LOOK);
    return (double)(now - run->moved_ms) / 1000;
}

static struct json_object *scheduled(const kj_run *run)
{
    struct json_object *list = json_object_new_array();
    const kji_command *command = run->queue;
    for (size_t n = 0; command && n < SCHEDULED_SHOWN; command = command->next, n++) {
        struct json_object *object = json_object_new_object();
        char at[KJI_AT_TEXT];
        add_int(object, "seq", command->seq);
        json_object_object_add(object, "verb", json_object_new_string(command->verb_name));
        json_object_object_add(object, "at", json_object_new_string(kji_at_text(&command->at, at)));
        json_object_object_add(object, "args", kji_mask_json(NULL, command->args));
        if (command->save)
            json_object_object_add(object, "save", json_object_new_boolean(true));
        json_object_array_add(list, object);
    }
    return list;
}

static struct json_object *param_values(const kj_run *run)
{
    struct json_object *values = json_object_new_object();
    for (size_t k = 0; k < run->params.n; k++)
        json_object_object_add(values, run->params.item[k]->name,
                               kji_param_shown(run->params.item[k]));
    return values;
}

struct json_object *kji_run_describe_checkpoint(const kj_run *run)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "path", kji_json_new_text(run->checkpoint.path, KJI_STRING_MAX));
    add_int(object, "step", run->checkpoint.step);
    add_int(object, "epoch", run->checkpoint.epoch);
    return object;
}

struct json_object *kji_run_status(kj_run *run)
{
    struct json_object *status = json_object_new_object();
    json_object_object_add(status, "id", json_object_new_string(run->id));
    json_object_object_add(status, "name", kji_json_new_text(run->name, KJI_STRING_MAX));
    add_int(status, "pid", getpid());
    add_int(status, "rank", run->ranks.rank);
    add_int(status, "world_size", run->ranks.world_size);
    json_object_object_add(status, "state", json_object_new_string(kji_run_state(run)));
    json_object_object_add(status, "phase", kji_json_new_text(run->phase, KJI_PHASE_MAX));
    add_int(status, "step", kji_run_step(run));
    add_int(status, "epoch", kji_run_epoch(run));
    add_int(status, "total_steps", run->total_steps);
    add_int(status, "total_epochs", run->total_epochs);
    json_object_object_add(status, "start_time", kji_json_new_double(run->start_time));
    json_object_object_add(status, "idle_s", kji_json_new_double(idle_seconds(run)));
    if (run->paused && run->hold.until_ms)
        json_object_object_add(status, "resumes_in_s",
                               kji_json_new_double((double)kji_run_hold_left_ms(run) / 1000));
    if (run->checkpoint.path)
        json_object_object_add(status, "checkpoint", kji_run_describe_checkpoint(run));
    json_object_object_add(status, "metrics", kji_metrics_describe(&run->metrics));
    json_object_object_add(status, "params", param_values(run));
    json_object_object_add(status, "scheduled", scheduled(run));
    kji_recover_describe(run, status);
    return status;
}

struct json_object *kji_run_describe_params(kj_run *run)
{
    struct json_object *list = json_object_new_array();
    for (size_t k = 0; k < run->params.n; k++)
        json_object_array_add(list, kji_param_describe(run->params.item[k]));
    struct json_object *result = json_object_new_object();
    json_object_object_add(result, "params", list);
    return result;
}
