/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs and tags of one source: names kept once, what has been seen of each tag, and which tags
 * the user asked for. Pointers to runs and tags live as long as the table.
 */
#ifndef KJI_TAG_TABLE_H
#define KJI_TAG_TABLE_H

#include "plugin-table.h"
#include "series-history.h"

#include <math.h>
#include <string.h>

struct kji_metadata;

typedef struct kji_tag {
    struct kji_run *run;
    char *name; /* NUL-terminated; may hold NULs itself */
    size_t size;
    size_t hash;
    uint32_t series;
    uint32_t rank; /* how well it fits what was asked for; 0 = not at all */
    uint64_t count;
    int64_t first_step, last_step;
    double last_value, min_value, max_value;
    uint32_t dtype;                            /* of the last value */
    char *plugin, *display_name, *description; /* NULL: no metadata yet */
    kji_series_history history;
    struct kji_tag *next; /* the tag that followed this one last time: writers repeat their order */
} kji_tag;

typedef struct kji_run {
    char *name; /* "." for the folder itself */
    kji_tag **slots;
    size_t n_slots, n_tags;
    kji_tag *previous;     /* the last one looked up */
    bool started;          /* a point or a session START has been seen */
    kji_restarts restarts; /* with KJ_EVENTS_KEEP */
    kji_plugin_table plugins;
    uint32_t number; /* in the cursor that is being made */
} kji_run;

typedef struct kji_tag_table {
    char *wanted;           /* NULL: all */
    const char *wanted_run; /* borrowed; NULL: all */
    char *alias;            /* another name of the wanted one; NULL: none */
    kji_run **runs;
    size_t n_runs, runs_capacity;
    uint32_t best_rank; /* of the tags seen so far */
    bool overflow_told;
    kji_tag **series; /* by number, n_tags of them */
    size_t n_tags, series_capacity;
    size_t name_bytes; /* of all tags */
} kji_tag_table;

/* `wanted` is a tag, or RUN/TAG, or NULL for all. false when memory is gone. */
bool kji_tag_table_init(kji_tag_table *table, const char *wanted);

/* Another name of the wanted tag, taken where that itself does not exist. Before there are tags;
 * once. */
bool kji_tag_table_alias(kji_tag_table *table, const char *alias);
void kji_tag_table_done(kji_tag_table *table);

/* NULL when memory is gone. */
kji_run *kji_tag_table_run(kji_tag_table *table, const char *name);

/* Whether anything of this run is to be delivered. */
bool kji_tag_table_wants_run(const kji_tag_table *table, const kji_run *run);

/* The slow half of kji_tag_table_tag. */
int kji_tag_table_search(kji_tag_table *table, kji_run *run, const char *name, size_t size,
                         kji_tag **ret_tag);

/* 1: found or made; 0: the table is full (warned once); KJ_EMEM. */
static inline int kji_tag_table_tag(kji_tag_table *table, kji_run *run, const char *name,
                                    size_t size, kji_tag **ret_tag)
{
    kji_tag *guess = run->previous ? run->previous->next : NULL;
    if (!guess || guess->size != size || memcmp(guess->name, name, size) != 0)
        return kji_tag_table_search(table, run, name, size, ret_tag);
    *ret_tag = run->previous = guess;
    return 1;
}

/* NULL when there is none. */
kji_run *kji_tag_table_find_run(const kji_tag_table *table, const char *name);
kji_tag *kji_tag_table_find_tag(const kji_run *run, const char *name, size_t size);

static inline void kji_tag_count(kji_tag *tag, int64_t step, double value)
{
    if (tag->count++ == 0)
        tag->first_step = step;
    tag->last_step = step;
    tag->last_value = value;
    /* Both are NaN at first, so neither comparison holds then. */
    if (!(value >= tag->min_value) && !isnan(value))
        tag->min_value = value;
    if (!(value <= tag->max_value) && !isnan(value))
        tag->max_value = value;
}

/* Keeps them for a tag that has none yet, cut to a sensible length. 0 or KJ_EMEM. */
int kji_tag_describe(kji_tag *tag, const struct kji_metadata *metadata);

/* Whether its values are to be delivered: nothing that fits better has been seen. */
static inline bool kji_tag_table_selects(const kji_tag_table *table, const kji_tag *tag)
{
    return tag->rank && tag->rank == table->best_rank;
}

/* What is told of a tag. */
kj_tag_info kji_tag_table_info(const kji_tag_table *table, const kji_tag *tag);

/* Calls fn in the order of runs, then tags, until it returns nonzero. Returns that, 0 or KJ_EMEM.
 */
int kji_tag_table_list(const kji_tag_table *table, kj_tag_fn fn, void *userdata);

#endif
