/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"
#include "questions.h"
#include "records.h"

#include <stdlib.h>
#include <string.h>

static void put_line(const char *name, const char *text)
{
    printf("%-11s %s\n", name, text);
}

static void put_member(struct json_object *status, const char *key, const char *name)
{
    struct json_object *member = json_object_object_get(status, key);
    if (!member)
        return;
    char *text = cli_cell_text(member);
    if (*text)
        put_line(name, text);
    free(text);
}

/* "1201 of 5000"; nothing counted yet is "-". */
static void put_progress(struct json_object *status, const char *key, const char *total_key)
{
    char text[80] = "-";
    int64_t at = json_object_get_int64(json_object_object_get(status, key));
    int64_t total = json_object_get_int64(json_object_object_get(status, total_key));
    int n = at >= 0 ? snprintf(text, sizeof text, "%lld", (long long)at) : 1;
    if (total > 0)
        snprintf(text + n, sizeof text - (size_t)n, " of %lld", (long long)total);
    put_line(key, text);
}

static void put_started(struct json_object *status)
{
    char text[32];
    struct json_object *start = json_object_object_get(status, "start_time");
    if (start)
        put_line("started", cli_time_text(json_object_get_double(start), text));
}

static void put_metric(struct json_object *metric)
{
    char *tag = cli_cell_text(json_object_object_get(metric, "tag"));
    char *value = cli_cell_text(json_object_object_get(metric, "value"));
    char *step = cli_cell_text(json_object_object_get(metric, "step"));
    printf("  %s = %s (step %s)\n", tag, value, step);
    free(tag);
    free(value);
    free(step);
}

static void put_list(struct json_object *status, const char *key,
                     void (*put_item)(struct json_object *item))
{
    struct json_object *list = json_object_object_get(status, key);
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return;
    printf("%s\n", key);
    for (size_t k = 0; k < json_object_array_length(list); k++)
        put_item(json_object_array_get_idx(list, k));
}

static void put_params(struct json_object *status)
{
    struct json_object *params = json_object_object_get(status, "params");
    if (!json_object_is_type(params, json_type_object) || json_object_object_length(params) == 0)
        return;
    puts("params");
    json_object_object_foreach(params, key, value)
    {
        struct json_object *name = json_object_new_string(key);
        char *name_text = cli_cell_text(name), *text = cli_cell_text(value);
        printf("  %s = %s\n", name_text, text);
        json_object_put(name);
        free(name_text);
        free(text);
    }
}

/* "0 of 4", of several. */
static void put_rank(struct json_object *status)
{
    int64_t world_size = json_object_get_int64(json_object_object_get(status, "world_size"));
    if (world_size > 1)
        printf("%-11s %lld of %lld\n", "rank",
               (long long)json_object_get_int64(json_object_object_get(status, "rank")),
               (long long)world_size);
}

/* "/data/7.npz (step 7)" */
static void put_checkpoint(struct json_object *status)
{
    struct json_object *checkpoint = json_object_object_get(status, "checkpoint");
    if (!json_object_is_type(checkpoint, json_type_object))
        return;
    char *path = cli_cell_text(json_object_object_get(checkpoint, "path"));
    char *step = cli_cell_text(json_object_object_get(checkpoint, "step"));
    printf("%-11s %s (step %s)\n", "checkpoint", path, step);
    free(path);
    free(step);
}

static void print_status_table(struct json_object *status)
{
    put_member(status, "id", "run");
    put_member(status, "name", "name");
    put_member(status, "pid", "pid");
    put_rank(status);
    put_started(status);
    put_member(status, "state", "state");
    put_member(status, "resumes_in_s", "resumes (s)");
    put_member(status, "phase", "phase");
    put_progress(status, "step", "total_steps");
    put_progress(status, "epoch", "total_epochs");
    put_member(status, "idle_s", "idle (s)");
    put_checkpoint(status);
    put_list(status, "metrics", put_metric);
    put_params(status);
    put_list(status, "scheduled", cli_print_waiting);
    put_list(status, "recoverable", cli_print_waiting);
}

