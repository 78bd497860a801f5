/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin-table.h"

#include "mem.h"

#include <string.h>

enum { MAX_TAGS = 20000 };

struct kji_plugin_tag {
    char *name; /* NULL: the slot is free */
    size_t size, hash;
    enum kj_event_kind plugin;
};

void kji_plugin_table_done(kji_plugin_table *table)
{
    for (size_t k = 0; k < table->n_slots; k++)
        free(table->slots[k].name);
    free(table->slots);
    *table = (kji_plugin_table){0};
}

enum kj_event_kind kji_plugin_kind(const char *plugin, size_t size)
{
    static const struct {
        const char *name;
        enum kj_event_kind kind;
    } plugins[] = {
        {"", KJ_EVENT_TENSOR},
        {"scalars", KJ_EVENT_TENSOR},
        {"tensor", KJ_EVENT_TENSOR},
        {"images", KJ_EVENT_IMAGE},
        {"histograms", KJ_EVENT_HISTOGRAM},
        {"audio", KJ_EVENT_AUDIO},
        {"text", KJ_EVENT_TEXT},
        {"hparams", KJ_EVENT_HPARAMS},
        {"graphs", KJ_EVENT_GRAPH},
        {"graph_keras_model", KJ_EVENT_GRAPH},
        {"graph_run_metadata", KJ_EVENT_RUN_METADATA},
        {"graph_run_metadata_graph", KJ_EVENT_RUN_METADATA},
    };
    for (size_t k = 0; k < sizeof plugins / sizeof *plugins; k++)
        if (strlen(plugins[k].name) == size && memcmp(plugins[k].name, plugin, size) == 0)
            return plugins[k].kind;
    return KJ_EVENT_OTHER;
}

/* The slot that holds the tag, or the free one where it belongs. */
static struct kji_plugin_tag *find(struct kji_plugin_tag *slots, size_t n_slots, size_t hash,
                                   const char *name, size_t size)
{
    for (size_t k = hash & (n_slots - 1);; k = (k + 1) & (n_slots - 1)) {
        struct kji_plugin_tag *tag = &slots[k];
        if (!tag->name ||
            (tag->hash == hash && tag->size == size && memcmp(tag->name, name, size) == 0))
            return tag;
    }
}

static bool grow(kji_plugin_table *table)
{
    if (table->n_tags * 2 < table->n_slots)
        return true;
    size_t n_slots = table->n_slots ? table->n_slots * 2 : 16;
    struct kji_plugin_tag *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (size_t k = 0; k < table->n_slots; k++) {
        const struct kji_plugin_tag *tag = &table->slots[k];
        if (tag->name)
            *find(slots, n_slots, tag->hash, tag->name, tag->size) = *tag;
    }
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

int kji_plugin_table_add(kji_plugin_table *table, const char *tag, size_t size,
                         enum kj_event_kind plugin)
{
    if (table->n_tags >= MAX_TAGS)
        return 0;
    if (!grow(table))
        return KJ_EMEM;
    size_t hash = kji_hash(tag, size);
    struct kji_plugin_tag *slot = find(table->slots, table->n_slots, hash, tag, size);
    if (slot->name)
        return 0;
    char *name = malloc(size + 1);
    if (!name)
        return KJ_EMEM;
    memcpy(name, tag, size);
    *slot = (struct kji_plugin_tag){name, size, hash, plugin};
    table->n_tags++;
    return 0;
}

enum kj_event_kind kji_plugin_table_get(const kji_plugin_table *table, const char *tag, size_t size)
{
    if (table->n_tags == 0)
        return KJ_EVENT_KINDS;
    const struct kji_plugin_tag *slot =
        find(table->slots, table->n_slots, kji_hash(tag, size), tag, size);
    return slot->name ? slot->plugin : KJ_EVENT_KINDS;
}

const char *kji_plugin_table_next(const kji_plugin_table *table, size_t *at, size_t *ret_size,
                                  enum kj_event_kind *ret_plugin)
{
    while (*at < table->n_slots) {
        const struct kji_plugin_tag *tag = &table->slots[(*at)++];
        if (!tag->name)
            continue;
        *ret_size = tag->size;
        *ret_plugin = tag->plugin;
        return tag->name;
    }
    return NULL;
}

enum kj_event_kind kji_plugin_refine(enum kj_event_kind kind, enum kj_event_kind plugin)
{
    if (plugin == KJ_EVENT_KINDS || plugin == KJ_EVENT_TENSOR)
        return kind;
    if (kind == KJ_EVENT_NO_VALUE)
        return plugin == KJ_EVENT_HPARAMS ? KJ_EVENT_HPARAMS : kind;
    if (kind == KJ_EVENT_TENSOR || (kind == KJ_EVENT_UNDECODABLE && plugin != KJ_EVENT_OTHER))
        return plugin;
    return kind;
}
