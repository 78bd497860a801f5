/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our reader, from the opening of a folder to its last value, through the public API; prints
 * seconds, processor seconds, points, and the growth of the process's greatest resident size, as
 * JSON.
 *
 *     events-load all|last|check DIR   keep all values, or each tag's last one; check: keep all,
 * and the payload checksums of images too
 */
#include <kajitori/events.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* VmHWM in kB. */
static long high_water(void)
{
    char line[200];
    long size = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld kB", &size) == 1)
            break;
    if (file)
        fclose(file);
    return size;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    kj_error err = KJ_ERROR_INIT;
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = strcmp(argv[1], "last") == 0 ? 0 : KJ_EVENTS_KEEP;
    if (strcmp(argv[1], "check") == 0)
        options.flags |= KJ_EVENTS_CHECK_ALL;
    char spec[1000];
    snprintf(spec, sizeof spec, "events:%s", argv[2]);
    long before = high_water();
    double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    kj_events *events;
    int r = kj_events_open(spec, &options, &events, &err);
    if (r >= 0)
        r = kj_events_step(events, 0, NULL, NULL, &err);
    if (r < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    start = seconds(CLOCK_MONOTONIC) - start;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(events, &stats);
    printf("{\"seconds\": %.6f, \"cpu\": %.6f, \"events\": %" PRIu64 ", \"rss_kb\": %ld}\n", start,
           cpu, stats.points, high_water() - before);
    kj_events_close(events);
    return 0;
}
