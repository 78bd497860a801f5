/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors that a reader brings along: taken back only where the run may have given them. */
#include "feed.h"

#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    kji_feed feed = {.life = 0xabc};
    kji_feed_cursor cursor;
    kj_error err = KJ_ERROR_INIT;
    char text[200];
    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, bytes, size);
    text[size] = 0;
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++)
        feed.ring[kind].written = 1000;
    int r = kji_feed_cursor_parse(&feed, text, &cursor, &err);
    check(r == 0 || r == 1 || (r < 0 && *err.message));
    if (r != 1)
        return 0;
    char again[KJI_FEED_CURSOR_TEXT];
    kji_feed_cursor same;
    for (int kind = 0; kind < KJI_FEED_KINDS; kind++)
        check(cursor.next[kind] <= 1000);
    kji_feed_cursor_text(&feed, &cursor, again);
    check(kji_feed_cursor_parse(&feed, again, &same, &err) == 1);
    check(memcmp(&cursor, &same, sizeof cursor) == 0);
    return 0;
}
