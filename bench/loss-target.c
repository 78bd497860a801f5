/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training that notes what reaches it: each `tick writer=W number=N` becomes the line "W N" of
 * the file SAW, in the order in which they were carried out. `gap` answers with the longest time
 * between two steps since it was last asked. It prints the folder of its doors and trains until it
 * is stopped.
 *
 * loss-target SAW STEP-MICROSECONDS [FIFO]
 */
#include <kajitori.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

typedef struct training {
    FILE *saw;
    double began_ms; /* the newest step */
    double longest_ms;
    int64_t step;
} training;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int tick(void *userdata, kj_call *call, kj_error *err)
{
    training *t = userdata;
    kj_value writer, number;
    (void)err;
    kj_call_get_arg(call, "writer", &writer);
    kj_call_get_arg(call, "number", &number);
    fprintf(t->saw, "%lld %lld\n", (long long)writer.i, (long long)number.i);
    return 0;
}

static int gap(void *userdata, kj_call *call, kj_error *err)
{
    training *t = userdata;
    char result[100];
    snprintf(result, sizeof result, "{\"longest_ms\": %.3f, \"step\": %lld}", t->longest_ms,
             (long long)t->step);
    t->longest_ms = 0;
    return kj_call_set_result(call, result, err);
}

static int add_verbs(kj_run *run, training *t, kj_error *err)
{
    kj_arg args[] = {
        {.size = sizeof(kj_arg), .type = KJ_TYPE_INT, .name = "writer", .flags = KJ_ARG_REQUIRED},
        {.size = sizeof(kj_arg), .type = KJ_TYPE_INT, .name = "number", .flags = KJ_ARG_REQUIRED}};
    kj_verb verbs[] = {
        {.size = sizeof(kj_verb), .name = "tick", .args = args, .n_args = 2, .run = tick},
        {.size = sizeof(kj_verb), .name = "gap", .run = gap}};
    int r = 0;
    for (int k = 0; k < 2 && r >= 0; k++) {
        verbs[k].userdata = t;
        r = kj_run_add_verb(run, &verbs[k], err);
    }
    return r;
}

static void train(kj_run *run, training *t, long step_us)
{
    struct timespec rest = {step_us / 1000000, step_us % 1000000 * 1000};
    t->began_ms = now_ms();
    while (!(kj_run_begin_step(run, t->step) & KJ_RUN_STOP)) {
        double now = now_ms();
        if (now - t->began_ms > t->longest_ms)
            t->longest_ms = now - t->began_ms;
        t->began_ms = now;
        t->step++;
        if (step_us > 0)
            nanosleep(&rest, NULL);
    }
}

static void print_warning(void *userdata, int level, const char *message)
{
    (void)userdata, (void)level;
    fprintf(stderr, "loss-target: %s\n", message);
}

int main(int argc, char **argv)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_run *run;
    training t = {.saw = argc > 2 ? fopen(argv[1], "w") : NULL};
    if (!t.saw) {
        fprintf(stderr, "usage: loss-target SAW STEP-MICROSECONDS [FIFO]\n");
        return 2;
    }
    kj_log_set(print_warning, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the bench may be interrupted */
    options.name = "loss-target";
    options.flags = KJ_RUN_LISTEN_LATER;
    options.fifo_path = argc > 3 ? argv[3] : NULL;
    if (kj_run_open(&options, &run, &err) < 0 || add_verbs(run, &t, &err) < 0 ||
        kj_run_listen(run, &err) < 0) {
        fprintf(stderr, "loss-target: %s\n", err.message);
        return 1;
    }
    puts(kj_run_dir(run));
    fflush(stdout);
    train(run, &t, atol(argv[2]));
    kj_run_close(run);
    return fclose(t.saw) == 0 ? 0 : 1;
}
