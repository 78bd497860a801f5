/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thousand live runs, in processes of their own with some each: how long `kajitori ps` takes,
 * which asks every one of them for its status; how long listing alone takes; and, for comparison,
 * the least that any listing has to do: readdir, and of each folder the lock and run.json opened,
 * and read.
 */
#include <kajitori/client.h>
#include <kajitori/run.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 1000, RUNS_EACH = 50, PROCESSES = RUNS / RUNS_EACH, ROUNDS = 15 };

static char root[] = "/tmp/kajitori-bench-XXXXXX";
static char runtime[100], state[100];

static void fail(const char *what)
{
    fprintf(stderr, "registry-bench: %s\n", what);
    exit(1);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* A process with its runs, until `end` is closed. */
static void train(int ready, int end)
{
    static kj_run *runs[RUNS_EACH];
    char c = 0;
    for (int k = 0; k < RUNS_EACH; k++) {
        kj_run_options options = KJ_RUN_OPTIONS_INIT;
        kj_error err = KJ_ERROR_INIT;
        options.name = "bench";
        options.flags = KJ_RUN_STRICT;
        if (kj_run_open(&options, &runs[k], &err) < 0)
            fail(err.message);
        kj_run_begin_step(runs[k], k);
    }
    if (write(ready, "", 1) != 1 || read(end, &c, 1) < 0)
        fail("pipe");
    for (int k = 0; k < RUNS_EACH; k++)
        kj_run_close(runs[k]);
    _exit(0);
}

static void start_all(int *ret_end)
{
    int ready[2], end[2];
    char c;
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(end, O_CLOEXEC) < 0)
        fail("pipe");
    for (int k = 0; k < PROCESSES; k++) {
        if (fork() == 0) {
            close(end[1]);
            close(ready[0]);
            train(ready[1], end[0]);
        }
    }
    close(ready[1]);
    close(end[0]);
    for (int k = 0; k < PROCESSES; k++)
        if (read(ready[0], &c, 1) != 1)
            fail("a process with runs has ended");
    *ret_end = end[1];
}

static void read_folder(int root_fd, const char *name)
{
    static char text[1 << 16];
    int dir = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int lock = openat(dir, "lock", O_RDONLY | O_CLOEXEC);
    int json = openat(dir, "run.json", O_RDONLY | O_CLOEXEC);
    if (flock(lock, LOCK_SH | LOCK_NB) == 0 || read(json, text, sizeof text) <= 0)
        fail("a run has ended");
    close(json);
    close(lock);
    close(dir);
}

static void read_plainly(void)
{
    int n = 0;
    DIR *listing = opendir(runtime);
    for (struct dirent *item; listing && (item = readdir(listing));) {
        if (*item->d_name == '.')
            continue;
        read_folder(dirfd(listing), item->d_name);
        n++;
    }
    if (n != RUNS)
        fail("not all runs are there");
    closedir(listing);
}

static void list(void)
{
    kj_run_list *runs;
    kj_error err = KJ_ERROR_INIT;
    if (kj_run_list_load(NULL, &runs, &err) < 0)
        fail(err.message);
    if (kj_run_list_size(runs) != RUNS)
        fail("not all runs are listed");
    kj_run_list_free(runs);
}

static const char *command;

static void run_ps(void)
{
    int out[2], n = 0;
    char text[1 << 16];
    if (pipe2(out, O_CLOEXEC) < 0)
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        execl(command, command, "ps", "--format", "jsonl", NULL);
        _exit(127);
    }
    close(out[1]);
    for (ssize_t size; (size = read(out[0], text, sizeof text)) > 0;)
        for (ssize_t k = 0; k < size; k++)
            n += text[k] == '\n';
    close(out[0]);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0 || n != RUNS)
        fail("kajitori ps does not list all runs");
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_ms(void (*act)(void))
{
    double times[ROUNDS];
    for (int k = 0; k < ROUNDS; k++) {
        double began = now_ms();
        act();
        times[k] = now_ms() - began;
    }
    qsort(times, ROUNDS, sizeof *times, by_size);
    return times[ROUNDS / 2];
}

static void remove_root(void)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-r", root, NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    command = argc > 1 ? argv[1] : "build/kajitori";
    if (!mkdtemp(root))
        fail("no folder");
    snprintf(runtime, sizeof runtime, "%s/runtime", root);
    snprintf(state, sizeof state, "%s/state", root);
    setenv("KAJITORI_RUNTIME_DIR", runtime, 1);
    setenv("KAJITORI_STATE_DIR", state, 1);
    int end;
    start_all(&end);
    double plain = median_ms(read_plainly), listed = median_ms(list), ps = median_ms(run_ps);
    printf("%d live runs in %d processes (medians of %d)\n", RUNS, PROCESSES, ROUNDS);
    printf("  readdir, lock and run.json read:   %8.1f ms    1.0 x\n", plain);
    printf("  kj_run_list_load:                  %8.1f ms %6.1f x\n", listed, listed / plain);
    printf("  kajitori ps, every status asked:   %8.1f ms %6.1f x\n", ps, ps / plain);
    printf("kajitori ps under a second: %s\n", ps < 1000 ? "yes" : "NO");
    close(end);
    while (wait(NULL) > 0)
        ;
    remove_root();
    return ps >= 1000;
}
