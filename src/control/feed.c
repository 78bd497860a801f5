/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include "clock.h"
#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ROOM_AT_FIRST = 64 };

const char *const kji_feed_names[KJI_FEED_KINDS] = {"command", "command", "metric", "state"};

void kji_feed_init(kji_feed *feed)
{
    *feed = (kji_feed){0};
    if (getrandom(&feed->life, sizeof feed->life, 0) != (ssize_t)sizeof feed->life)
        feed->life = (uint64_t)(kji_wall_time() * 1e6);
}

static kji_feed_event *event_at(const kji_feed_ring *ring, uint64_t number)
{
    return &ring->event[number & (ring->capacity - 1)];
}

static void drop_oldest(kji_feed_ring *ring, int kind)
{
    kji_feed_event *oldest = event_at(ring, ring->first++);
    if (kind == KJI_FEED_METRIC)
        return;
    ring->bytes -= oldest->size;
    free(oldest->text);
    oldest->text = NULL;
}

void kji_feed_done(kji_feed *feed)
{
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        kji_feed_ring *ring = &feed->ring[kind];
        while (ring->first < ring->written)
            drop_oldest(ring, kind);
        free(ring->event);
    }
    *feed = (kji_feed){0};
}

/* Makes the ring twice as large, if it may be and memory allows. */
static bool grow(kji_feed_ring *ring, int kind)
{
    const size_t room = kind == KJI_FEED_METRIC ? KJI_FEED_METRIC_ROOM : KJI_FEED_ROOM;
    size_t capacity = ring->capacity ? 2 * ring->capacity : ROOM_AT_FIRST;
    if (capacity > room)
        return false;
    kji_feed_event *event = malloc(capacity * sizeof *event);
    if (!event)
        return false;
    for (uint64_t n = ring->first; n < ring->written; n++)
        event[n & (capacity - 1)] = *event_at(ring, n);
    free(ring->event);
    ring->event = event;
    ring->capacity = capacity;
    return true;
}

void kji_feed_put(kji_feed *feed, int kind, const kji_feed_event *event)
{
    kji_feed_ring *ring = &feed->ring[kind];
    if (ring->written - ring->first == ring->capacity && !grow(ring, kind)) {
        if (ring->capacity == 0) {
            if (kind != KJI_FEED_METRIC)
                free(event->text);
            ring->first = ++ring->written;
            return;
        }
        drop_oldest(ring, kind);
    }
    kji_feed_event *slot = event_at(ring, ring->written++);
    *slot = *event;
    slot->order = feed->order++;
    if (kind == KJI_FEED_METRIC)
        return;
    ring->bytes += slot->size;
    while (ring->bytes > KJI_FEED_BYTES && ring->written - ring->first > 1)
        drop_oldest(ring, kind);
}

void kji_feed_end(const kji_feed *feed, kji_feed_cursor *ret_cursor)
{
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++)
        ret_cursor->next[kind] = feed->ring[kind].written;
}

void kji_feed_begin(const kji_feed *feed, kji_feed_cursor *ret_cursor)
{
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++)
        ret_cursor->next[kind] = feed->ring[kind].first;
}

uint64_t kji_feed_skip_lost(const kji_feed *feed, kji_feed_cursor *cursor, unsigned wanted)
{
    uint64_t lost = 0;
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        const kji_feed_ring *ring = &feed->ring[kind];
        uint64_t *next = &cursor->next[kind];
        if (!(wanted & 1u << kind)) {
            *next = ring->written;
        } else if (*next < ring->first) {
            lost += ring->first - *next;
            *next = ring->first;
        }
    }
    return lost;
}

const kji_feed_event *kji_feed_next(const kji_feed *feed, kji_feed_cursor *cursor, int *ret_kind)
{
    const kji_feed_event *oldest = NULL;
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        const kji_feed_ring *ring = &feed->ring[kind];
        if (cursor->next[kind] == ring->written)
            continue;
        const kji_feed_event *event = event_at(ring, cursor->next[kind]);
        if (!oldest || event->order < oldest->order) {
            oldest = event;
            *ret_kind = kind;
        }
    }
    if (oldest)
        cursor->next[*ret_kind]++;
    return oldest;
}

