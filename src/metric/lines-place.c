/* SPDX-License-Identifier: Apache-2.0 */
#include "lines-place.h"

#include "files.h"
#include "strbuf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kji_lines_place kji_place;

static void keep_log(void *userdata, int level, const char *message)
{
    kji_lines_place *place = userdata;
    if (level > KJ_LOG_WARNING)
        return;
    place->n_logged++;
    snprintf(place->logged, sizeof place->logged, "%s", message);
}

int kji_place_set_up(void **state)
{
    (void)state;
    kji_place = (kji_lines_place){.top = "/tmp/kj-lines-XXXXXX"};
    if (!mkdtemp(kji_place.top))
        return -1;
    snprintf(kji_place.path, sizeof kji_place.path, "%s/file", kji_place.top);
    kj_log_set(keep_log, &kji_place);
    return 0;
}

int kji_place_tear_down(void **state)
{
    (void)state;
    kj_log_set(NULL, NULL);
    kji_test_remove_tree(kji_place.top);
    return 0;
}

static void write_text(const char *path, const char *text, size_t size, int flags)
{
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, text, size, NULL), 0);
    close(fd);
}

void kji_place_append(const char *text)
{
    write_text(kji_place.path, text, strlen(text), O_APPEND);
}

void kji_place_rewrite(const char *text)
{
    write_text(kji_place.path, text, strlen(text), O_TRUNC);
}

void kji_place_replace(const char *text)
{
    char path[140];
    snprintf(path, sizeof path, "%s.new", kji_place.path);
    write_text(path, text, strlen(text), O_TRUNC);
    assert_int_equal(rename(path, kji_place.path), 0);
}

static kj_events *open_at(const char *spec, uint32_t flags, const char *cursor)
{
    const char *at = strstr(spec, "%s");
    char text[400];
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    kj_events *source = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.flags = flags;
    options.cursor = cursor;
    options.poll_ms = 3600000;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at ? at - spec : (int)strlen(spec)), spec,
             at ? kji_place.path : "", at ? at + 2 : "");
    if (kj_events_open(text, &options, &source, &err) < 0)
        fail_msg("%s", err.message);
    return source;
}

kj_events *kji_place_open(const char *spec, uint32_t flags)
{
    return open_at(spec, flags, NULL);
}

kj_events *kji_place_reopen(kj_events *source, const char *spec, uint32_t flags)
{
    char *cursor;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_get_cursor(source, &cursor, NULL, &err) < 0)
        fail_msg("%s", err.message);
    kj_events_close(source);
    source = open_at(spec, flags, cursor);
    kj_free(cursor);
    return source;
}

static void add_row(kji_strbuf *listing, const kji_row *row)
{
    kji_strbuf_printf(listing, "%s %s %lld %.16g %.16g\n", row->run, row->tag, (long long)row->step,
                      row->wall_time, row->value);
}

static void take_all(kj_events *source, kji_strbuf *listing)
{
    kji_rows got = {0};
    kji_rows_drain(source, &got);
    for (size_t k = 0; k < got.n; k++)
        add_row(listing, &got.rows[k]);
    kji_rows_done(&got);
}

void kji_place_expect(kj_events *source, const char *expected)
{
    kji_strbuf listing = KJI_STRBUF_INIT;
    take_all(source, &listing);
    assert_string_equal(listing.text, expected);
    kji_strbuf_done(&listing);
}

void kji_place_check_growth(const char *spec, const char *text, const char *expected)
{
    kji_strbuf listing = KJI_STRBUF_INIT;
    unlink(kji_place.path);
    kj_events *source = kji_place_open(spec, 0);
    for (const char *at = text; *at; at++) {
        write_text(kji_place.path, at, 1, O_APPEND);
        take_all(source, &listing);
    }
    kj_events_finish(source);
    take_all(source, &listing);
    kj_events_close(source);
    assert_string_equal(listing.text, expected);
    kji_strbuf_done(&listing);
    source = kji_place_open(spec, KJ_EVENTS_FINISHED);
    kji_place_expect(source, expected);
    kj_events_close(source);
}

void kji_place_check_cursor(const char *spec, const char *text, const char *expected)
{
    kji_strbuf listing = KJI_STRBUF_INIT;
    kji_rows got = {.stop_after = 1};
    kji_place_rewrite(text);
    kj_events *source = kji_place_open(spec, 0);
    while (kj_events_step(source, 0, kji_rows_collect, &got, NULL) == 1)
        source = kji_place_reopen(source, spec, 0);
    kj_events_finish(source);
    kji_rows_drain(source, &got);
    kj_events_close(source);
    for (size_t k = 0; k < got.n; k++)
        add_row(&listing, &got.rows[k]);
    assert_string_equal(listing.text, expected);
    kji_strbuf_done(&listing);
    kji_rows_done(&got);
}
