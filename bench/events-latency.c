/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a writer's write(2) to the point in the caller's hand: a child process writes one record
 * after the other into an event file, each with the monotonic time as its value, and waits a little
 * in between; we follow the folder and take the time when the point comes. Beside the file there
 * may be quiet runs, and the reader may do without inotify.
 *
 *     events-latency [RECORDS [GAP-US [QUIET-RUNS [poll]]]]
 */
#include <kajitori/event-writer.h>
#include <kajitori/events.h>

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct latencies {
    double *us;
    int n, capacity;
} latencies;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static kj_event_writer *open_writer(const char *folder)
{
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    kj_event_writer *writer;
    kj_error err = KJ_ERROR_INIT;
    options.flags = KJ_EVENT_WRITER_DOUBLE; /* a float has too few digits for the time */
    if (kj_event_writer_open(folder, &options, &writer, &err) < 0) {
        fprintf(stderr, "events-latency: %s\n", err.message);
        exit(2);
    }
    return writer;
}

static void make_quiet_runs(const char *folder, int n)
{
    for (int k = 0; k < n; k++) {
        char path[128];
        snprintf(path, sizeof path, "%s/quiet-%d", folder, k);
        kj_event_writer *writer = open_writer(path);
        kj_event_writer_add_scalar(writer, "loss", 0, 0, 0.5, NULL);
        kj_event_writer_close(writer, NULL);
    }
}

static void write_records(const char *folder, int n, int gap_us)
{
    char path[128];
    snprintf(path, sizeof path, "%s/live", folder);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kj_event_writer *writer = open_writer(path);
    const struct timespec gap = {gap_us / 1000000, gap_us % 1000000 * 1000};
    for (int k = 0; k < n; k++) {
        nanosleep(&gap, NULL);
        kj_event_writer_add_scalar(writer, "stamp", k, NAN, now_ns(), NULL);
    }
    kj_event_writer_close(writer, NULL);
    _exit(0);
}

static int take(void *userdata, const kj_point *point)
{
    latencies *all = userdata;
    if (strcmp(point->tag, "stamp") == 0 && all->n < all->capacity)
        all->us[all->n++] = (now_ns() - point->value) / 1e3;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int follow(const char *folder, uint32_t flags, pid_t *ret_writer, latencies *all, int gap_us)
{
    char spec[100];
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    kj_events *events;
    kj_error err = KJ_ERROR_INIT;
    snprintf(spec, sizeof spec, "events:%s", folder);
    options.flags = flags;
    int r = kj_events_open(spec, &options, &events, &err);
    if (r >= 0)
        r = kj_events_step(events, 0, take, all, &err); /* what is quiet */
    if (r >= 0 && (*ret_writer = fork()) == 0)
        write_records(folder, all->capacity, gap_us);
    while (r >= 0 && all->n < all->capacity)
        r = kj_events_step(events, -1, take, all, &err);
    if (r < 0)
        fprintf(stderr, "events-latency: %s\n", err.message);
    kj_events_close(events);
    return r;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 2000, gap_us = argc > 2 ? atoi(argv[2]) : 1000;
    int n_quiet = argc > 3 ? atoi(argv[3]) : 0;
    bool poll = argc > 4 && strcmp(argv[4], "poll") == 0;
    char folder[] = "/tmp/kj-events-latency-XXXXXX", command[100];
    latencies all = {.us = calloc((size_t)n + 1, sizeof(double)), .capacity = n};
    pid_t writer = -1;
    if (n < 1 || !all.us || !mkdtemp(folder))
        return 2;
    make_quiet_runs(folder, n_quiet);
    int r = follow(folder, poll ? KJ_EVENTS_POLL : 0, &writer, &all, gap_us);
    if (writer > 0)
        waitpid(writer, NULL, 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0 || r < 0)
        return 2;
    qsort(all.us, (size_t)n, sizeof(double), by_value);
    printf(
        "%d records, %d us apart, %d quiet runs, by %s: median %.1f us, p90 %.1f us, p99 %.1f us, "
        "most %.1f us\n",
        n, gap_us, n_quiet, poll ? "polling" : "inotify", all.us[n / 2], all.us[n * 9 / 10],
        all.us[n * 99 / 100], all.us[n - 1]);
    free(all.us);
    return 0;
}
