/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of texts behind a mutex, which is taken around fork: so a child never finds it held by a
 * thread that it does not have. The reader only tries the lock, it never waits.
 */
#include "bridge.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RING_SIZE = 64, TEXT_SIZE = 1024 };

static struct {
    pthread_mutex_t mutex;
    uint64_t written, taken, lost;
    char text[RING_SIZE][TEXT_SIZE];
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void keep(void *userdata, int level, const char *message)
{
    (void)userdata;
    if (level > KJ_LOG_WARNING)
        return;
    pthread_mutex_lock(&ring.mutex);
    if (ring.written - ring.taken == RING_SIZE) {
        ring.taken++;
        ring.lost++;
    }
    snprintf(ring.text[ring.written++ % RING_SIZE], TEXT_SIZE, "%s", message);
    pthread_mutex_unlock(&ring.mutex);
}

static void hold(void)
{
    pthread_mutex_lock(&ring.mutex);
}

static void release(void)
{
    pthread_mutex_unlock(&ring.mutex);
}

static void hold_around_fork(void)
{
    pthread_atfork(hold, release, release);
}

void kjp_log_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hold_around_fork);
    kj_log_set(keep, NULL);
}

int kjp_log_take(char *buffer, uint64_t size)
{
    int found = 0;

    if (pthread_mutex_trylock(&ring.mutex) != 0)
        return 0;
    if (ring.taken != ring.written) {
        snprintf(buffer, size, "%s", ring.text[ring.taken++ % RING_SIZE]);
        found = 1;
    }
    pthread_mutex_unlock(&ring.mutex);
    return found;
}

uint64_t kjp_log_lost(void)
{
    uint64_t lost;

    if (pthread_mutex_trylock(&ring.mutex) != 0)
        return 0;
    lost = ring.lost;
    ring.lost = 0;
    pthread_mutex_unlock(&ring.mutex);
    return lost;
}
