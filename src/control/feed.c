/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include "json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const kji_feed_names[KJI_FEED_KINDS] = {"command", "command", "metric", "state"};

void kji_feed_done(kji_feed *feed)
{
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        for (size_t k = 0; feed->ring[kind] && k < KJI_FEED_ROOM; k++)
            free(feed->ring[kind][k].text);
        free(feed->ring[kind]);
    }
    *feed = (kji_feed){0};
}

void kji_feed_put(kji_feed *feed, int kind, const kji_feed_event *event)
{
    uint64_t index = feed->written[kind];
    if (!feed->ring[kind]) {
        feed->ring[kind] = calloc(KJI_FEED_ROOM, sizeof **feed->ring);
        if (!feed->ring[kind]) {
            free(event->text);
            return;
        }
    }
    kji_feed_event *slot = &feed->ring[kind][index % KJI_FEED_ROOM];
    free(slot->text);
    *slot = *event;
    slot->order = feed->order++;
    feed->written[kind]++;
}

void kji_feed_start(const kji_feed *feed, kji_feed_cursor *ret_cursor)
{
    memcpy(ret_cursor->next, feed->written, sizeof ret_cursor->next);
}

const kji_feed_event *kji_feed_next(const kji_feed *feed, kji_feed_cursor *cursor, unsigned wanted,
                                    int *ret_kind, uint64_t *ret_lost)
{
    const kji_feed_event *oldest = NULL;
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        uint64_t written = feed->written[kind], *next = &cursor->next[kind];
        if (!(wanted & 1u << kind)) {
            *next = written;
            continue;
        }
        if (written - *next > KJI_FEED_ROOM) {
            *ret_lost += written - KJI_FEED_ROOM - *next;
            *next = written - KJI_FEED_ROOM;
        }
        if (*next == written)
            continue;
        const kji_feed_event *event = &feed->ring[kind][*next % KJI_FEED_ROOM];
        if (!oldest || event->order < oldest->order) {
            oldest = event;
            *ret_kind = kind;
        }
    }
    if (oldest)
        cursor->next[*ret_kind]++;
    return oldest;
}

static void print_metric(const kji_feed_event *event, kji_strbuf *to)
{
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "event", json_object_new_string("metric"));
    json_object_object_add(fields, "tag", json_object_new_string(event->tag));
    json_object_object_add(fields, "step", json_object_new_int64(event->step));
    json_object_object_add(fields, "value", kji_json_new_double(event->value));
    json_object_object_add(fields, "wall_time", kji_json_new_double(event->wall_time));
    kji_strbuf_puts(to, json_object_to_json_string_ext(fields, JSON_C_TO_STRING_PLAIN |
                                                                   JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(fields);
}

void kji_feed_print(const kji_feed_event *event, int kind, kji_strbuf *to)
{
    kji_strbuf_puts(to, "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":");
    if (kind == KJI_FEED_METRIC)
        print_metric(event, to);
    else
        kji_strbuf_printf(to, "{\"event\":\"%s\",%s", kji_feed_names[kind], event->text + 1);
    kji_strbuf_puts(to, "}\n");
}

void kji_feed_print_gap(uint64_t lost, kji_strbuf *to)
{
    kji_strbuf_printf(to,
                      "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"gap\","
                      "\"lost\":%" PRIu64 "}}\n",
                      lost);
}
