/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include "asking.h"
#include "match.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

bool cli_group_given(void)
{
    return cli.study || cli.match || cli.all;
}

static size_t count_matches(void)
{
    size_t n = 0;
    while (cli.match && cli.match[n])
        n++;
    return n;
}

/* They were read before: cli_group_check. */
static cli_match match_at(size_t k)
{
    char problem[300];
    cli_match match;
    cli_match_parse(cli.match[k], &match, problem, sizeof problem);
    return match;
}

int cli_group_check(const cli_command *command)
{
    if (!(command->flags & CLI_TAKES_GROUP))
        return CLI_DONE;
    for (size_t k = 0; k < count_matches(); k++) {
        char problem[300];
        cli_match match;
        if (!cli_match_parse(cli.match[k], &match, problem, sizeof problem))
            return cli_usage("--match '%s': %s", cli.match[k], problem);
    }
    if (cli.study && !*cli.study) /* "$STUDY", but nothing is in it */
        return cli_usage("the name of the study is empty");
    if (cli.run && cli_group_given())
        return cli_usage(
            "--run names one run, --study, --match and --all several: give one of them");
    return CLI_DONE;
}

static void ask_one(void *userdata, size_t k)
{
    cli_group *group = userdata;
    group->runs[k].code = cli_ask_status(group->runs[k].info, &group->runs[k].status);
}

static bool contains(const kj_run_list *list, const char *id)
{
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        if (strcmp(kj_run_list_get(list, k)->id, id) == 0)
            return true;
    return false;
}

/* Keeps those for which `keep` is true, in their order. */
static void filter(cli_group *group, bool (*keep)(cli_group *group, cli_member *member))
{
    size_t n = 0;
    for (size_t k = 0; k < group->n; k++) {
        if (keep(group, &group->runs[k]))
            group->runs[n++] = group->runs[k];
        else
            json_object_put(group->runs[k].status);
    }
    group->n = n;
}

static bool is_of_study(cli_group *group, cli_member *member)
{
    (void)group;
    return !cli.study || strcmp(member->info->study, cli.study) == 0;
}

static kj_run_list *list_now; /* the runs that live after the questions */

static bool hung_up(const cli_member *member)
{
    return member->code == KJ_ENORUN || member->code == KJ_EENDED;
}

static bool still_lives(cli_group *group, cli_member *member)
{
    (void)group;
    return !hung_up(member) || contains(list_now, member->info->id);
}

/* Leaves out the runs that hung up because they ended between the list and the question. */
static void drop_ended(cli_group *group)
{
    bool any = false;
    for (size_t k = 0; k < group->n; k++)
        any = any || hung_up(&group->runs[k]);
    if (!any || kj_run_list_load(cli.runtime_dir, &list_now, NULL) < 0)
        return;
    filter(group, still_lives);
    kj_run_list_free(list_now);
}

static bool matches(cli_group *group, cli_member *member)
{
    bool holds = true;
    if (!member->status) {
        cli_error("%s does not answer, so it is not known whether it matches", member->info->id);
        group->worst = CLI_TIMEOUT;
        return false;
    }
    struct json_object *run = json_tokener_parse(member->info->json);
    for (size_t k = 0; holds && k < count_matches(); k++) {
        cli_match match = match_at(k);
        holds = cli_match_holds(&match, member->status, run);
    }
    json_object_put(run);
    return holds;
}

int cli_group_load(cli_group *ret_group, bool ask)
{
    kj_error err = KJ_ERROR_INIT;
    cli_group group = {.worst = CLI_DONE};
    if (kj_run_list_load(cli.runtime_dir, &group.list, &err) < 0)
        return cli_fail(&err);
    group.n = kj_run_list_size(group.list);
    group.runs = calloc(group.n + 1, sizeof *group.runs);
    if (!group.runs) {
        kj_run_list_free(group.list);
        cli_error("out of memory");
        return CLI_FAILED;
    }
    for (size_t k = 0; k < group.n; k++)
        group.runs[k].info = kj_run_list_get(group.list, k);
    filter(&group, is_of_study);
    if (ask || cli.match) {
        cli_in_parallel(group.n, ask_one, &group);
        drop_ended(&group);
    }
    if (cli.match)
        filter(&group, matches);
    *ret_group = group;
    return CLI_DONE;
}

int cli_group_choose(cli_group *ret_group, bool ask)
{
    int status = cli_group_load(ret_group, ask);
    if (status != CLI_DONE || ret_group->n > 0)
        return status;
    size_t n_live = kj_run_list_size(ret_group->list);
    status = ret_group->worst != CLI_DONE ? ret_group->worst : CLI_NO_RUN;
    if (n_live == 0)
        cli_error("no run is live");
    else
        cli_error("none of the %zu live runs%s%s%s", n_live, cli.study ? " is of study " : "",
                  cli.study ? cli.study : "",
                  cli.match ? (cli.study ? " and matches" : " matches") : "");
    cli_group_done(ret_group);
    return status;
}

void cli_group_done(cli_group *group)
{
    for (size_t k = 0; k < group->n; k++)
        json_object_put(group->runs[k].status);
    free(group->runs);
    kj_run_list_free(group->list);
}

void cli_group_print(const cli_group *group)
{
    printf("%zu run%s:", group->n, group->n == 1 ? "" : "s");
    for (size_t k = 0; k < group->n; k++)
        printf("%s %s", k ? "," : "", group->runs[k].info->id);
    putchar('\n');
}
