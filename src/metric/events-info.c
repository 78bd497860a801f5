/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader can tell about what it has read: files, damage, series. */
#include "errors.h"
#include "events-impl.h"

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
    const kji_source_kind *kind = events->spec.kind;
    return kind->list_damage ? kind->list_damage(events->instance, fn, userdata) : 0;
}

int kj_events_get_series(kj_events *events, uint32_t series, kj_tag_info *ret_info, kj_error *err)
{
    if (series >= events->tags.n_tags)
        return kji_fail(err, KJ_ENOENT, "no series %u; there are %zu", series, events->tags.n_tags);
    const kj_tag_info info = kji_tag_table_info(&events->tags, events->tags.series[series]);
    kji_give_struct(ret_info, &info, sizeof info);
    return 0;
}
