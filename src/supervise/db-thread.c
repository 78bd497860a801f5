/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two lists under one lock: jobs go in at the tail and are carried out one by one, answers go back
 * the same way. Each call of the study that may meet a locked database is repeated by itself
 * (try_again), so that a job that was half done goes on where it was.
 */
#include "db-thread.h"

#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "trial-dir.h"

#include <kajitori/client.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { FIRST_PAUSE_MS = 50, MAX_PAUSE_MS = 2000 };

typedef struct job_list {
    kji_db_job *first;
    kji_db_job **tail;
} job_list;

struct kji_db {
    kji_db_options options;
    uint64_t n_open; /* claimed and not told */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock: */
    job_list jobs;
    job_list answers;
    bool quit;
    bool give_up;
    bool claim_no_more;
};

static void list_init(job_list *list)
{
    list->first = NULL;
    list->tail = &list->first;
}

static void list_push(job_list *list, kji_db_job *job)
{
    job->next = NULL;
    *list->tail = job;
    list->tail = &job->next;
}

static kji_db_job *list_pop(job_list *list)
{
    kji_db_job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first)
            list->tail = &list->first;
    }
    return job;
}

kji_db_job *kji_db_job_new(int kind, void *owner)
{
    kji_db_job *job = calloc(1, sizeof *job);
    if (job) {
        job->kind = kind;
        job->owner = owner;
        job->err = (kj_error)KJ_ERROR_INIT;
        job->dir_fd = job->lock_fd = -1;
        job->number = -1;
    }
    return job;
}

void kji_db_job_free(kji_db_job *job)
{
    if (!job)
        return;
    kji_closep(&job->dir_fd);
    kji_closep(&job->lock_fd);
    if (job->kind != KJI_DB_REPORT)
        kj_trial_free(job->trial);
    for (size_t k = 0; job->values && job->values[k]; k++)
        free(job->values[k]);
    free(job->values);
    free(job->params_json);
    free(job->points);
    free(job->reason);
    free(job->error);
    free(job->run_id);
    free(job->stopped_by);
    free(job->rule);
    free(job);
}

static void answer(kji_db *db, kji_db_job *job)
{
    pthread_mutex_lock(&db->lock);
    list_push(&db->answers, job);
    pthread_mutex_unlock(&db->lock);
    db->options.wake(db->options.userdata);
}

typedef struct patience {
    int pause_ms;
} patience;

static void tell_busy(kji_db *db, const kj_error *err)
{
    kji_db_job *notice = kji_db_job_new(KJI_DB_BUSY, NULL);
    if (!notice)
        return; /* only a notice: the wait goes on without it */
    notice->err = *err;
    answer(db, notice);
}

/*
 * Whether a call that returned `r` shall be made again: true after a pause when the database was
 * locked and nobody has given up.
 */
static bool try_again(kji_db *db, int r, patience *p, const kj_error *err)
{
    if (r != KJ_EBUSY)
        return false;
    if (p->pause_ms == 0)
        tell_busy(db, err);
    p->pause_ms = p->pause_ms == 0                 ? FIRST_PAUSE_MS
                  : p->pause_ms * 2 < MAX_PAUSE_MS ? p->pause_ms * 2
                                                   : MAX_PAUSE_MS;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)p->pause_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&db->lock);
    while (!db->quit && !db->give_up &&
           pthread_cond_timedwait(&db->changed, &db->lock, &until) != ETIMEDOUT)
        ;
    bool again = !db->quit && !db->give_up;
    pthread_mutex_unlock(&db->lock);
    return again;
}

static bool get_retry_of(const kj_trial_info *trial, int64_t *ret_number)
{
    if (!trial->attributes_json || !strstr(trial->attributes_json, "kajitori:retry_of"))
        return false;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    if (kji_json_parse(trial->attributes_json, strlen(trial->attributes_json), &json, NULL) < 0)
        return false;
    return kji_json_int(json, "kajitori:retry_of", ret_number);
}

static bool is_finished(int state)
{
    return state == KJ_TRIAL_COMPLETE || state == KJ_TRIAL_PRUNED || state == KJ_TRIAL_FAIL;
}

static uint64_t count_finished(const kj_trial_list *list)
{
    uint64_t n = 0, n_trials = kj_trial_list_size(list);
    KJI_CLEANUP(kji_freep) bool *repeated = calloc(n_trials + 1, sizeof *repeated);
    for (uint64_t k = 0; repeated && k < n_trials; k++) {
        int64_t of;
        if (get_retry_of(kj_trial_list_get(list, k), &of) && of >= 0 && (uint64_t)of < n_trials)
            repeated[of] = true;
    }
    for (uint64_t k = 0; k < n_trials; k++)
        if (is_finished(kj_trial_list_get(list, k)->state) && !(repeated && repeated[k]))
            n++;
    return n;
}

