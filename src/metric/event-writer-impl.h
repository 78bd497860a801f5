/* SPDX-License-Identifier: Apache-2.0 */
/* What a run needs of its writer besides the public calls. */
#ifndef KJI_EVENT_WRITER_IMPL_H
#define KJI_EVENT_WRITER_IMPL_H

#include <kajitori/event-writer.h>

/* As purge_step, later. */
int kji_event_writer_start(kj_event_writer *writer, int64_t step, kj_error *err);

#endif