static char *print_hex(char *to, uint64_t value)
{
    int shift = 60;
    while (shift > 0 && value >> shift == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[value >> shift & 15];
    return to;
}

const char *kji_feed_cursor_text(const kji_feed *feed, const kji_feed_cursor *cursor,
                                 char text[KJI_FEED_CURSOR_TEXT])
{
    char *end = print_hex(text, feed->life);
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++) {
        *end++ = '.';
        end = print_hex(end, cursor->next[kind]);
    }
    *end = 0;
    return text;
}

/* 1 to 16 small hexadecimal digits. */
static bool take_hex(const char **text, uint64_t *ret_value)
{
    size_t n = strspn(*text, "0123456789abcdef");
    if (n == 0 || n > 16)
        return false;
    *ret_value = strtoull(*text, NULL, 16);
    *text += n;
    return true;
}

int kji_feed_cursor_parse(const kji_feed *feed, const char *text, kji_feed_cursor *ret_cursor,
                          kj_error *err)
{
    const char *at = text;
    uint64_t life;
    kji_feed_cursor cursor = {0};
    bool good = take_hex(&at, &life), is_ours = good && life == feed->life;
    for (int kind = 0; good && kind < KJI_FEED_KINDS; kind++) {
        good = *at++ == '.' && take_hex(&at, &cursor.next[kind]);
        good = good && (!is_ours || cursor.next[kind] <= feed->ring[kind].written);
    }
    if (!good || *at)
        return kji_fail(err, KJ_EARG, "\"%.100s\" is no cursor that this run has given", text);
    if (!is_ours)
        return 0;
    *ret_cursor = cursor;
    return 1;
}

/* A tag, which is UTF-8. */
static void print_string(const char *text, kji_strbuf *to)
{
    kji_strbuf_putc(to, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20)
            kji_strbuf_printf(to, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            kji_strbuf_add(to, (char[]){'\\', *text}, 2);
        else
            kji_strbuf_putc(to, *text);
    }
    kji_strbuf_putc(to, '"');
}

static void print_double(double value, kji_strbuf *to)
{
    char text[KJI_DOUBLE_TEXT];
    if (isnan(value))
        kji_strbuf_puts(to, "\"NaN\"");
    else if (isinf(value))
        kji_strbuf_puts(to, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
    else
        kji_strbuf_puts(to, kji_double_text(value, text));
}

static void print_metric(const kji_feed_event *event, kji_strbuf *to)
{
    kji_strbuf_puts(to, "\"tag\":");
    print_string(event->tag, to);
    kji_strbuf_printf(to, ",\"step\":%" PRId64, event->step);
    if (event->epoch >= 0)
        kji_strbuf_printf(to, ",\"epoch\":%" PRId64, event->epoch);
    kji_strbuf_puts(to, ",\"value\":");
    print_double(event->value, to);
    kji_strbuf_puts(to, ",\"wall_time\":");
    print_double(event->wall_time, to);
}

static void print_head(const kji_feed *feed, const char *name, const kji_feed_cursor *cursor,
                       kji_strbuf *to)
{
    char text[KJI_FEED_CURSOR_TEXT];
    kji_strbuf_puts(to, "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"");
    kji_strbuf_puts(to, name);
    kji_strbuf_puts(to, "\",\"cursor\":\"");
    kji_strbuf_puts(to, kji_feed_cursor_text(feed, cursor, text));
    kji_strbuf_puts(to, "\",");
}

void kji_feed_print(const kji_feed *feed, const kji_feed_event *event, int kind,
                    const kji_feed_cursor *cursor, kji_strbuf *to)
{
    print_head(feed, kji_feed_names[kind], cursor, to);
    if (kind == KJI_FEED_METRIC) {
        print_metric(event, to);
        kji_strbuf_puts(to, "}}\n");
    } else {
        kji_strbuf_add(to, event->text + 1, event->size - 1); /* with its closing brace */
        kji_strbuf_puts(to, "}\n");
    }
}

void kji_feed_print_gap(const kji_feed *feed, int64_t lost, const kji_feed_cursor *cursor,
                        kji_strbuf *to)
{
    print_head(feed, "gap", cursor, to);
    kji_strbuf_printf(to, "\"lost\":%" PRId64 "}}\n", lost);
}
