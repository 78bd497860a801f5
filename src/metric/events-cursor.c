/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor is what all kinds of source have in common (figures, runs, series) and what the kind
 * itself needs to go on ("place"), as one line of JSON; docs/event-reader.md specifies it. It may
 * have been cut, edited, or made by another version, so each value is checked as if a stranger had
 * sent it; and where what it says is not true of the files any more, the source notices that as it
 * does with files that change under its eyes.
 */
#include "errors.h"
#include "events-impl.h"
#include "json.h"
#include "mem.h"

#include <string.h>

enum { VERSION = 1, SIZE_LIMIT = 256 << 20 };

static void put_text(kji_strbuf *to, const char *text)
{
    kji_cursor_put_name(to, text, strlen(text));
}

static void save_stats(const kj_events_stats *stats, kji_strbuf *to)
{
    kji_cursor_open(to);
    kji_cursor_open_numbers(to);
    kji_cursor_add_uint(to, stats->bytes);
    kji_cursor_add_uint(to, stats->records);
    kji_cursor_add_uint(to, stats->points);
    kji_cursor_add_uint(to, stats->skipped_records);
    kji_cursor_add_uint(to, stats->skipped_bytes);
    for (size_t k = 0; k < KJ_EVENT_KINDS; k++)
        kji_cursor_add_uint(to, stats->kinds[k]);
    kji_cursor_close_numbers(to);
    kji_cursor_close(to);
}

static void save_plugins(const kji_plugin_table *plugins, kji_strbuf *to)
{
    size_t at = 0, size;
    enum kj_event_kind plugin;
    const char *tag;
    while ((tag = kji_plugin_table_next(plugins, &at, &size, &plugin))) {
        kji_cursor_put_name(to, tag, size);
        kji_cursor_put_uint(to, plugin);
    }
}

static void save_runs(const kji_tag_table *tags, kji_strbuf *to)
{
    kji_cursor_open(to);
    for (size_t k = 0; k < tags->n_runs; k++) {
        tags->runs[k]->number = (uint32_t)k;
        kji_cursor_open(to);
        put_text(to, tags->runs[k]->name);
        kji_cursor_put_uint(to, tags->runs[k]->started);
        save_plugins(&tags->runs[k]->plugins, to);
        kji_cursor_close(to);
    }
    kji_cursor_close(to);
}

static void save_numbers(const kji_tag *tag, kji_strbuf *to)
{
    kji_cursor_open_numbers(to);
    kji_cursor_add_uint(to, tag->count);
    kji_cursor_add_int(to, tag->first_step);
    kji_cursor_add_int(to, tag->last_step);
    kji_cursor_add_double(to, tag->last_value);
    kji_cursor_add_double(to, tag->min_value);
    kji_cursor_add_double(to, tag->max_value);
    kji_cursor_add_uint(to, tag->dtype);
    kji_cursor_close_numbers(to);
}

static void save_series(const kji_tag_table *tags, kji_strbuf *to)
{
    kji_cursor_open(to);
    for (size_t k = 0; k < tags->n_tags; k++) {
        const kji_tag *tag = tags->series[k];
        kji_cursor_open(to);
        kji_cursor_put_uint(to, tag->run->number);
        kji_cursor_put_name(to, tag->name, tag->size);
        save_numbers(tag, to);
        if (tag->plugin) {
            put_text(to, tag->plugin);
            put_text(to, tag->display_name);
            put_text(to, tag->description);
        }
        kji_cursor_close(to);
    }
    kji_cursor_close(to);
}

static void save(const kj_events *events, kji_strbuf *to)
{
    kji_strbuf_puts(to, "{\"kajitori_cursor\":");
    kji_cursor_put_uint(to, VERSION);
    kji_strbuf_puts(to, ",\"spec\":");
    put_text(to, events->text);
    kji_strbuf_puts(to, ",\"run\":");
    put_text(to, events->run ? events->run : "");
    kji_strbuf_puts(to, ",\"stats\":");
    save_stats(&events->stats, to);
    kji_strbuf_puts(to, ",\"runs\":");
    save_runs(&events->tags, to);
    kji_strbuf_puts(to, ",\"series\":");
    save_series(&events->tags, to);
    kji_strbuf_puts(to, ",\"place\":");
    events->spec.kind->save(events->instance, to);
    kji_strbuf_putc(to, '}');
}