int kji_db_count_finished(kj_study *study, uint64_t *ret_n, kj_error *err)
{
    kj_trial_list *list;
    int r = kj_study_list_trials(study, &list, err);
    if (r < 0)
        return r;
    *ret_n = count_finished(list);
    kj_trial_list_free(list);
    return 0;
}

static int list_trials(kji_db *db, kj_trial_list **ret_list, kj_error *err)
{
    patience p = {0};
    int r;
    do
        r = kj_study_list_trials(db->options.study, ret_list, err);
    while (try_again(db, r, &p, err));
    return r;
}

static int count(kji_db *db, kji_db_job *job)
{
    kj_trial_list *list;
    int r = list_trials(db, &list, &job->err);
    if (r < 0)
        return r;
    job->n_finished = count_finished(list);
    kj_trial_list_free(list);
    return 0;
}

static int suggest(kji_db *db, kji_db_job *job, size_t k, struct json_object *params)
{
    const kji_param_spec *spec = &db->options.params[k];
    kj_value value;
    patience p = {0};
    int r;
    do
        r = kj_trial_suggest(job->trial, spec->name, &spec->distribution, &value, &job->err);
    while (try_again(db, r, &p, &job->err));
    if (r < 0)
        return r;
    job->values[k] = kji_value_text(&value);
    if (!job->values[k])
        return kji_fail_memory(&job->err);
    json_object_object_add(params, spec->name, kji_json_new_value(&value));
    return 0;
}

static int draw_parameters(kji_db *db, kji_db_job *job)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *params = json_object_new_object();
    job->values = calloc(db->options.n_params + 1, sizeof *job->values);
    if (!job->values || !params)
        return kji_fail_memory(&job->err);
    for (size_t k = 0; k < db->options.n_params; k++) {
        int r = suggest(db, job, k, params);
        if (r < 0)
            return r;
    }
    job->params_json = kji_json_text(params);
    return job->params_json ? 0 : kji_fail_memory(&job->err);
}

static int set_text(kji_db *db, kj_trial *trial, const char *key, const char *text, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *value = json_object_new_string(text);
    KJI_CLEANUP(kji_freep) char *json = value ? kji_json_text(value) : NULL;
    if (!json)
        return kji_fail_memory(err);
    patience p = {0};
    int r;
    do
        r = kj_trial_set_attribute(trial, key, json, err);
    while (try_again(db, r, &p, err));
    return r;
}

static int tell(kji_db *db, kj_trial *trial, int state, double value, kj_error *err)
{
    patience p = {0};
    int r;
    do
        r = kj_study_tell(db->options.study, trial, state,
                          state == KJ_TRIAL_COMPLETE ? &value : NULL, state == KJ_TRIAL_COMPLETE,
                          err);
    while (try_again(db, r, &p, err));
    if (r >= 0) {
        kj_trial_free(trial);
        db->n_open--;
    }
    return r;
}

/* Whether the parameters of trial `number` shall be enqueued again: not when they have been, and
 * with KJI_RETRY_ONCE not when the trial is a repeat itself. */
static bool wants_repeat(const kj_trial_list *list, int64_t number, int retry)
{
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        const kj_trial_info *trial = kj_trial_list_get(list, k);
        int64_t of;
        if (!get_retry_of(trial, &of))
            continue;
        if (of == number || (trial->number == number && retry == KJI_RETRY_ONCE))
            return false;
    }
    return true;
}

static int enqueue_again(kji_db *db, kji_db_job *job)
{
    kj_trial_list *list;
    int r = list_trials(db, &list, &job->err);
    if (r < 0)
        return r;
    bool repeat = wants_repeat(list, job->number, job->retry);
    kj_trial_list_free(list);
    if (!repeat)
        return 0;
    KJI_CLEANUP(kji_freep)
    char *attributes = kji_format("{\"kajitori:retry_of\":%" PRId64 "}", job->number);
    if (!attributes)
        return kji_fail_memory(&job->err);
    int64_t number;
    patience p = {0};
    do
        r = kj_study_enqueue(db->options.study, job->params_json, attributes, &number, &job->err);
    while (try_again(db, r, &p, &job->err));
    return r;
}

/* A trial was claimed and cannot be started: it must not stay RUNNING. The first error counts. */
static void abandon(kji_db *db, kji_db_job *job)
{
    kj_error first = job->err;
    set_text(db, job->trial, "kajitori:error", first.message, &job->err);
    if (job->no_folder)
        enqueue_again(db, job);
    if (tell(db, job->trial, KJ_TRIAL_FAIL, 0, &job->err) < 0)
        kj_trial_free(job->trial);
    job->trial = NULL;
    job->err = first;
}

static bool claims_no_more(kji_db *db)
{
    pthread_mutex_lock(&db->lock);
    bool no_more = db->claim_no_more;
    pthread_mutex_unlock(&db->lock);
    return no_more;
}

