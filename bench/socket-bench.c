/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The round trip of a `ping` over a run's socket, against a bare echo over a unix socket: the same
 * layout on both sides (a client process; a server process whose own thread trains, and a thread
 * that answers), the same bytes sent. The two alternate, and so does kj_client_call, which makes
 * and parses JSON on top. With a training that sleeps, all on one processor, then the two sides on
 * two (to wake an idle processor takes longer than all the rest, and where the kernel places a
 * thread is chance: both servers get the same place); and with one that steps without a rest. Exit
 * status 1 when a median ratio of the wire is above 3.
 *
 * socket-bench [ROUNDS [CALLS-PER-ROUND]]
 */
#include <kajitori.h>
#include <kajitori/client.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 2000, WARM_UP = 200 };
#define TARGET 3.0

static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";

typedef struct peer {
    pid_t pid;
    int fd; /* a connection to it */
} peer;

typedef struct figures {
    double echo_us[MAX_ROUNDS], wire_us[MAX_ROUNDS], client_us[MAX_ROUNDS];
    double wire_ratio[MAX_ROUNDS], client_ratio[MAX_ROUNDS];
} figures;

static int n_rounds = 201, n_calls = 200;
static char folder[64];

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* What the training does between two safe points; the same beside both servers. */
static int64_t one_step(int64_t step)
{
    for (volatile int k = 0; k < 500; k++)
        step += k & 1;
    return step;
}

static void *echo_main(void *data)
{
    int listener = *(int *)data, fd = accept(listener, NULL, NULL);
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        if (send(fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)
            break;
    return NULL;
}

/* In a child process: ends when its parent does. */
static void serve_echo(int listener, bool steps)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, echo_main, &listener) != 0)
        die("pthread_create");
    for (int64_t step = 0;; step++) {
        if (!steps)
            pause();
        one_step(step);
    }
}

static void serve_run(int ready_fd, bool steps)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_error err = KJ_ERROR_INIT;
    kj_run *run;
    options.name = "socket-bench";
    options.flags = KJ_RUN_STRICT;
    options.runtime_dir = options.state_dir = folder;
    if (kj_run_open(&options, &run, &err) < 0) {
        fprintf(stderr, "socket-bench: %s\n", err.message);
        _exit(2);
    }
    const char *dir = kj_run_dir(run);
    if (write(ready_fd, dir, strlen(dir) + 1) < 0)
        _exit(2);
    for (int64_t step = 0;; step++) {
        if (!steps)
            pause();
        kj_run_begin_step(run, step);
        one_step(step);
    }
}

/* This process, and what it starts, on this processor; on any for a negative number. */
static void run_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int k = 0; k < CPU_SETSIZE; k++)
        if (processor < 0 || k == processor)
            CPU_SET(k, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        die("sched_setaffinity");
}

static pid_t start_child(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(2);
    }
    return pid;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die(path);
    return fd;
}

static peer start_echo(bool steps)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/echo", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(address.sun_path);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 1) < 0)
        die(address.sun_path);
    peer echo = {.pid = start_child()};
    if (echo.pid == 0)
        serve_echo(listener, steps);
    echo.fd = connect_to(address.sun_path);
    close(listener);
    return echo;
}

/* `dir`, of 200 bytes, becomes the folder of its doors. */
static peer start_run(bool steps, char *dir)
{
    int ready[2];
    char path[256];
    if (pipe(ready) < 0)
        die("pipe");
    peer run = {.pid = start_child()};
    if (run.pid == 0)
        serve_run(ready[1], steps);
    if (read(ready[0], dir, 200) <= 0)
        die("the run");
    close(ready[0]);
    close(ready[1]);
    snprintf(path, sizeof path, "%s/sock", dir);
    run.fd = connect_to(path);
    return run;
}

static void stop_peer(peer *one)
{
    close(one->fd);
    kill(one->pid, SIGKILL);
    waitpid(one->pid, NULL, 0);
}

