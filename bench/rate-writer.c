/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends `tick writer=W number=0`, 1, ... to a run's socket over several connections, each paced so
 * that all together send RATE a second, with up to 16 that have no answer yet, and looks, for each
 * SAMPLE-th answer, whether the command is in the journal by the time the answer is there. Each
 * command has an id of its own. Prints how many were accepted, how late the last one was sent, and
 * what the samples gave, as JSON.
 *
 * rate-writer FOLDER-OF-THE-RUN FOLDER-OF-THE-JOURNAL CONNECTIONS RATE SECONDS SAMPLE
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
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

enum { MAX_CONNECTIONS = 60, TAIL_BYTES = 1 << 20, WHOLE_BYTES = 80 << 20, WINDOW = 16 };

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

static int connect_to_run(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s/sock", dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die(address.sun_path);
    return fd;
}

/* The next line, without its newline, valid until the next call; NULL when none has come whole. */
static char *next_line(writer *w)
{
    static _Thread_local char line[sizeof w->in];
    char *newline = memchr(w->in, '\n', w->in_size);
    if (!newline)
        return NULL;
    size_t size = (size_t)(newline - w->in);
    memcpy(line, w->in, size);
    line[size] = 0;
    w->in_size -= size + 1;
    memmove(w->in, newline + 1, w->in_size);
    return line;
}

/* Waits for more from the run, up to `left_ms`. */
static void receive(writer *w, double left_ms)
{
    struct pollfd from_run = {.fd = w->fd, .events = POLLIN};
    struct timespec limit = {0};
    if (left_ms > 0) {
        limit.tv_sec = (time_t)(left_ms / 1e3);
        limit.tv_nsec = (long)((left_ms - 1e3 * (double)limit.tv_sec) * 1e6);
    }
    if (ppoll(&from_run, 1, &limit, NULL) <= 0)
        return;
    ssize_t n = recv(w->fd, w->in + w->in_size, sizeof w->in - w->in_size, 0);
    if (n <= 0)
        die("the run ended the connection");
    w->in_size += (size_t)n;
}

/* Whether the last `size` bytes of the file have `text`. */
static bool is_at_end_of(const char *path, size_t size, const char *text)
{
    struct stat st;
    char *tail = malloc(size + 1);
    int fd = open(path, O_RDONLY);
    if (!tail || fd < 0 || fstat(fd, &st) < 0)
        die(path);
    off_t from = st.st_size > (off_t)size ? st.st_size - (off_t)size : 0;
    ssize_t n = pread(fd, tail, size, from);
    close(fd);
    tail[n > 0 ? n : 0] = 0;
    bool found = strstr(tail, text);
    free(tail);
    return found;
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

/* Near the end; else, since this thread may have been kept from running, in all of the two newest
 * parts. */
static bool is_written(const char *id)
{
    char path[PATH_MAX], older[PATH_MAX];
    snprintf(path, sizeof path, "%s/journal.jsonl", journal);
    return is_at_end_of(path, TAIL_BYTES, id) || is_at_end_of(path, WHOLE_BYTES, id) ||
           (find_older(older, sizeof older) && is_at_end_of(older, WHOLE_BYTES, id));
}

static void look_at_journal(writer *w, const char *id)
{
    w->sampled++;
    w->unwritten += !is_written(id);
}

/* The answers among the lines that have come; the others tell what became of earlier commands. */
static void take_answers(writer *w)
{
    char *line, id[40];
    while ((line = next_line(w))) {
        char *number = strstr(line, "\"id\":");
        if (strstr(line, "\"error\":{")) {
            fprintf(stderr, "rate-writer: %s\n", line);
            exit(1);
        }
        if (!number || strstr(line, "\"method\""))
            continue;
        snprintf(id, sizeof id, "\"w%d-%ld\"", w->number, strtol(number + 5, NULL, 10));
        if (++w->accepted % sample == 0)
            look_at_journal(w, id);
    }
}

static void send_command(writer *w, long k)
{
    char request[300];
    int size = snprintf(request, sizeof request,
                        "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"command\",\"params\":{"
                        "\"verb\":\"tick\",\"args\":{\"writer\":%d,\"number\":%ld},"
                        "\"command_id\":\"w%d-%ld\"}}\n",
                        k, w->number, k, w->number, k);
    if (send(w->fd, request, (size_t)size, MSG_NOSIGNAL) != size)
        die("send");
}

/* Each command at its time, as long as not too many are without an answer. */
static void *write_commands(void *data)
{
    writer *w = data;
    long n = (long)(seconds * rate / n_connections), sent = 0;
    w->fd = connect_to_run();
    while (w->accepted < n) {
        double due_ms = began_ms + 1e3 * ((double)sent * n_connections + w->number) / rate;
        double left_ms = sent < n && sent - w->accepted < WINDOW ? due_ms - now_ms() : 1e3;
        if (left_ms <= 0) {
            w->late_ms = -left_ms;
            send_command(w, sent++);
        }
        receive(w, left_ms);
        take_answers(w);
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
