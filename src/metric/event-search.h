/* SPDX-License-Identifier: Apache-2.0 */
/* The next good record behind damage, however much damage that is. */
#ifndef KJI_EVENT_SEARCH_H
#define KJI_EVENT_SEARCH_H

#include "event-window.h"

/* Zeroed: nothing has been searched. */
typedef struct kji_event_search {
    uint64_t at;         /* no good record begins between the damage and this offset */
    uint64_t unfinished; /* the first head on the way whose payload is not there yet; 0: none */
    bool running;        /* it has not come to the end of the file */
} kji_event_search;

enum kji_search_end {
    KJI_SEARCH_FOUND,     /* at `at` */
    KJI_SEARCH_NONE,      /* up to the end of the file; when it has grown, go on from `at` */
    KJI_SEARCH_LATER,     /* it is long: go on with another call */
    KJI_SEARCH_UNREADABLE /* with errno */
};

/*
 * Searches from `at` (> 0) on, through at most `most` bytes that must be read. `file_size` is how
 * far claims are believed. *budget, in bytes, is for large payloads that turn out to be none, and
 * goes down: many heads that claim all that follows must not make the search endless. The window
 * moves.
 */
enum kji_search_end kji_event_search_on(kji_event_search *search, kji_window *window,
                                        uint64_t file_size, uint64_t most, uint64_t *budget);

#endif
