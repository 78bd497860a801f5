/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends `tick writer=W number=0`, 1, ... to a run's socket over several connections, each paced so
 * that all together send RATE a second, and looks, for each SAMPLE-th answer, whether the command
 * is in the journal by the time the answer is there. Each command has an id of its own. Prints how
 * many were accepted, how late the last one was sent, and what the samples gave, as JSON.
 *
 * rate-writer FOLDER-OF-THE-RUN FOLDER-OF-THE-JOURNAL CONNECTIONS RATE SECONDS SAMPLE
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 60, TAIL_BYTES = 1 << 20 };

typedef struct writer {
    pthread_t thread;
    int number;
    int fd;
    char in[65536];
    size_t in_size;
    long accepted, sampled, unwritten;
    double late_ms; /* the last one was sent so much after its time */
} writer;

static const char *dir, *journal;
static int n_connections, sample;
static double rate, seconds, began_ms;

static void die(const char *what)
{
    fprintf(stderr, "rate-writer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void wait_until(double when_ms)
{
    double left = when_ms - now_ms();
    struct timespec rest = {(time_t)(left / 1e3), (long)((left - 1e3 * (int)(left / 1e3)) * 1e6)};
    if (left > 0)
        nanosleep(&rest, NULL);
}

static int connect_to_run(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s/sock", dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die(address.sun_path);
    return fd;
}

/* The next line, without its newline; valid until the next call. */
static char *read_line(writer *w)
{
    static _Thread_local char line[65536];
    for (;;) {
        char *newline = memchr(w->in, '\n', w->in_size);
        if (newline) {
            size_t size = (size_t)(newline - w->in);
            memcpy(line, w->in, size);
            line[size] = 0;
            w->in_size -= size + 1;
            memmove(w->in, newline + 1, w->in_size);
            return line;
        }
        ssize_t n = recv(w->fd, w->in + w->in_size, sizeof w->in - w->in_size, 0);
        if (n <= 0)
            die("the run ended the connection");
        w->in_size += (size_t)n;
    }
}

/* Whether the end of the file has `text`. */
static bool is_at_end_of(const char *path, const char *text)
{
    static _Thread_local char tail[TAIL_BYTES + 1];
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        die(path);
    off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    ssize_t n = pread(fd, tail, TAIL_BYTES, from);
    close(fd);
    tail[n > 0 ? n : 0] = 0;
    return strstr(tail, text);
}

/* The part of the journal that was ended last; false when there is none. */
static bool find_older(char *ret_path, size_t size)
{
    char newest[NAME_MAX + 1] = "";
    DIR *folder = opendir(journal);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, "journal-", 8) == 0 && strcmp(entry->d_name, newest) > 0)
            snprintf(newest, sizeof newest, "%s", entry->d_name);
    if (folder)
        closedir(folder);
    snprintf(ret_path, size, "%s/%s", journal, newest);
    return *newest;
}

static void look_at_journal(writer *w, const char *id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/journal.jsonl", journal);
    bool written = is_at_end_of(path, id);
    if (!written && find_older(path, sizeof path))
        written = is_at_end_of(path, id);
    w->sampled++;
    w->unwritten += !written;
}

static void take_answer(writer *w, const char *id)
{
    char *line;
    do { /* events of earlier commands come between */
        line = read_line(w);
    } while (!strstr(line, "\"id\":"));
    if (strstr(line, "\"error\":{")) {
        fprintf(stderr, "rate-writer: %s\n", line);
        exit(1);
    }
    if (++w->accepted % sample == 0)
        look_at_journal(w, id);
}

static void *write_commands(void *data)
{
    writer *w = data;
    long n = (long)(seconds * rate / n_connections);
    w->fd = connect_to_run();
    for (long k = 0; k < n; k++) {
        char request[300], id[40];
        double due_ms = began_ms + 1e3 * ((double)k * n_connections + w->number) / rate;
        wait_until(due_ms);
        w->late_ms = now_ms() - due_ms;
        snprintf(id, sizeof id, "\"w%d-%ld\"", w->number, k);
        int size = snprintf(request, sizeof request,
                            "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"command\",\"params\":{"
                            "\"verb\":\"tick\",\"args\":{\"writer\":%d,\"number\":%ld},"
                            "\"command_id\":%s}}\n",
                            k, w->number, k, id);
        if (send(w->fd, request, (size_t)size, MSG_NOSIGNAL) != size)
            die("send");
        take_answer(w, id);
    }
    close(w->fd);
    return NULL;
}

int main(int argc, char **argv)
{
    static writer writers[MAX_CONNECTIONS];
    writer sum = {0};
    n_connections = argc == 7 ? atoi(argv[3]) : 0;
    if (n_connections < 1 || n_connections > MAX_CONNECTIONS) {
        fprintf(stderr,
                "usage: rate-writer FOLDER JOURNAL-FOLDER CONNECTIONS RATE SECONDS SAMPLE\n");
        return 2;
    }
    dir = argv[1];
    journal = argv[2];
    rate = atof(argv[4]);
    seconds = atof(argv[5]);
    sample = atoi(argv[6]);
    began_ms = now_ms();
    for (int k = 0; k < n_connections; k++) {
        writers[k].number = k;
        if (pthread_create(&writers[k].thread, NULL, write_commands, &writers[k]) != 0)
            die("pthread_create");
    }
    for (int k = 0; k < n_connections; k++) {
        pthread_join(writers[k].thread, NULL);
        sum.accepted += writers[k].accepted;
        sum.sampled += writers[k].sampled;
        sum.unwritten += writers[k].unwritten;
        sum.late_ms = writers[k].late_ms > sum.late_ms ? writers[k].late_ms : sum.late_ms;
    }
    printf("{\"accepted\": %ld, \"sampled\": %ld, \"unwritten\": %ld, \"late_ms\": %.1f, "
           "\"took_s\": %.3f}\n",
           sum.accepted, sum.sampled, sum.unwritten, sum.late_ms, (now_ms() - began_ms) / 1e3);
    return 0;
}