/* ", step 1201 of 5000"; nothing when it is not counted. */
static void put_counter(struct json_object *status, const char *key, const char *total_key)
{
    struct json_object *at = json_object_object_get(status, key);
    int64_t total = json_object_get_int64(json_object_object_get(status, total_key));
    if (!at || json_object_get_int64(at) < 0)
        return;
    printf(", %s %lld", key, (long long)json_object_get_int64(at));
    if (total > 0)
        printf(" of %lld", (long long)total);
}

static void put_assignment(const char *before, const char *name, struct json_object *value)
{
    char *name_text = cli_clean(name, strlen(name)), *text = cli_cell_text(value);
    printf("%s%s=%s", before, name_text, text);
    free(name_text);
    free(text);
}

static void put_newest(struct json_object *status)
{
    struct json_object *metrics = json_object_object_get(status, "metrics");
    struct json_object *params = json_object_object_get(status, "params");
    size_t n =
        json_object_is_type(metrics, json_type_array) ? json_object_array_length(metrics) : 0;
    for (size_t k = 0; k < n; k++) {
        struct json_object *metric = json_object_array_get_idx(metrics, k);
        const char *tag = json_object_get_string(json_object_object_get(metric, "tag"));
        put_assignment(k ? " " : ", ", tag ? tag : "?", json_object_object_get(metric, "value"));
    }
    if (!json_object_is_type(params, json_type_object))
        return;
    const char *before = ", ";
    json_object_object_foreach(params, key, value)
    {
        put_assignment(before, key, value);
        before = " ";
    }
}

/* "digits-1: running, step 1201 of 5000, epoch 3 of 20, loss=0.1, lr=0.001" */
static void print_status_line(const char *id, struct json_object *status)
{
    char *state = cli_cell_text(json_object_object_get(status, "state"));
    printf("%s: %s", id, state);
    put_counter(status, "step", "total_steps");
    put_counter(status, "epoch", "total_epochs");
    put_newest(status);
    putchar('\n');
    free(state);
}

static bool is_status(const cli_answer *answer)
{
    if (json_object_is_type(answer->result, json_type_object))
        return true;
    if (answer->result)
        cli_error("the run's answer is not a status: %s",
                  json_object_to_json_string(answer->result));
    return false;
}

static int print_group(const cli_answers *answers)
{
    struct json_object *list = json_object_new_array();
    int status = answers->worst;
    for (size_t k = 0; k < answers->n; k++) {
        const cli_answer *answer = &answers->item[k];
        if (!is_status(answer))
            status = status > CLI_FAILED ? status : CLI_FAILED;
        else if (cli.format == CLI_TABLE)
            print_status_line(answer->id, answer->result);
        else
            json_object_array_add(list, json_object_get(answer->result));
    }
    if (cli.format != CLI_TABLE)
        cli_print_objects(list);
    json_object_put(list);
    return status;
}

static int print_single(const cli_answer *answer)
{
    if (!is_status(answer))
        return CLI_FAILED;
    if (cli.format == CLI_TABLE)
        print_status_table(answer->result);
    else
        cli_print_object(answer->result);
    return CLI_DONE;
}

static int run_status(int n_words, const char *const *words)
{
    cli_answers answers;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    int status = cli_ask(run, "status", NULL, &answers);
    if (status != CLI_DONE)
        return status;
    status = answers.is_group ? print_group(&answers) : print_single(&answers.item[0]);
    cli_answers_done(&answers);
    return status;
}

static const cli_example examples[] = {
    {"kajitori status", "of the only live run"},
    {"kajitori status digits --format json", "as the protocol's JSON object"},
    {"kajitori status --match 'lr>0.1'", "one line for each run whose lr is greater"},
    {NULL, NULL},
};

const cli_command cli_status = {
    .name = "status",
    .usage = "[RUN] [OPTIONS]",
    .summary = "show where a run is",
    .description =
        "State, step, epoch, phase, newest metrics, parameters, and what is scheduled. The run "
        "answers at once, also while a step or an evaluation takes long; 'idle' is the time since "
        "the training last passed a safe point.",
    .formats = CLI_TABLE | CLI_JSON | CLI_CSV | CLI_YAML,
    .flags = CLI_TAKES_RUN | CLI_TAKES_RUNTIME | CLI_TAKES_GROUP,
    .examples = examples,
    .see_also = "ps watch get",
    .run = run_status,
};
