/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launcher tells each process its number and how many there are, by a pair of variables. Only a
 * whole pair counts: half of one is some other program's word. Slurm sets its pair in batch scripts
 * and in salloc's shell too, where there is one process; they count in a step that srun started,
 * whose number is below those that Slurm keeps for itself. Of a step with a terminal (srun --pty)
 * only the process group of the task itself is meant: its shell, alone of N, gives each of its jobs
 * a group of their own.
 */
#include "ranks.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"

#include <json-c/json.h>
#include <string.h>
#include <unistd.h>

enum { TF_CONFIG_MAX = 4 << 20 };
static const int64_t slurm_steps_max = 0xfffffff0; /* from here on: batch, interactive, … */

static const struct pair {
    const char *rank;
    const char *world_size;
    const char *launcher;
    bool is_slurm;
} pairs[] = {
    {"RANK", "WORLD_SIZE", "RANK and WORLD_SIZE", false},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", false},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH", false},
    {"PMI_RANK", "PMI_SIZE", "PMI", false},
    {"PMIX_RANK", "PMIX_SIZE", "PMIx", false},
    {"HOROVOD_RANK", "HOROVOD_SIZE", "Horovod", false},
    {"KERAS_DISTRIBUTION_PROCESS_ID", "KERAS_DISTRIBUTION_NUM_PROCESSES", "Keras distribution",
     false},
    {"JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX", false},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "Slurm", true},
    {"SLURM_PROCID", "SLURM_NTASKS", "Slurm", true},
};

static bool read_number(const char *text, int64_t *ret_number)
{
    return text && kji_parse_int64(text, strlen(text), ret_number);
}

static bool is_job_of_shell(void)
{
    int64_t task_pid;
    return getenv("SLURM_PTY_PORT") && read_number(getenv("SLURM_TASK_PID"), &task_pid) &&
           task_pid != getpgrp();
}

static bool is_in_slurm_step(void)
{
    int64_t step;
    return read_number(getenv("SLURM_STEP_ID"), &step) && step >= 0 && step < slurm_steps_max &&
           !is_job_of_shell();
}

/* 1 when the pair is there. KJ_EDATA. */
static int read_pair(const struct pair *pair, kji_ranks *ranks, kj_error *err)
{
    const char *rank_text = getenv(pair->rank), *size_text = getenv(pair->world_size);
    int64_t rank, world_size;
    if (!rank_text || !*rank_text || !size_text || !*size_text ||
        (pair->is_slurm && !is_in_slurm_step()))
        return 0;
    if (!read_number(rank_text, &rank) || !read_number(size_text, &world_size) || world_size < 1 ||
        world_size > KJI_RANKS_MAX || rank < 0 || rank >= world_size)
        return kji_fail(err, KJ_EDATA,
                        "%s=\"%.40s\" with %s=\"%.40s\" is no rank of a training and is not used",
                        pair->rank, rank_text, pair->world_size, size_text);
    ranks->rank = rank;
    ranks->world_size = world_size;
    ranks->launcher = pair->launcher;
    return 1;
}

/* How many tasks of one type: a list of addresses, or an object of numbers and addresses, which may
 * have gaps. -1 for something else. */
static int64_t count_tasks(struct json_object *tasks)
{
    int64_t n = 0, index;
    if (json_object_is_type(tasks, json_type_array))
        return (int64_t)json_object_array_length(tasks);
    if (!json_object_is_type(tasks, json_type_object))
        return -1;
    json_object_object_foreach(tasks, key, address)
    {
        (void)address;
        if (!read_number(key, &index) || index < 0 || index >= KJI_RANKS_MAX)
            return -1;
        n = index >= n ? index + 1 : n;
    }
    return n;
}

static int precedence(const char *type)
{
    static const char *const first[] = {"chief", "master", "worker"};
    int place = 0;
    while (place < 3 && strcmp(first[place], type) != 0)
        place++;
    return place;
}

static bool comes_before(const char *type, const char *other)
{
    int place = precedence(type), place_of_other = precedence(other);
    return place == place_of_other ? strcmp(type, other) < 0 : place < place_of_other;
}

/* Of the whole cluster. */
typedef struct task_counts {
    int64_t all;
    int64_t before; /* of the types that come before the task's */
    int64_t same;   /* of its own */
} task_counts;

