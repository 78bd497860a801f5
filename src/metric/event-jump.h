/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large record without a scalar (images, graphs, audio) is told by a few of its bytes: the fields
 * are walked, and long ones jumped over without reading them.
 */
#ifndef KJI_EVENT_JUMP_H
#define KJI_EVENT_JUMP_H

#include "event-window.h"
#include "plugin-table.h"

enum kji_jump {
    KJI_JUMP_PASS, /* nothing to deliver or to remember: pass it over */
    KJI_JUMP_READ, /* there may be, or it is unusual: read all of it */
    KJI_JUMP_UNREADABLE
};

/*
 * Looks at the payload [offset, offset + size), all of which is in the file. ret_kinds, all zero,
 * gets its values by kind: for PASS the same as reading all of it gives. The window moves.
 * `plugins` are those of the run.
 */
enum kji_jump kji_event_jump(kji_window *window, uint64_t offset, size_t size,
                             const kji_plugin_table *plugins, uint32_t ret_kinds[KJ_EVENT_KINDS]);

#endif
