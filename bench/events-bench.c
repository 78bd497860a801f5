/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long our reader takes for an event: writes EVENTS scalar records (10 tags, as PyTorch's
 * add_scalar does) to a file in a temporary folder and reads them through the public API, five
 * times. Prints the best processor time.
 *
 *     events-bench [EVENTS]
 */
#include <kajitori/events.h>

#include "event-frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static size_t put_varint(unsigned char *to, uint64_t value)
{
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        to[n++] = (unsigned char)(value | 0x80);
    to[n++] = (unsigned char)value;
    return n;
}

/* One serialized Event with one simple_value. */
static size_t make_event(unsigned char *event, uint64_t step, const char *tag, float value)
{
    unsigned char *to = event;
    double wall_time = 1.7e9 + (double)step;
    size_t tag_size = strlen(tag);
    *to++ = 0x09;
    to = mempcpy(to, &wall_time, 8);
    *to++ = 0x10;
    to += put_varint(to, step);
    *to++ = 0x2a;
    *to++ = (unsigned char)(tag_size + 9);
    *to++ = 0x0a;
    *to++ = (unsigned char)(tag_size + 7);
    *to++ = 0x0a;
    *to++ = (unsigned char)tag_size;
    to = mempcpy(to, tag, tag_size);
    *to++ = 0x15;
    to = mempcpy(to, &value, 4);
    return (size_t)(to - event);
}

static int write_file(const char *path, uint64_t n_events)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    for (uint64_t k = 0; k < n_events; k++) {
        unsigned char event[100], head[KJI_FRAME_HEAD], tail[4];
        char tag[20];
        snprintf(tag, sizeof tag, "train/metric_%d", (int)(k % 10));
        size_t size = make_event(event, k / 10, tag, 1.0f / (float)(k + 1));
        kji_frame_seal(event, size, head, tail);
        fwrite(head, sizeof head, 1, file);
        fwrite(event, size, 1, file);
        fwrite(tail, sizeof tail, 1, file);
    }
    return fclose(file);
}

static int count(void *userdata, const kj_point *point)
{
    *(double *)userdata += point->value;
    return 0;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int read_once(const char *folder, uint64_t n_events, double *ret_seconds)
{
    char spec[200];
    snprintf(spec, sizeof spec, "events:%s", folder);
    kj_events *source;
    kj_error err = KJ_ERROR_INIT;
    double sum = 0, start = cpu_seconds();
    int r = kj_events_open(spec, NULL, &source, &err);
    if (r >= 0) {
        r = kj_events_step(source, 0, count, &sum, &err);
        kj_events_close(source);
    }
    *ret_seconds = cpu_seconds() - start;
    if (r < 0 || (uint64_t)r != n_events)
        fprintf(stderr, "%d events instead of %llu %s\n", r, (unsigned long long)n_events,
                err.message);
    return r >= 0 && (uint64_t)r == n_events;
}

int main(int argc, char **argv)
{
    uint64_t n_events = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    char folder[] = "/tmp/kj-events-bench-XXXXXX", path[100];
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/events.out.tfevents.1700000000.bench", folder);
    double best = 1e9;
    bool good = write_file(path, n_events) == 0;
    for (int k = 0; good && k < 5; k++) {
        double seconds;
        good = read_once(folder, n_events, &seconds);
        if (seconds < best)
            best = seconds;
    }
    unlink(path);
    rmdir(folder);
    if (!good)
        return 1;
    printf("%llu events, both checksums: %.1f ns of processor time per event\n",
           (unsigned long long)n_events, best * 1e9 / (double)n_events);
    return 0;
}
