/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of `tick writer=W number=0`, 1, ... in one of the ways of C programs. Prints how many
 * were taken.
 *
 * loss-writer HOW PATH WRITER COUNT
 *   fopen     opens, writes and closes the FIFO for each
 *   nonblock  the same by open(2) with O_NONBLOCK; where nobody reads at that moment it tries
 *             again for 2 s, then gives that one up
 *   socket    by kj_client_command to the run whose folder is PATH, waiting for "applied"
 */
#include <kajitori.h>
#include <kajitori/client.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GIVE_UP_S = 2 };

static void die(const char *what)
{
    fprintf(stderr, "loss-writer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool write_by_fopen(const char *path, const char *line)
{
    FILE *fifo = fopen(path, "w");
    if (!fifo)
        die(path);
    bool good = fputs(line, fifo) >= 0;
    return fclose(fifo) == 0 && good;
}

static int open_nonblocking(const char *path)
{
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) {
        int fd = open(path, O_WRONLY | O_NONBLOCK);
        if (fd >= 0)
            return fd;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (errno != ENXIO || now.tv_sec - began.tv_sec >= GIVE_UP_S)
            return -1;
        sched_yield();
    }
}

static bool write_nonblocking(const char *path, const char *line)
{
    ssize_t n, size = (ssize_t)strlen(line);
    int fd = open_nonblocking(path);
    if (fd < 0)
        return false;
    while ((n = write(fd, line, (size_t)size)) < 0 && errno == EAGAIN)
        sched_yield();
    close(fd);
    return n == size;
}

static bool send_command(kj_client *client, const char *line)
{
    char params[200], *state = NULL;
    kj_error err = KJ_ERROR_INIT;
    snprintf(params, sizeof params, "{\"line\": \"%.*s\"}", (int)strlen(line) - 1, line);
    if (kj_client_command(client, params, KJ_WAIT_APPLIED, -1, &state, &err) < 0) {
        fprintf(stderr, "loss-writer: %s\n", err.message);
        exit(1);
    }
    kj_free(state);
    return true;
}

static bool write_line(const char *how, const char *path, kj_client *client, const char *line)
{
    if (client)
        return send_command(client, line);
    return strcmp(how, "fopen") == 0 ? write_by_fopen(path, line) : write_nonblocking(path, line);
}

int main(int argc, char **argv)
{
    kj_client *client = NULL;
    kj_error err = KJ_ERROR_INIT;
    int taken = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: loss-writer fopen|nonblock|socket PATH WRITER COUNT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(argv[1], "socket") == 0 && kj_client_open(argv[2], &client, &err) < 0) {
        fprintf(stderr, "loss-writer: %s\n", err.message);
        return 1;
    }
    for (int k = 0; k < atoi(argv[4]); k++) {
        char line[100];
        snprintf(line, sizeof line, "tick writer=%d number=%d\n", atoi(argv[3]), k);
        taken += write_line(argv[1], argv[2], client, line);
    }
    kj_client_close(client);
    printf("%d\n", taken);
    return 0;
}
