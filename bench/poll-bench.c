/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kj_run_poll with nothing to do, against one atomic load behind a function call of another shared
 * library; and the same of a run without a helper thread, which looks at the clock. They alternate,
 * so that all see the same machine; medians of all rounds. Exit status 1 when the ratio of the
 * first two is above 1.5.
 */
#include <kajitori.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint32_t bench_atomic_load(const uint32_t *word);

enum { ROUNDS = 401, CALLS = 200000 };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double time_poll(kj_run *run)
{
    int sum = 0;
    double start = now_ns();
    for (int k = 0; k < CALLS; k++)
        sum += kj_run_poll(run);
    double ns = (now_ns() - start) / CALLS;
    return sum == 0 ? ns : -1;
}

static double time_load(const uint32_t *word)
{
    uint32_t sum = 0;
    double start = now_ns();
    for (int k = 0; k < CALLS; k++)
        sum += bench_atomic_load(word);
    double ns = (now_ns() - start) / CALLS;
    return sum == 0 ? ns : -1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

static kj_run *open_run(uint32_t flags)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_run *run;
    options.name = "poll-bench";
    options.flags = KJ_RUN_STRICT | flags;
    if (kj_run_open(&options, &run, &err) < 0) {
        fprintf(stderr, "poll-bench: %s\n", err.message);
        exit(2);
    }
    return run;
}

int main(void)
{
    static double poll_ns[ROUNDS], load_ns[ROUNDS], threadless_ns[ROUNDS];
    kj_run *run = open_run(0), *threadless = open_run(KJ_RUN_THREADLESS);
    uint32_t word = 0;
    for (int k = 0; k < ROUNDS; k++) {
        poll_ns[k] = time_poll(run);
        load_ns[k] = time_load(&word);
        threadless_ns[k] = time_poll(threadless);
    }
    kj_run_close(threadless);
    kj_run_close(run);
    double poll = median(poll_ns), load = median(load_ns);
    printf("kj_run_poll, idle:            %6.2f ns (median of %d rounds)\n", poll, ROUNDS);
    printf("the same without a thread:    %6.2f ns (it looks 20 times a second)\n",
           median(threadless_ns));
    printf("atomic load in a library:     %6.2f ns\n", load);
    printf("ratio:                        %6.2f (wanted: at most 1.5)\n", poll / load);
    return poll / load <= 1.5 ? 0 : 1;
}
