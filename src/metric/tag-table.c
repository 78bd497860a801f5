/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tags are arbitrary bytes in one open-addressed table per run. A writer repeats its tags in the
 * same order, so the first guess is the tag that followed the previous one last time; it is nearly
 * always right and costs one memcmp.
 *
 * A wanted name may be a tag as it stands, or a run and a tag. Where both exist the exact tag wins,
 * then the longest run; a rank says it in one number.
 */
#include "tag-table.h"

#include "errors.h"
#include "event-wire.h"
#include "mem.h"

#include <math.h>
#include <string.h>

enum { MAX_PLUGIN = 256, MAX_DISPLAY_NAME = 1024, MAX_TEXT = 16 << 10 };
enum {
    MAX_TAGS = 200000,
    MAX_NAME_BYTES = 64 << 20,
    RANK_EXACT = UINT32_MAX - 1,
    RANK_ALIAS = UINT32_MAX - 2,
    RANK_ALL = 1
};

bool kji_tag_table_init(kji_tag_table *table, const char *wanted)
{
    *table = (kji_tag_table){0};
    if (!wanted)
        return true;
    table->wanted = strdup(wanted);
    return table->wanted != NULL;
}

bool kji_tag_table_alias(kji_tag_table *table, const char *alias)
{
    table->alias = strdup(alias);
    return table->alias != NULL;
}

static void free_run(kji_run *run)
{
    for (size_t k = 0; k < run->n_slots; k++) {
        if (!run->slots[k])
            continue;
        kji_series_history_done(&run->slots[k]->history);
        free(run->slots[k]->name);
        free(run->slots[k]->plugin);
        free(run->slots[k]->display_name);
        free(run->slots[k]->description);
        free(run->slots[k]);
    }
    free(run->restarts.steps);
    kji_plugin_table_done(&run->plugins);
    free(run->slots);
    free(run->name);
    free(run);
}

void kji_tag_table_done(kji_tag_table *table)
{
    for (size_t k = 0; k < table->n_runs; k++)
        free_run(table->runs[k]);
    free(table->runs);
    free(table->series);
    free(table->alias);
    free(table->wanted);
    *table = (kji_tag_table){0};
}

bool kji_tag_table_wants_run(const kji_tag_table *table, const kji_run *run)
{
    return !table->wanted_run || strcmp(table->wanted_run, run->name) == 0;
}