int kj_events_get_cursor(const kj_events *events, char **ret_text, uint64_t *ret_size,
                         kj_error *err)
{
    if (!events->spec.kind->save)
        return kji_fail(err, KJ_EUNSUPPORTED, "%s sources have no cursor", events->spec.kind->name);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    save(events, &text);
    if (text.failed)
        return kji_fail_memory(err);
    if (text.size > SIZE_LIMIT)
        return kji_fail(err, KJ_ERANGE, "the cursor has %zu bytes; at most %d can be read back",
                        text.size, SIZE_LIMIT);
    if (ret_size)
        *ret_size = text.size;
    *ret_text = kji_strbuf_take(&text);
    return 0;
}

/* `what` number `index` of it is wrong. */
static int malformed(const kji_cursor_items *items, const char *what, size_t index, kj_error *err)
{
    if (items->wrong == kji_cursor_no_memory)
        return kji_fail_memory(err);
    return kji_fail(err, KJ_EDATA, "malformed cursor: %s %zu: %s", what, index, items->wrong);
}

static int restore_stats(kj_events *events, struct json_object *json, kj_error *err)
{
    kji_cursor_items items = kji_cursor_items_of(json);
    kj_events_stats *stats = &events->stats;
    kji_cursor_numbers numbers = kji_cursor_take_numbers(&items);
    stats->bytes = kji_cursor_next_uint(&numbers, INT64_MAX);
    stats->records = kji_cursor_next_uint(&numbers, INT64_MAX);
    stats->points = kji_cursor_next_uint(&numbers, INT64_MAX);
    stats->skipped_records = kji_cursor_next_uint(&numbers, INT64_MAX);
    stats->skipped_bytes = kji_cursor_next_uint(&numbers, INT64_MAX);
    for (size_t k = 0; k < KJ_EVENT_KINDS; k++)
        stats->kinds[k] = kji_cursor_next_uint(&numbers, INT64_MAX);
    kji_cursor_expect_last(&numbers);
    kji_cursor_expect_end(&items);
    return items.wrong ? malformed(&items, "figures", 0, err) : 0;
}

static void restore_plugins(kji_plugin_table *plugins, kji_cursor_items *items)
{
    while (kji_cursor_more(items)) {
        size_t size = 0;
        KJI_CLEANUP(kji_freep) char *tag = kji_cursor_take_name(items, &size);
        uint64_t plugin = kji_cursor_take_uint(items, KJ_EVENT_KINDS - 1);
        if (!items->wrong &&
            kji_plugin_table_add(plugins, tag, size, (enum kj_event_kind)plugin) < 0)
            items->wrong = kji_cursor_no_memory;
    }
}

/* They come sorted, so that a run's number in the cursor is its place in the table. */
static void restore_run(kji_tag_table *tags, kji_cursor_items *items)
{
    KJI_CLEANUP(kji_freep) char *name = kji_cursor_take_name(items, NULL);
    bool started = kji_cursor_take_uint(items, 1);
    if (items->wrong)
        return;
    kji_run *run = kji_tag_table_run(tags, name);
    kji_cursor_expect(items, run != NULL, kji_cursor_no_memory);
    kji_cursor_expect(items, !run || run == tags->runs[tags->n_runs - 1], "not in their order");
    if (items->wrong)
        return;
    run->started = started;
    restore_plugins(&run->plugins, items);
}

static int restore_runs(kj_events *events, struct json_object *json, kj_error *err)
{
    kji_cursor_items items = kji_cursor_items_of(json);
    while (kji_cursor_more(&items)) {
        kji_cursor_items run = kji_cursor_take_array(&items);
        if (!run.wrong)
            restore_run(&events->tags, &run);
        kji_cursor_expect(&run, run.wrong || items.next == events->tags.n_runs,
                          "not in their order");
        if (run.wrong)
            return malformed(&run, "run", items.next - 1, err);
    }
    kji_cursor_expect(&items, items.next == events->tags.n_runs, "too few");
    return items.wrong ? malformed(&items, "run", items.next, err) : 0;
}

static kji_tag *restore_tag(kji_tag_table *tags, kji_cursor_items *items)
{
    size_t size = 0;
    uint64_t run = kji_cursor_take_uint(items, UINT32_MAX);
    KJI_CLEANUP(kji_freep) char *name = kji_cursor_take_name(items, &size);
    kji_cursor_expect(items, run < tags->n_runs, "no such run");
    kji_cursor_expect(items, items->wrong || !kji_tag_table_find_tag(tags->runs[run], name, size),
                      "a second time");
    if (items->wrong)
        return NULL;
    kji_tag *tag = NULL;
    int r = kji_tag_table_tag(tags, tags->runs[run], name, size, &tag);
    kji_cursor_expect(items, r >= 0, kji_cursor_no_memory);
    kji_cursor_expect(items, r != 0, "too many");
    return tag;
}

