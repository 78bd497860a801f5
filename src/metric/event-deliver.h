/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the payload of one record: its values are counted by kind, its scalars go to the
 * sink. */
#ifndef KJI_EVENT_DELIVER_H
#define KJI_EVENT_DELIVER_H

#include "event-file.h"

/*
 * Values before number file->mark.values_done, which goes up with each of them, have been delivered
 * before. Nothing of a malformed message (*ret_good) is delivered. 0; 1: the sink wants no more,
 * perhaps before the end of the record; KJ_EMEM.
 */
int kji_deliver_event(kji_event_file *file, kji_sink *sink, const unsigned char *payload,
                      size_t size, bool *ret_good);

#endif
