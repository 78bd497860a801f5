/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which event files are to be looked at: those that may have changed, in the order of delivery, and
 * those that want to be looked at at some time. A file can be in both. Zeroed is empty.
 */
#ifndef KJI_EVENT_QUEUE_H
#define KJI_EVENT_QUEUE_H

#include "event-file.h"

typedef struct kji_event_queue {
    kji_event_file **dirty; /* [first_dirty, n_dirty) */
    size_t first_dirty, n_dirty, dirty_capacity;
    bool sorted;
    kji_event_file **timed; /* a heap: the earliest first */
    size_t n_timed, timed_capacity;
} kji_event_queue;

void kji_event_queue_done(kji_event_queue *queue);

/* Makes room for `n_files` in all, so that the other calls cannot fail. false when memory is gone.
 */
bool kji_event_queue_reserve(kji_event_queue *queue, size_t n_files);

/* It may have changed. */
void kji_event_queue_add(kji_event_queue *queue, kji_event_file *file);

/* It wants to be looked at at due_ms; INT64_MAX: not any more. Replaces what was set before. */
void kji_event_queue_set_due(kji_event_queue *queue, kji_event_file *file, int64_t due_ms);

/* Adds those whose time has come, which is taken back. */
void kji_event_queue_wake(kji_event_queue *queue, int64_t now_ms);

/* The first of those that may have changed, by the place of its folder and by name; NULL: there is
 * none. It stays until it is removed. */
kji_event_file *kji_event_queue_first(kji_event_queue *queue);
void kji_event_queue_remove_first(kji_event_queue *queue);

/* The earliest time that was set; INT64_MAX: none. */
static inline int64_t kji_event_queue_due(const kji_event_queue *queue)
{
    return queue->n_timed ? queue->timed[0]->due_ms : INT64_MAX;
}

#endif
