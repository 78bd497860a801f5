/* SPDX-License-Identifier: Apache-2.0 */
/* The dirty ones are sorted when they are taken, not when they come; each file knows its place in
 * the heap, so that its time can be changed. */
#include "event-queue.h"

#include "event-dir.h"
#include "mem.h"

#include <string.h>

void kji_event_queue_done(kji_event_queue *queue)
{
    free(queue->dirty);
    free(queue->timed);
    *queue = (kji_event_queue){0};
}

bool kji_event_queue_reserve(kji_event_queue *queue, size_t n_files)
{
    return kji_reserve(&queue->dirty, &queue->dirty_capacity, n_files, sizeof *queue->dirty) &&
           kji_reserve(&queue->timed, &queue->timed_capacity, n_files, sizeof *queue->timed);
}

void kji_event_queue_add(kji_event_queue *queue, kji_event_file *file)
{
    if (file->dirty)
        return;
    file->dirty = true;
    if (queue->n_dirty == queue->dirty_capacity) { /* those before the first have been taken */
        queue->n_dirty -= queue->first_dirty;
        memmove(queue->dirty, queue->dirty + queue->first_dirty,
                queue->n_dirty * sizeof *queue->dirty);
        queue->first_dirty = 0;
    }
    queue->dirty[queue->n_dirty++] = file;
    queue->sorted = queue->n_dirty - queue->first_dirty == 1;
}

static int by_delivery(const void *a, const void *b)
{
    const kji_event_file *x = *(kji_event_file *const *)a, *y = *(kji_event_file *const *)b;
    if (x->folder != y->folder)
        return x->folder->place < y->folder->place ? -1 : 1;
    return strcmp(x->name, y->name);
}

kji_event_file *kji_event_queue_first(kji_event_queue *queue)
{
    size_t n = queue->n_dirty - queue->first_dirty;
    if (n == 0)
        return NULL;
    if (!queue->sorted)
        qsort(queue->dirty + queue->first_dirty, n, sizeof *queue->dirty, by_delivery);
    queue->sorted = true;
    return queue->dirty[queue->first_dirty];
}

void kji_event_queue_remove_first(kji_event_queue *queue)
{
    queue->dirty[queue->first_dirty++]->dirty = false;
    if (queue->first_dirty == queue->n_dirty)
        queue->first_dirty = queue->n_dirty = 0;
}

/* timed_at counts from 1, so that 0 says: not in the heap. */
static void put(kji_event_queue *queue, size_t at, kji_event_file *file)
{
    queue->timed[at] = file;
    file->timed_at = at + 1;
}

/* Moves the file up or down from the free place `at` to where it belongs. */
static void sift(kji_event_queue *queue, size_t at, kji_event_file *file)
{
    while (at > 0 && queue->timed[(at - 1) / 2]->due_ms > file->due_ms) {
        put(queue, at, queue->timed[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (size_t below; (below = 2 * at + 1) < queue->n_timed; at = below) {
        if (below + 1 < queue->n_timed &&
            queue->timed[below + 1]->due_ms < queue->timed[below]->due_ms)
            below++;
        if (queue->timed[below]->due_ms >= file->due_ms)
            break;
        put(queue, at, queue->timed[below]);
    }
    put(queue, at, file);
}

static void take_out(kji_event_queue *queue, kji_event_file *file)
{
    size_t at = file->timed_at - 1;
    kji_event_file *last = queue->timed[--queue->n_timed];
    file->timed_at = 0;
    if (last != file)
        sift(queue, at, last);
}

void kji_event_queue_set_due(kji_event_queue *queue, kji_event_file *file, int64_t due_ms)
{
    file->due_ms = due_ms;
    if (due_ms != INT64_MAX)
        sift(queue, file->timed_at ? file->timed_at - 1 : queue->n_timed++, file);
    else if (file->timed_at)
        take_out(queue, file);
}

void kji_event_queue_wake(kji_event_queue *queue, int64_t now_ms)
{
    while (kji_event_queue_due(queue) <= now_ms) {
        kji_event_file *file = queue->timed[0];
        take_out(queue, file);
        kji_event_queue_add(queue, file);
    }
}
