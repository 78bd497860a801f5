/* SPDX-License-Identifier: Apache-2.0 */
#include "questions.h"

#include "asking.h"
#include "group.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int call(kj_client *client, const char *method, const char *params, int timeout_ms,
                cli_answer *answer, kj_error *err)
{
    char *json;
    double begin = monotonic_us();
    int r = kj_client_call(client, method, params, timeout_ms, &json, err);
    answer->micros = monotonic_us() - begin;
    if (r < 0)
        return r;
    answer->result = json_tokener_parse(json);
    kj_free(json);
    return 0;
}

static int ask_run(const char *run, const char *method, const char *params, cli_answers *answers)
{
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    int status = cli_open_run(run, CLI_ANSWER_MS, &client, &answers->item[0].id);
    if (status != CLI_DONE)
        return status;
    answers->n = 1;
    if (call(client, method, params, CLI_ANSWER_MS, &answers->item[0], &err) < 0)
        status = cli_fail(&err);
    kj_client_close(client);
    return status;
}

typedef struct survey {
    const cli_group *group;
    const char *method;
    const char *params;
    cli_answer *answers;
    kj_error *errors;
} survey;

static void ask_one(void *userdata, size_t k)
{
    survey *all = userdata;
    const kj_run_info *info = all->group->runs[k].info;
    kj_client *client;
    all->errors[k] = (kj_error)KJ_ERROR_INIT;
    all->answers[k].id = strdup(info->id);
    if (kj_client_open_within(info->dir, CLI_MANY_ANSWER_MS, &client, &all->errors[k]) < 0)
        return;
    cli_compare_versions(client, info->id);
    call(client, all->method, all->params, CLI_MANY_ANSWER_MS, &all->answers[k], &all->errors[k]);
    kj_client_close(client);
}

static int ask_group(cli_group *group, const char *method, const char *params, cli_answers *answers)
{
    survey all = {group, method, params, answers->item, calloc(group->n, sizeof(kj_error))};
    if (!all.errors) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    cli_in_parallel(group->n, ask_one, &all);
    answers->n = group->n;
    answers->worst = group->worst;
    for (size_t k = 0; k < group->n; k++) {
        int status = cli_status_of(all.errors[k].code);
        if (answers->item[k].result)
            continue;
        cli_error("%s: %s", group->runs[k].info->id, all.errors[k].message);
        answers->worst = status > answers->worst ? status : answers->worst;
    }
    free(all.errors);
    return CLI_DONE;
}

int cli_ask(const char *run, const char *method, const char *params, cli_answers *ret_answers)
{
    cli_group group = {.n = 1};
    cli_answers answers = {.is_group = cli_group_given(), .worst = CLI_DONE};
    int status = answers.is_group ? cli_group_choose(&group, false) : CLI_DONE;
    if (status != CLI_DONE)
        return status;
    answers.item = calloc(group.n, sizeof *answers.item);
    if (!answers.item) {
        cli_error("out of memory");
        status = CLI_FAILED;
    } else if (answers.is_group) {
        status = ask_group(&group, method, params, &answers);
    } else {
        status = ask_run(run, method, params, &answers);
    }
    if (answers.is_group)
        cli_group_done(&group);
    if (status == CLI_DONE)
        *ret_answers = answers;
    else
        cli_answers_done(&answers);
    return status;
}

void cli_answers_done(cli_answers *answers)
{
    for (size_t k = 0; k < answers->n; k++) {
        free(answers->item[k].id);
        json_object_put(answers->item[k].result);
    }
    free(answers->item);
}
