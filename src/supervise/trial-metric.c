/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metric of one trial: from its source to the database thread. Points wait here while a report
 * is on its way, so that one trial has one job in flight and the order holds. What waits is about a
 * batch: a program that prints faster than that is read later, and takes nothing from the others.
 */
#include "worker.h"

#include "errors.h"
#include "mem.h"
#include "strbuf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BATCH = 500 };

static bool is_full(const kji_trial_run *run)
{
    return run->n_points >= BATCH;
}

static void note_other_run(kji_trial_run *run, const kj_point *point)
{
    if (run->said_other_run)
        return;
    run->said_other_run = true;
    kji_worker_warn(run->worker, run->number,
                    "the metric is written in two places, \"%s\" and \"%s\"; only the first counts "
                    "(--metric ...:RUN/TAG names one)",
                    run->run_name, point->run);
}

static bool is_output(const char *metric)
{
    return strncmp(metric, "stdout:", 7) == 0;
}

/* From now on it is the trial's, also for a worker that takes the trial over. */
static void take_run(kji_trial_run *run, const char *name)
{
    kj_error err = KJ_ERROR_INIT;
    run->run_name = strdup(name);
    if (!is_output(run->metric) && kji_trial_dir_write_metric_run(run->dir_fd, name, &err) < 0)
        kji_worker_warn(run->worker, run->number, "%s", err.message);
}

static bool is_ours(kji_trial_run *run, const kj_point *point)
{
    if (run->drop_points) {
        run->record.has_stale = true;
        return false;
    }
    if (run->adopted && run->record.has_stale && point->wall_time < run->record.start_time)
        return false;
    if (!run->run_name)
        take_run(run, point->run);
    if (run->run_name && strcmp(run->run_name, point->run) != 0) {
        note_other_run(run, point);
        return false;
    }
    if (point->step < 0 && !run->said_negative) {
        run->said_negative = true;
        kji_worker_warn(run->worker, run->number, "values at steps below 0 are ignored");
    }
    return point->step >= 0;
}

static int take_point(void *userdata, const kj_point *point)
{
    kji_trial_run *run = userdata;
    bool enough = ++run->n_read >= BATCH;
    if ((point->flags & KJ_POINT_RESTART) || !is_ours(run, point))
        return enough;
    if (!kji_reserve(&run->points, &run->points_capacity, run->n_points + 1, sizeof *run->points)) {
        kji_worker_warn(run->worker, run->number, "a value was lost: out of memory");
        return enough;
    }
    run->points[run->n_points++] = (kji_db_point){point->step, point->value, false};
    /* The value of the greatest step is the trial's; of one step the first one counts. */
    if (run->n_values == 0 || point->step > run->last_step) {
        run->last_step = point->step;
        run->last_value = point->value;
    }
    run->n_values++;
    return enough;
}

/* One batch at most. Whether there was anything. */
static bool read_batch(kji_trial_run *run)
{
    kj_error err = KJ_ERROR_INIT;
    run->n_read = 0;
    int r = kj_events_step(run->source, 0, take_point, run, &err);
    if (r < 0) {
        kji_worker_warn(run->worker, run->number, "its metric cannot be read: %s", err.message);
        kji_trial_metric_close(run);
    }
    return r > 0;
}

int kji_trial_metric_open(kji_trial_run *run, bool drop_old, kj_error *err)
{
    KJI_CLEANUP(kji_freep)
    char *output =
        kji_format("%s/%" PRId64 "/output.log", run->worker->config->trials_dir, run->number);
    if (!output)
        return kji_fail_memory(err);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.text_path = output;
    int r = kj_events_open(run->metric, &options, &run->source, err);
    if (r < 0)
        return r;
    kji_trial_dir_read_metric_run(run->dir_fd, &run->run_name, NULL); /* none: the next is it */
    if (drop_old) {
        run->drop_points = true;
        while (run->source && read_batch(run))
            ;
        run->drop_points = false;
        if (run->record.has_stale)
            kji_worker_warn(run->worker, run->number,
                            "%s has values from before this trial; they are ignored", run->metric);
    }
    return 0;
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    kji_trial_run *run = handle->data;
    kji_trial_metric_read(run);
}