/* Index of the run, or where it belongs. */
static size_t find_run(const kji_tag_table *table, const char *name, bool *ret_found)
{
    size_t low = 0, high = table->n_runs;
    *ret_found = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(table->runs[middle]->name, name);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

kji_run *kji_tag_table_find_run(const kji_tag_table *table, const char *name)
{
    bool found;
    size_t at = find_run(table, name, &found);
    return found ? table->runs[at] : NULL;
}

kji_run *kji_tag_table_run(kji_tag_table *table, const char *name)
{
    bool found;
    size_t low = find_run(table, name, &found);
    if (found)
        return table->runs[low];
    if (!kji_reserve(&table->runs, &table->runs_capacity, table->n_runs + 1, sizeof *table->runs))
        return NULL;
    kji_run *run = calloc(1, sizeof *run);
    if (!run || !(run->name = strdup(name))) {
        free(run);
        return NULL;
    }
    memmove(table->runs + low + 1, table->runs + low, (table->n_runs - low) * sizeof *table->runs);
    table->runs[low] = run;
    table->n_runs++;
    return run;
}

static uint32_t rank_of(const kji_tag_table *table, const kji_run *run, const kji_tag *tag)
{
    if (!kji_tag_table_wants_run(table, run))
        return 0;
    if (!table->wanted)
        return RANK_ALL;
    size_t wanted_size = strlen(table->wanted);
    if (tag->size == wanted_size && memcmp(tag->name, table->wanted, wanted_size) == 0)
        return RANK_EXACT;
    if (table->alias && tag->size == strlen(table->alias) &&
        memcmp(tag->name, table->alias, tag->size) == 0)
        return RANK_ALIAS;
    size_t run_size = strlen(run->name);
    if (wanted_size != run_size + 1 + tag->size || table->wanted[run_size] != '/' ||
        memcmp(table->wanted, run->name, run_size) != 0 ||
        memcmp(table->wanted + run_size + 1, tag->name, tag->size) != 0)
        return 0;
    return (uint32_t)run_size + 1;
}

/* The slot that holds the name, or the free one where it belongs. */
static kji_tag **find_slot(kji_tag **slots, size_t n_slots, size_t hash, const char *name,
                           size_t size)
{
    for (size_t k = hash & (n_slots - 1);; k = (k + 1) & (n_slots - 1)) {
        kji_tag *tag = slots[k];
        if (!tag || (tag->hash == hash && tag->size == size && memcmp(tag->name, name, size) == 0))
            return &slots[k];
    }
}

static bool grow(kji_run *run)
{
    if (run->n_slots && run->n_tags * 2 < run->n_slots)
        return true;
    size_t n_slots = run->n_slots ? run->n_slots * 2 : 16;
    kji_tag **slots = calloc(n_slots, sizeof(kji_tag *));
    if (!slots)
        return false;
    for (size_t k = 0; k < run->n_slots; k++) {
        kji_tag *tag = run->slots[k];
        if (tag)
            *find_slot(slots, n_slots, tag->hash, tag->name, tag->size) = tag;
    }
    free(run->slots);
    run->slots = slots;
    run->n_slots = n_slots;
    return true;
}

static kji_tag *new_tag(const char *name, size_t size, size_t hash)
{
    kji_tag *tag = calloc(1, sizeof *tag);
    if (!tag || !(tag->name = malloc(size + 1))) {
        free(tag);
        return NULL;
    }
    memcpy(tag->name, name, size);
    tag->name[size] = 0;
    tag->size = size;
    tag->hash = hash;
    tag->min_value = tag->max_value = NAN;
    return tag;
}

static int add_tag(kji_tag_table *table, kji_run *run, size_t hash, const char *name, size_t size,
                   kji_tag **ret_tag)
{
    if (table->n_tags >= MAX_TAGS || size > MAX_NAME_BYTES - table->name_bytes) {
        if (!table->overflow_told)
            kji_log(KJ_LOG_WARNING,
                    "more than %d tags, or than %d MiB of their names: further tags are ignored",
                    MAX_TAGS, MAX_NAME_BYTES >> 20);
        table->overflow_told = true;
        return 0;
    }
    if (!grow(run) ||
        !kji_reserve(&table->series, &table->series_capacity, table->n_tags + 1, sizeof(kji_tag *)))
        return KJ_EMEM;
    kji_tag *tag = new_tag(name, size, hash);
    if (!tag)
        return KJ_EMEM;
    *find_slot(run->slots, run->n_slots, hash, name, size) = tag;
    run->n_tags++;
    table->name_bytes += size;
    tag->run = run;
    tag->series = (uint32_t)table->n_tags;
    table->series[table->n_tags++] = tag;
    tag->rank = rank_of(table, run, tag);
    if (tag->rank > table->best_rank)
        table->best_rank = tag->rank;
    *ret_tag = tag;
    return 1;
}

kji_tag *kji_tag_table_find_tag(const kji_run *run, const char *name, size_t size)
{
    return run->n_slots ? *find_slot(run->slots, run->n_slots, kji_hash(name, size), name, size)
                        : NULL;
}

int kji_tag_table_search(kji_tag_table *table, kji_run *run, const char *name, size_t size,
                         kji_tag **ret_tag)
{
    size_t hash = kji_hash(name, size);
    kji_tag *tag = run->n_slots ? *find_slot(run->slots, run->n_slots, hash, name, size) : NULL;
    if (!tag) {
        int r = add_tag(table, run, hash, name, size, &tag);
        if (r <= 0)
            return r;
    }
    if (run->previous)
        run->previous->next = tag;
    *ret_tag = run->previous = tag;
    return 1;
}

/* At most `limit` bytes, no UTF-8 character cut in two. NULL when memory is gone. */
static char *copy_text(const char *text, size_t size, size_t limit)
{
    if (size > limit)
        for (size = limit; size && ((unsigned char)text[size] & 0xc0) == 0x80;)
            size--;
    char *copy = malloc(size + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

int kji_tag_describe(kji_tag *tag, const struct kji_metadata *metadata)
{
    char *plugin = copy_text(metadata->plugin, metadata->plugin_size, MAX_PLUGIN);
    char *name = copy_text(metadata->display_name, metadata->display_name_size, MAX_DISPLAY_NAME);
    char *description = copy_text(metadata->description, metadata->description_size, MAX_TEXT);
    if (!plugin || !name || !description) {
        free(plugin);
        free(name);
        free(description);
        return KJ_EMEM;
    }
    tag->plugin = plugin;
    tag->display_name = name;
    tag->description = description;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const kji_tag *x = *(kji_tag *const *)a, *y = *(kji_tag *const *)b;
    size_t size = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->name, y->name, size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

kj_tag_info kji_tag_table_info(const kji_tag_table *table, const kji_tag *tag)
{
    return (kj_tag_info){.size = sizeof(kj_tag_info),
                         .series = tag->series,
                         .run = tag->run->name,
                         .tag = tag->name,
                         .tag_size = tag->size,
                         .count = tag->count,
                         .first_step = tag->first_step,
                         .last_step = tag->last_step,
                         .last_value = tag->last_value,
                         .min_value = tag->min_value,
                         .max_value = tag->max_value,
                         .plugin = tag->plugin ? tag->plugin : "",
                         .display_name = tag->display_name ? tag->display_name : "",
                         .description = tag->description ? tag->description : "",
                         .dtype = tag->dtype,
                         .selected = kji_tag_table_selects(table, tag)};
}

static int list_run(const kji_tag_table *table, const kji_run *run, kj_tag_fn fn, void *userdata)
{
    KJI_CLEANUP(kji_freep) kji_tag **sorted = calloc(run->n_tags + 1, sizeof(kji_tag *));
    if (!sorted)
        return KJ_EMEM;
    size_t n = 0;
    for (size_t k = 0; k < run->n_slots; k++)
        if (run->slots[k])
            sorted[n++] = run->slots[k];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t k = 0; k < n; k++) {
        const kj_tag_info info = kji_tag_table_info(table, sorted[k]);
        int r = fn(userdata, &info);
        if (r != 0)
            return r;
    }
    return 0;
}

int kji_tag_table_list(const kji_tag_table *table, kj_tag_fn fn, void *userdata)
{
    for (size_t k = 0; k < table->n_runs; k++) {
        int r = list_run(table, table->runs[k], fn, userdata);
        if (r != 0)
            return r;
    }
    return 0;
}