/* Reads up to a newline; whoever answers sends one line. */
static void receive_line(int fd)
{
    char bytes[4096];
    ssize_t n;
    do {
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            die("recv");
    } while (bytes[n - 1] != '\n');
}

static double time_wire(int fd, int calls)
{
    double start = now_us();
    for (int k = 0; k < calls; k++) {
        if (send(fd, ping, sizeof ping - 1, MSG_NOSIGNAL) < 0)
            die("send");
        receive_line(fd);
    }
    return (now_us() - start) / calls;
}

static double time_client(kj_client *client, int calls)
{
    double start = now_us();
    for (int k = 0; k < calls; k++) {
        char *answer = NULL;
        kj_error err = KJ_ERROR_INIT;
        if (kj_client_call(client, "ping", NULL, -1, &answer, &err) < 0) {
            fprintf(stderr, "socket-bench: %s\n", err.message);
            exit(2);
        }
        kj_free(answer);
    }
    return (now_us() - start) / calls;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `values` has n_rounds of them, sorted afterwards. */
static double quantile(double *values, double share)
{
    qsort(values, (size_t)n_rounds, sizeof *values, by_value);
    return values[(int)(share * (n_rounds - 1))];
}

static void print_row(const char *name, double *us, double *ratio)
{
    printf("  %-34s %7.2f us", name, quantile(us, 0.5));
    if (ratio)
        printf("   %5.2f x   (quartiles %.2f and %.2f)", quantile(ratio, 0.5),
               quantile(ratio, 0.25), quantile(ratio, 0.75));
    printf("\n");
}

/* Returns the median ratio of the wire. The processors as for run_on. */
static double measure(const char *title, bool steps, int server, int client_side)
{
    static figures f;
    char dir[200];
    kj_error err = KJ_ERROR_INIT;
    kj_client *client;
    run_on(server);
    peer echo = start_echo(steps), run = start_run(steps, dir);
    run_on(client_side);
    if (kj_client_open(dir, &client, &err) < 0) {
        fprintf(stderr, "socket-bench: %s\n", err.message);
        exit(2);
    }
    time_wire(echo.fd, WARM_UP);
    time_wire(run.fd, WARM_UP);
    time_client(client, WARM_UP);
    for (int k = 0; k < n_rounds; k++) {
        f.echo_us[k] = time_wire(echo.fd, n_calls);
        f.wire_us[k] = time_wire(run.fd, n_calls);
        f.client_us[k] = time_client(client, n_calls);
        f.wire_ratio[k] = f.wire_us[k] / f.echo_us[k];
        f.client_ratio[k] = f.client_us[k] / f.echo_us[k];
    }
    kj_client_close(client);
    stop_peer(&echo);
    stop_peer(&run);
    printf("%s, median of %d rounds of %d calls\n", title, n_rounds, n_calls);
    print_row("bare echo in C", f.echo_us, NULL);
    print_row("ping, bytes on the wire", f.wire_us, f.wire_ratio);
    print_row("ping, kj_client_call", f.client_us, f.client_ratio);
    return quantile(f.wire_ratio, 0.5);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_rounds = atoi(argv[1]);
    if (argc > 2)
        n_calls = atoi(argv[2]);
    if (n_rounds < 1 || n_rounds > MAX_ROUNDS || n_calls < 1) {
        fprintf(stderr, "usage: socket-bench [ROUNDS [CALLS-PER-ROUND]]\n");
        return 2;
    }
    snprintf(folder, sizeof folder, "/tmp/socket-bench-XXXXXX");
    if (!mkdtemp(folder))
        die(folder);
    double worst = measure("the training sleeps, one processor", false, 0, 0);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        double two = measure("the training sleeps, two processors", false, 1, 0);
        worst = two > worst ? two : worst;
    }
    double busy = measure("the training steps without a rest", true, -1, -1);
    worst = busy > worst ? busy : worst;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0)
        die(command);
    bool reached = worst <= TARGET;
    printf("the wire within %.0f x of the echo: %s\n", TARGET, reached ? "yes" : "NO");
    return reached ? 0 : 1;
}
