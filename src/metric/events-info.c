/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader can tell about what it has read: files, damage, series. */
#include "errors.h"

#include <kajitori/events.h>

const char *kj_event_kind_name(uint32_t kind)
{
    static const char *const names[] = {
#define KIND_NAME(name, number, text) [number] = text,
        KJ_EVENT_KIND_MAP(KIND_NAME)
#undef KIND_NAME
    };
    return kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

const char *kj_damage_kind_name(uint32_t kind)
{
    static const char *const names[] = {
#define DAMAGE_NAME(name, number, text) [number] = text,
        KJ_DAMAGE_MAP(DAMAGE_NAME)
#undef DAMAGE_NAME
    };
    return kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

int kj_events_list_damage(kj_events *events, kj_damage_fn fn, void *userdata)
{
    (void)events, (void)fn, (void)userdata;
    return 0;
}

int kj_events_list_files(kj_events *events, kj_file_fn fn, void *userdata)
{
    (void)events, (void)fn, (void)userdata;
    return 0;
}

int kj_events_get_series(kj_events *events, uint32_t series, kj_tag_info *ret_info, kj_error *err)
{
    (void)events, (void)series, (void)ret_info;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}