static void restore_one_series(kji_tag_table *tags, kji_cursor_items *items)
{
    kji_tag *tag = restore_tag(tags, items);
    if (!tag)
        return;
    kji_cursor_numbers numbers = kji_cursor_take_numbers(items);
    tag->count = kji_cursor_next_uint(&numbers, INT64_MAX);
    tag->first_step = kji_cursor_next_int(&numbers);
    tag->last_step = kji_cursor_next_int(&numbers);
    tag->last_value = kji_cursor_next_double(&numbers);
    tag->min_value = kji_cursor_next_double(&numbers);
    tag->max_value = kji_cursor_next_double(&numbers);
    tag->dtype = (uint32_t)kji_cursor_next_uint(&numbers, UINT32_MAX);
    kji_cursor_expect_last(&numbers);
    if (kji_cursor_more(items)) {
        tag->plugin = kji_cursor_take_name(items, NULL);
        tag->display_name = kji_cursor_take_name(items, NULL);
        tag->description = kji_cursor_take_name(items, NULL);
    }
    kji_cursor_expect_end(items);
}

static int restore_series(kj_events *events, struct json_object *json, kj_error *err)
{
    kji_cursor_items items = kji_cursor_items_of(json);
    while (kji_cursor_more(&items)) {
        kji_cursor_items series = kji_cursor_take_array(&items);
        restore_one_series(&events->tags, &series);
        if (series.wrong)
            return malformed(&series, "series", items.next - 1, err);
    }
    return items.wrong ? malformed(&items, "series", items.next, err) : 0;
}

/* A text of the cursor, decoded, is what it should be. */
static int expect_text(struct json_object *json, const char *key, const char *expected,
                       kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    const char *found = kji_json_string(json, key);
    put_text(&text, expected);
    if (text.failed)
        return kji_fail_memory(err);
    if (found && strlen(found) == text.size - 2 && memcmp(found, text.text + 1, text.size - 2) == 0)
        return 0;
    return kji_fail(err, KJ_EDATA, "the cursor is of another source: its %s is \"%.200s\", not %s",
                    key, found ? found : "", text.text);
}

static int check_head(const kj_events *events, struct json_object *json, kj_error *err)
{
    int64_t version;
    if (!json_object_is_type(json, json_type_object) ||
        !kji_json_int(json, "kajitori_cursor", &version))
        return kji_fail(err, KJ_EDATA, "this is no cursor of kajitori");
    if (version != VERSION)
        return kji_fail(err, KJ_EDATA, "the cursor is of version %lld; this kajitori reads %d",
                        (long long)version, VERSION);
    int r = expect_text(json, "spec", events->text, err);
    return r < 0 ? r : expect_text(json, "run", events->run ? events->run : "", err);
}

static int restore(kj_events *events, struct json_object *json, kj_error *err)
{
    int r = restore_stats(events, json_object_object_get(json, "stats"), err);
    if (r >= 0)
        r = restore_runs(events, json_object_object_get(json, "runs"), err);
    if (r >= 0)
        r = restore_series(events, json_object_object_get(json, "series"), err);
    if (r < 0)
        return r;
    kji_cursor_items place = kji_cursor_items_of(json_object_object_get(json, "place"));
    if (!place.wrong)
        events->spec.kind->restore(events->instance, &place);
    kji_cursor_expect_end(&place);
    return place.wrong ? malformed(&place, "place", place.next, err) : 0;
}

int kji_events_restore(kj_events *events, const char *cursor, kj_error *err)
{
    if (!events->spec.kind->restore)
        return kji_fail(err, KJ_EUNSUPPORTED, "%s sources have no cursor", events->spec.kind->name);
    size_t size = strnlen(cursor, (size_t)SIZE_LIMIT + 1);
    if (size > SIZE_LIMIT)
        return kji_fail(err, KJ_EDATA, "the cursor has more than %d bytes", SIZE_LIMIT);
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = kji_json_parse(cursor, size, &json, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "cursor");
    r = check_head(events, json, err);
    return r < 0 ? r : restore(events, json, err);
}
