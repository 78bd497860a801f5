/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KJI_EVENT_NAME_H
#define KJI_EVENT_NAME_H

#include <stdbool.h>

/* Whether a file of this name is an event file: so readers decide, and writers take no other. */
bool kji_is_event_name(const char *name);

#endif
