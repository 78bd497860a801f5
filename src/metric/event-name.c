/* SPDX-License-Identifier: Apache-2.0 */
#include "event-name.h"

#include <stddef.h>
#include <string.h>

bool kji_is_event_name(const char *name)
{
    static const char *const others[] = {".profile-empty", ".gz", ".tmp", ".swp", ".part"};
    if (name[0] == '.' || !strstr(name, ".tfevents."))
        return false;
    size_t size = strlen(name);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        size_t tail = strlen(others[k]);
        if (size >= tail && strcmp(name + size - tail, others[k]) == 0)
            return false;
    }
    return true;
}
