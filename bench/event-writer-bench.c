/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scalar costs its writer: event-writer-bench MODE N DIR [ROUNDS] writes N scalars of ten
 * tags, and prints the best of some rounds as nanoseconds of time and of processor for each. MODE:
 * direct, buffer, double (buffered), append (direct, into a shared file), text (direct, 100 bytes).
 */
#include <kajitori/event-writer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *message)
{
    fprintf(stderr, "event-writer-bench: %s\n", message);
    exit(1);
}

static uint32_t flags_of(const char *mode)
{
    if (strcmp(mode, "buffer") == 0)
        return KJ_EVENT_WRITER_BUFFER;
    if (strcmp(mode, "double") == 0)
        return KJ_EVENT_WRITER_BUFFER | KJ_EVENT_WRITER_DOUBLE;
    return strcmp(mode, "append") == 0 ? KJ_EVENT_WRITER_APPEND : 0;
}

static void write_all(kj_event_writer *writer, int is_text, long n)
{
    static const char *const tags[] = {"loss",       "accuracy",
                                       "val/loss",   "val/accuracy",
                                       "lr",         "grad/norm",
                                       "epoch_loss", "epoch_accuracy",
                                       "step_time",  "throughput/examples_per_second"};
    static char text[101];
    kj_error err = KJ_ERROR_INIT;
    memset(text, 'x', 100);
    for (long k = 0; k < n; k++) {
        double wall_time = 1.7e9 + (double)k * 1e-3;
        int r = is_text ? kj_event_writer_add_text(writer, tags[k % 10], k, wall_time, text, &err)
                        : kj_event_writer_add_scalar(writer, tags[k % 10], k, wall_time,
                                                     (double)k * 1e-3, &err);
        if (r < 0)
            fail(err.message);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        fail("MODE N DIR [ROUNDS]");
    long n = atol(argv[2]);
    int rounds = argc > 4 ? atoi(argv[4]) : 5;
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    double best = 1e9, best_cpu = 1e9;
    options.flags = flags_of(argv[1]);
    for (int k = 0; k < rounds; k++) {
        kj_event_writer *writer;
        double begin = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        if (kj_event_writer_open(argv[3], &options, &writer, &err) < 0)
            fail(err.message);
        char *path = strdup(kj_event_writer_path(writer));
        write_all(writer, strcmp(argv[1], "text") == 0, n);
        if (kj_event_writer_close(writer, &err) < 0)
            fail(err.message);
        begin = seconds(CLOCK_MONOTONIC) - begin;
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        best = begin < best ? begin : best;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
        unlink(path);
        free(path);
    }
    printf("%.1f %.1f\n", best * 1e9 / (double)n, best_cpu * 1e9 / (double)n);
    return 0;
}