static int count_cluster(struct json_object *cluster, const char *own_type, task_counts *counts,
                         kj_error *err)
{
    json_object_object_foreach(cluster, type, tasks)
    {
        int64_t n = count_tasks(tasks);
        if (n < 0 || counts->all + n > KJI_RANKS_MAX)
            return kji_fail(err, KJ_EDATA, "the tasks of \"%.40s\" are no list of addresses", type);
        counts->all += n;
        if (strcmp(type, own_type) == 0)
            counts->same = n;
        else if (comes_before(type, own_type))
            counts->before += n;
    }
    return 0;
}

static bool read_task(struct json_object *config, const char **ret_type, int64_t *ret_index)
{
    struct json_object *task = NULL, *index = NULL;
    json_object_object_get_ex(config, "task", &task);
    if (!json_object_is_type(task, json_type_object))
        return false;
    *ret_type = kji_json_string(task, "type");
    json_object_object_get_ex(task, "index", &index);
    bool is_number = json_object_is_type(index, json_type_string)
                         ? read_number(json_object_get_string(index), ret_index)
                         : kji_json_int(task, "index", ret_index);
    return *ret_type && is_number && *ret_index >= 0;
}

static int find_task(struct json_object *config, struct json_object *cluster, kji_ranks *ranks,
                     kj_error *err)
{
    const char *type = "";
    int64_t index = 0;
    bool has_task = read_task(config, &type, &index);
    task_counts counts = {0};
    int r = count_cluster(cluster, has_task ? type : "", &counts, err);
    if (r < 0)
        return r;
    if (!has_task && counts.all > 1)
        return kji_fail(err, KJ_EDATA, "no \"task\" with \"type\" and \"index\"");
    if (!has_task || counts.all == 0)
        return 0;
    bool is_outside = counts.same == 0 && strcmp(type, "evaluator") == 0 && index == 0;
    if (!is_outside && index >= counts.same)
        return kji_fail(err, KJ_EDATA, "its cluster has no task \"%.40s\" %lld", type,
                        (long long)index);
    ranks->rank = is_outside ? counts.all : counts.before + index;
    ranks->world_size = counts.all + is_outside;
    return 0;
}

int kji_ranks_parse_tf_config(const char *text, size_t size, kji_ranks *ranks, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *config = NULL;
    struct json_object *cluster = NULL;
    if (size > TF_CONFIG_MAX)
        return kji_fail(err, KJ_EDATA, "it is longer than %d bytes", TF_CONFIG_MAX);
    int r = kji_json_parse(text, size, &config, err);
    if (r < 0)
        return r;
    if (!json_object_is_type(config, json_type_object))
        return kji_fail(err, KJ_EDATA, "it is no JSON object");
    if (!json_object_object_get_ex(config, "cluster", &cluster))
        return 0;
    if (!json_object_is_type(cluster, json_type_object))
        return kji_fail(err, KJ_EDATA, "\"cluster\" is no JSON object");
    return find_task(config, cluster, ranks, err);
}

static void read_tf_config(kji_ranks *ranks, kj_error *ret_note)
{
    const char *text = getenv("TF_CONFIG");
    kj_error why = KJ_ERROR_INIT;
    if (!text || !*text)
        return;
    if (kji_ranks_parse_tf_config(text, strlen(text), ranks, &why) >= 0)
        ranks->launcher = "TF_CONFIG";
    else if (!*ret_note->message)
        kji_fail(ret_note, KJ_EDATA, "TF_CONFIG is not used: %s", why.message);
}

void kji_ranks_find(kji_ranks *ret_ranks, kj_error *ret_note)
{
    *ret_ranks = (kji_ranks)KJI_RANKS_INIT;
    int r = 0;
    for (size_t k = 0; r <= 0 && k < sizeof pairs / sizeof *pairs; k++)
        r = read_pair(&pairs[k], ret_ranks, *ret_note->message ? NULL : ret_note);
    if (r <= 0)
        read_tf_config(ret_ranks, ret_note);
    const char *alone = getenv("KAJITORI_RANK_ALONE");
    ret_ranks->is_alone = alone && *alone && strcmp(alone, "0") != 0;
}

bool kji_ranks_are_several(const kji_ranks *ranks)
{
    return ranks->world_size > 1 && !ranks->is_alone;
}

bool kji_ranks_is_quiet(const kji_ranks *ranks)
{
    return kji_ranks_are_several(ranks) && ranks->rank > 0;
}

char *kji_ranks_refusal(const kji_ranks *ranks)
{
    return kji_format(
        "this is rank %lld of %lld (by %s), and the other ranks would not do it: they "
        "would wait for this one for ever, or drift apart from it. End the whole job "
        "by its launcher; where each rank may act alone, start it with "
        "KAJITORI_RANK_ALONE=1",
        (long long)ranks->rank, (long long)ranks->world_size, ranks->launcher);
}
