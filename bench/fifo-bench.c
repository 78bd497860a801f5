/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands sent by `echo` from many shells at once into one FIFO, while the training looks once a
 * millisecond: how many arrive, with kajitori and with the scheme that opens, reads (the
 * O_NONBLOCK flag cleared, as the usual recipe has it) and closes the FIFO at each look.
 * fifo-bench [SHELLS [ECHOS-PER-SHELL]]; exit status 1 when kajitori lost one.
 */
#include <kajitori.h>

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SHELLS = 200, SILENT_LOOKS = 500 };

static int n_shells = 50, n_echos = 200;
static char fifo[64];
static pid_t shells[MAX_SHELLS];

static void start_shells(void)
{
    char script[200];
    snprintf(script, sizeof script, "k=0; while [ $k -lt %d ]; do echo tick > %s; k=$((k+1)); done",
             n_echos, fifo);
    for (int k = 0; k < n_shells; k++) {
        shells[k] = fork();
        if (shells[k] == 0) {
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
            _exit(127);
        }
    }
}

/* How many shells are still at work. */
static int count_shells(void)
{
    int running = 0;
    for (int k = 0; k < n_shells; k++) {
        if (shells[k] > 0 && waitpid(shells[k], NULL, WNOHANG) == shells[k])
            shells[k] = 0;
        running += shells[k] > 0;
    }
    return running;
}

static void end_shells(void)
{
    for (int k = 0; k < n_shells; k++) {
        if (shells[k] > 0) {
            kill(shells[k], SIGKILL);
            waitpid(shells[k], NULL, 0);
        }
    }
}

static void one_step(void)
{
    struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

static int tick(void *userdata, kj_call *call, kj_error *err)
{
    (void)call, (void)err;
    ++*(int *)userdata;
    return 0;
}

static int measure_kajitori(void)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_run *run;
    int ticks = 0, silent = 0;
    options.name = "fifo-bench";
    options.flags = KJ_RUN_STRICT;
    options.fifo_path = fifo;
    kj_verb verb = {.size = sizeof verb, .name = "tick", .run = tick, .userdata = &ticks};
    if (kj_run_open(&options, &run, &err) < 0 || kj_run_add_verb(run, &verb, &err) < 0) {
        fprintf(stderr, "fifo-bench: %s\n", err.message);
        exit(2);
    }
    start_shells();
    while (silent < SILENT_LOOKS && ticks < n_shells * n_echos) {
        int before = ticks;
        one_step();
        kj_run_poll(run);
        silent = ticks == before && count_shells() == 0 ? silent + 1 : 0;
    }
    end_shells();
    kj_run_close(run);
    return ticks;
}

/* Opens, reads, closes. Returns how many whole commands came: more kindly than the recipe, which
 * takes two in one read for one that it does not know. */
static int open_read_close(void)
{
    static char text[65536];
    int count = 0, fd = open(fifo, O_RDONLY | O_NONBLOCK);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    for (ssize_t k = 0; k < n; k++)
        count += text[k] == '\n';
    return count;
}

static int measure_recipe(void)
{
    int ticks = 0, silent = 0;
    start_shells();
    while (silent < SILENT_LOOKS && ticks < n_shells * n_echos) {
        int before = ticks;
        one_step();
        ticks += open_read_close();
        silent = ticks == before && count_shells() == 0 ? silent + 1 : 0;
    }
    end_shells();
    return ticks;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_shells = atoi(argv[1]);
    if (argc > 2)
        n_echos = atoi(argv[2]);
    if (n_shells < 1 || n_shells > MAX_SHELLS || n_echos < 1) {
        fprintf(stderr, "usage: fifo-bench [SHELLS [ECHOS-PER-SHELL]]\n");
        return 2;
    }
    snprintf(fifo, sizeof fifo, "/tmp/fifo-bench-%ld", (long)getpid());
    if (mkfifo(fifo, 0600) < 0) {
        perror(fifo);
        return 2;
    }
    int sent = n_shells * n_echos, ours = measure_kajitori(), theirs = measure_recipe();
    unlink(fifo);
    printf("%d commands from %d shells       arrived    lost\n", sent, n_shells);
    printf("kajitori                       %9d %7d\n", ours, sent - ours);
    printf("open, read, close at each look %9d %7d\n", theirs, sent - theirs);
    return ours == sent ? 0 : 1;
}
