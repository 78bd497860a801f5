/* SPDX-License-Identifier: Apache-2.0 */
/* Points as columns: block by block (kj_events_next), and all that was kept of one series. */
#include "errors.h"
#include "events-impl.h"
#include "mem.h"

#include <string.h>

enum { DEFAULT_POINTS = 65536, MOST_POINTS = 1 << 24 };

int kj_events_next(kj_events *events, int timeout_ms, uint64_t max_points, kj_columns **ret_columns,
                   kj_error *err)
{
    if (max_points > MOST_POINTS)
        return kji_fail(err, KJ_EARG, "max_points is %llu; expected at most %d",
                        (unsigned long long)max_points, MOST_POINTS);
    uint64_t limit = max_points ? max_points : DEFAULT_POINTS;
    kji_columns *block = kji_columns_take(&events->pool, limit);
    if (!block)
        return kji_fail_memory(err);
    kji_sink sink = {.block = block, .block_limit = limit};
    int r = kji_events_step_into(events, timeout_ms, &sink, err);
    /* What was delivered before a failure is not lost: the failure comes again with the next call.
     */
    if (r < 0 && block->seen.n == 0) {
        kji_columns_unref(block);
        return r;
    }
    *ret_columns = &block->seen;
    return (int)block->seen.n;
}

/* `name`: of the tag when the run is there, else of the run. */
static int no_such_series(const kj_events *events, const kji_run *run, const char *name,
                          kj_error *err)
{
    const kji_tag_table *tags = &events->tags;
    size_t n = run ? tags->n_tags : tags->n_runs, n_known = 0;
    KJI_CLEANUP(kji_freep) const char **known = calloc(n + 1, sizeof *known);
    if (!known)
        return kji_fail_memory(err);
    for (size_t k = 0; k < n; k++)
        if (!run)
            known[n_known++] = tags->runs[k]->name;
        else if (tags->series[k]->run == run)
            known[n_known++] = tags->series[k]->name;
    return kji_fail_unknown(err, KJ_ENOENT, run ? "tag" : "run", name, known, n_known);
}

int kj_events_get_history(kj_events *events, const char *run_name, const char *tag_name,
                          uint64_t tag_size, enum kj_merge merge, kj_columns **ret_columns,
                          kj_error *err)
{
    if (!(events->options.flags & KJ_EVENTS_KEEP))
        return kji_fail(err, KJ_ESTATE, "no points are kept; open the source with KJ_EVENTS_KEEP");
    if ((uint32_t)merge > KJ_MERGE_FIRST)
        return kji_fail(err, KJ_EARG, "merge %d: expected %d to %d of enum kj_merge", (int)merge,
                        KJ_MERGE_ALL, KJ_MERGE_FIRST);
    kji_run *run = kji_tag_table_find_run(&events->tags, run_name);
    kji_tag *tag = run ? kji_tag_table_find_tag(run, tag_name, tag_size) : NULL;
    if (!tag) {
        KJI_CLEANUP(kji_freep) char *name = run ? strndup(tag_name, tag_size) : strdup(run_name);
        return name ? no_such_series(events, run, name, err) : kji_fail_memory(err);
    }
    kji_columns *columns = kji_series_history_merge(&tag->history, &run->restarts, merge);
    if (!columns)
        return kji_fail_memory(err);
    *ret_columns = &columns->seen;
    return 0;
}