static void on_closed(uv_handle_t *handle)
{
    kji_trial_run_closed(handle->data);
}

/* The source's descriptor stays readable while it has more. */
static int watch_source(kji_trial_run *run)
{
    if (!run->has_readable)
        return 0;
    return is_full(run) ? uv_poll_stop(&run->readable)
                        : uv_poll_start(&run->readable, UV_READABLE, on_readable);
}

int kji_trial_metric_follow(kji_trial_run *run, kj_error *err)
{
    if (!run->source)
        return 0;
    int r = uv_poll_init(&run->worker->loop, &run->readable, kj_events_get_fd(run->source));
    if (r >= 0) {
        run->readable.data = run;
        run->has_readable = true;
        run->n_open++;
        r = watch_source(run);
    }
    if (r < 0)
        return kji_fail_native(err, KJ_EIO, "uv", r, "cannot watch the metric: %s", uv_strerror(r));
    return 0;
}

void kji_trial_metric_read(kji_trial_run *run)
{
    if (run->source && !is_full(run))
        read_batch(run);
    kji_trial_metric_feed(run);
    int r = watch_source(run);
    if (r < 0)
        kji_worker_warn(run->worker, run->number, "cannot watch the metric: %s", uv_strerror(r));
}

void kji_trial_metric_read_rest(kji_trial_run *run)
{
    bool more = run->source != NULL;
    if (more)
        kj_events_finish(run->source);
    while (more && !is_full(run))
        more = read_batch(run);
    run->has_rest = more;
    kji_trial_metric_feed(run);
}

void kji_trial_metric_feed(kji_trial_run *run)
{
    if (run->reporting || run->n_points == 0 || !run->trial)
        return;
    kji_db_job *job = kji_db_job_new(KJI_DB_REPORT, run);
    if (!job) {
        kj_error err = KJ_ERROR_INIT;
        kji_fail_memory(&err);
        kji_worker_fatal(run->worker, &err);
        return;
    }
    job->trial = run->trial;
    job->number = run->number;
    job->points = kji_take(&run->points);
    job->n_points = run->n_points;
    job->decide = run->stage == KJI_STAGE_RUNNING || run->stage == KJI_STAGE_STARTING;
    run->n_points = run->points_capacity = 0;
    run->reporting = true;
    kji_db_post(run->worker->db, job);
}

void kji_trial_metric_close(kji_trial_run *run)
{
    if (run->has_readable) {
        run->has_readable = false;
        uv_close((uv_handle_t *)&run->readable, on_closed);
    }
    kj_events_close(run->source);
    run->source = NULL;
}

typedef struct tag_text {
    kji_strbuf text;
    size_t n;
} tag_text;

static int add_tag(void *userdata, const kj_tag_info *tag)
{
    enum { MAX_TAGS = 20 };
    tag_text *tags = userdata;
    if (++tags->n > MAX_TAGS)
        return 0;
    kji_strbuf_puts(&tags->text, tags->n > 1 ? ", " : "");
    if (strcmp(tag->run, ".") != 0)
        kji_strbuf_printf(&tags->text, "%s/", tag->run);
    kji_strbuf_add(&tags->text, tag->tag, tag->tag_size);
    return 0;
}

char *kji_trial_metric_why_none(kji_trial_run *run)
{
    if (!run->metric)
        return strdup("it ended without a value");
    if (is_output(run->metric))
        return kji_format("it ended without a value: no line of its output matched %s",
                          run->metric + 7);
    tag_text tags = {KJI_STRBUF_INIT, 0};
    if (run->source && kj_events_list_tags(run->source, add_tag, &tags, NULL) < 0)
        tags.n = 0;
    char *why =
        tags.n == 0 || tags.text.failed
            ? kji_format("it ended without a value: nothing was written for %s", run->metric)
            : kji_format("it ended without a value: %s never appeared; what there is: %s%s",
                         run->metric, tags.text.text, tags.n > 20 ? ", …" : "");
    kji_strbuf_done(&tags.text);
    return why;
}