static int make_folder(kji_db *db, kji_db_job *job)
{
    int r = kji_trial_dir_create(db->options.trials_fd, job->number, &job->dir_fd, &job->lock_fd,
                                 &job->err);
    if (r >= 0)
        return r;
    job->no_folder = true;
    job->retry = KJI_RETRY;
    return kji_fail_prefix(&job->err, r, "%s", db->options.trials_dir);
}

static int do_ask(kji_db *db, kji_db_job *job)
{
    int r = count(db, job);
    if (r < 0)
        return r;
    uint64_t wanted = db->options.n_trials;
    job->none = claims_no_more(db) || (wanted > 0 && job->n_finished + db->n_open >= wanted);
    if (job->none)
        return 0;
    patience p = {0};
    do
        r = kj_study_ask(db->options.study, &job->trial, &job->err);
    while (try_again(db, r, &p, &job->err));
    if (r < 0)
        return r;
    db->n_open++;
    job->number = kj_trial_get_number(job->trial);
    r = draw_parameters(db, job);
    if (r >= 0)
        r = make_folder(db, job);
    if (r < 0)
        abandon(db, job);
    return r;
}

static int decide(kji_db *db, kji_db_job *job)
{
    kj_decision decision = {.size = sizeof decision};
    patience p = {0};
    int r;
    do
        r = kj_trial_should_prune(job->trial, &decision, &job->err);
    while (try_again(db, r, &p, &job->err));
    if (r != 1)
        return r;
    job->cut = true;
    job->cut_step = decision.step;
    job->cut_value = decision.value;
    job->cut_threshold = decision.threshold;
    job->rule = strdup(decision.rule ? decision.rule : "");
    job->reason = strdup(decision.reason ? decision.reason : "");
    return job->rule && job->reason ? 0 : kji_fail_memory(&job->err);
}

static int do_report(kji_db *db, kji_db_job *job)
{
    for (size_t k = 0; k < job->n_points; k++) {
        kji_db_point *point = &job->points[k];
        patience p = {0};
        int r;
        do
            r = kj_trial_report(job->trial, point->step, point->value, &job->err);
        while (try_again(db, r, &p, &job->err));
        if (r < 0)
            return r;
        point->taken = r == 0;
        if (point->taken && job->decide && !job->cut && (r = decide(db, job)) < 0)
            return r;
    }
    return 0;
}

/* How the newest command ended the training that did. */
typedef struct ending {
    char *verb; /* stop, prune, abort, or leave; NULL: none did */
    char *who;
    char *checkpoint; /* NULL: none was saved with it */
} ending;

static void ending_done(ending *end)
{
    free(end->verb);
    free(end->who);
    free(end->checkpoint);
    *end = (ending){0};
}

/* NULL when this record of an applied command does not end the training. */
static const char *ending_of(struct json_object *record)
{
    const char *verb = kji_json_string(record, "verb");
    const char *state = kji_json_string(record, "state");
    if (!verb || !state || strcmp(state, "applied") != 0)
        return NULL;
    if (strcmp(verb, "pause") == 0) {
        const char *level = kji_json_string(json_object_object_get(record, "args"), "level");
        return level && strcmp(level, "leave") == 0 ? "leave" : NULL;
    }
    bool ends =
        strcmp(verb, "stop") == 0 || strcmp(verb, "prune") == 0 || strcmp(verb, "abort") == 0;
    return ends ? verb : NULL;
}

static char *sender_of(struct json_object *record)
{
    const char *by = kji_json_string(record, "by");
    const char *door = kji_json_string(record, "door");
    int64_t uid;
    if (by && *by)
        return strdup(by);
    if (kji_json_int(record, "uid", &uid))
        return kji_format("uid %" PRId64, uid);
    return kji_format("somebody through %s", door ? door : "the channel");
}

static char *checkpoint_of(struct json_object *record)
{
    struct json_object *result = json_object_object_get(record, "result");
    struct json_object *saved = json_object_object_get(result, "checkpoint");
    const char *path = kji_json_string(saved, "path");
    return path ? strdup(path) : NULL;
}

static int look_for_ending(void *userdata, const char *line)
{
    ending *end = userdata;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    if (kji_json_parse(line, strlen(line), &json, NULL) < 0)
        return 0;
    const char *verb = ending_of(json);
    if (!verb)
        return 0;
    ending_done(end);
    *end = (ending){strdup(verb), sender_of(json), checkpoint_of(json)};
    return 0;
}

static void find_ending(const char *run_id, ending *end)
{
    char *found = NULL;
    int r = kj_journal_read(NULL, run_id, look_for_ending, end, &found, NULL);
    if (r < 0 || !found || strcmp(found, run_id) != 0)
        ending_done(end);
    kj_free(found);
}

