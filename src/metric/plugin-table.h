/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plugin the values of a tag are for, of one run: writers of TensorFlow 1 say it with the
 * first value of a tag only. Kept are tags whose values are no scalars.
 */
#ifndef KJI_PLUGIN_TABLE_H
#define KJI_PLUGIN_TABLE_H

#include <kajitori/events.h>

#include <stddef.h>

struct kji_plugin_tag;

typedef struct kji_plugin_table { /* zero is an empty one */
    struct kji_plugin_tag *slots;
    size_t n_slots, n_tags;
} kji_plugin_table;

void kji_plugin_table_done(kji_plugin_table *table);

/* The kind of values that the plugin has; TENSOR: it does not say; OTHER: it is not known. */
enum kj_event_kind kji_plugin_kind(const char *plugin, size_t size);

/* Remembers it for a tag unless it is known already, or the table is full. 0 or KJ_EMEM. */
int kji_plugin_table_add(kji_plugin_table *table, const char *tag, size_t size,
                         enum kj_event_kind plugin);

/* KJ_EVENT_KINDS: the tag is not known. */
enum kj_event_kind kji_plugin_table_get(const kji_plugin_table *table, const char *tag,
                                        size_t size);

/* The tags one after the other, in no order: *at begins as 0. NULL: there are no more. */
const char *kji_plugin_table_next(const kji_plugin_table *table, size_t *at, size_t *ret_size,
                                  enum kj_event_kind *ret_plugin);

/* What a value is whose content tells `kind` and that is for a plugin of kind `plugin` (or
 * KJ_EVENT_KINDS). */
enum kj_event_kind kji_plugin_refine(enum kj_event_kind kind, enum kj_event_kind plugin);

#endif
