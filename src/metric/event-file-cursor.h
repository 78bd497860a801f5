/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KJI_EVENT_FILE_CURSOR_H
#define KJI_EVENT_FILE_CURSOR_H

#include "cursor-text.h"
#include "event-file.h"

/* Appends [run, name, ...]; the run must have its number. */
void kji_event_file_save(const kji_event_file *file, kji_strbuf *to);

/* Takes what stands behind the run and the name into a new file. */
void kji_event_file_restore(kji_event_file *file, kji_cursor_items *items);

#endif