/* What a person did decides before the exit status does. */
static void judge_ending(kji_db_job *job, const ending *end)
{
    const char *who = end->who ? end->who : "";
    char *error = NULL;
    if (strcmp(end->verb, "prune") == 0)
        job->state = KJ_TRIAL_PRUNED;
    else if (strcmp(end->verb, "leave") == 0)
        error = kji_format("left, as %s wanted; its checkpoint is %s", who,
                           end->checkpoint ? end->checkpoint : "not known");
    else if (strcmp(end->verb, "abort") == 0)
        error = kji_format("aborted by %s", who);
    else
        return;
    free(job->error);
    job->error = error;
    job->state = error ? KJ_TRIAL_FAIL : job->state;
}

static int do_tell(kji_db *db, kji_db_job *job)
{
    int r = 0;
    ending end = {0};
    if (job->run_id)
        find_ending(job->run_id, &end);
    if (end.verb)
        judge_ending(job, &end);
    job->stopped_by = kji_take(&end.who);
    ending_done(&end);
    if (job->stopped_by)
        r = set_text(db, job->trial, "kajitori:stopped_by", job->stopped_by, &job->err);
    if (r >= 0 && job->error)
        r = set_text(db, job->trial, "kajitori:error", job->error, &job->err);
    /* First the repeat, then the end: a worker that dies between the two leaves a trial that the
     * next one ends, and the repeat is found to be there. */
    if (r >= 0 && job->retry != KJI_RETRY_NO)
        r = enqueue_again(db, job);
    if (r >= 0)
        r = tell(db, job->trial, job->state, job->value, &job->err);
    if (r < 0)
        return r;
    job->trial = NULL;
    return count(db, job);
}

static kji_db_job *wait_for_job(kji_db *db)
{
    pthread_mutex_lock(&db->lock);
    while (!db->quit && !db->jobs.first)
        pthread_cond_wait(&db->changed, &db->lock);
    kji_db_job *job = db->quit ? NULL : list_pop(&db->jobs);
    pthread_mutex_unlock(&db->lock);
    return job;
}

static void *run_thread(void *userdata)
{
    kji_db *db = userdata;
    for (kji_db_job *job; (job = wait_for_job(db));) {
        switch (job->kind) {
        case KJI_DB_ASK:
            job->result = do_ask(db, job);
            break;
        case KJI_DB_REPORT:
            job->result = do_report(db, job);
            break;
        case KJI_DB_TELL:
            job->result = do_tell(db, job);
            break;
        }
        answer(db, job);
    }
    return NULL;
}

static void init_locks(kji_db *db)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&db->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&db->lock, NULL);
}

static void db_free(kji_db *db)
{
    pthread_cond_destroy(&db->changed);
    pthread_mutex_destroy(&db->lock);
    free(db);
}

int kji_db_start(const kji_db_options *options, kji_db **ret_db, kj_error *err)
{
    kji_db *db = calloc(1, sizeof *db);
    if (!db)
        return kji_fail_memory(err);
    db->options = *options;
    db->n_open = options->n_open;
    list_init(&db->jobs);
    list_init(&db->answers);
    init_locks(db);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the thread of the loop */
    int errnum = pthread_create(&db->thread, NULL, run_thread, db);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (errnum) {
        db_free(db);
        return kji_fail_errno(err, KJ_EIO, errnum, "cannot start the database thread");
    }
    *ret_db = db;
    return 0;
}

static void discard(job_list *list)
{
    for (kji_db_job *job; (job = list_pop(list));)
        kji_db_job_free(job);
}

void kji_db_stop(kji_db *db)
{
    if (!db)
        return;
    pthread_mutex_lock(&db->lock);
    db->quit = true;
    pthread_cond_signal(&db->changed);
    pthread_mutex_unlock(&db->lock);
    pthread_join(db->thread, NULL);
    discard(&db->jobs);
    discard(&db->answers);
    db_free(db);
}

void kji_db_post(kji_db *db, kji_db_job *job)
{
    pthread_mutex_lock(&db->lock);
    list_push(&db->jobs, job);
    pthread_cond_signal(&db->changed);
    pthread_mutex_unlock(&db->lock);
}

void kji_db_claim_no_more(kji_db *db)
{
    pthread_mutex_lock(&db->lock);
    db->claim_no_more = true;
    pthread_mutex_unlock(&db->lock);
}

void kji_db_give_up(kji_db *db)
{
    pthread_mutex_lock(&db->lock);
    db->give_up = true;
    pthread_cond_signal(&db->changed);
    pthread_mutex_unlock(&db->lock);
}

kji_db_job *kji_db_take(kji_db *db)
{
    pthread_mutex_lock(&db->lock);
    kji_db_job *job = list_pop(&db->answers);
    pthread_mutex_unlock(&db->lock);
    return job;
}
