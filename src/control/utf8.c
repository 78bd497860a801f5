/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include "strbuf.h"

#include <json-c/json.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the character that `text` begins with, 0 when it is none. */
static size_t character(const unsigned char *text, size_t size)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return 1;
    size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || n > size)
        return 0;
    uint32_t code = first & (0x7fu >> n);
    for (size_t k = 1; k < n; k++) {
        if ((text[k] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[k] & 0x3f);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool good = code >= smallest[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return good ? n : 0;
}

bool kji_utf8_valid(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    while (size) {
        size_t n = character(at, size);
        if (n == 0)
            return false;
        at += n;
        size -= n;
    }
    return true;
}

struct json_object *kji_json_new_text_len(const char *text, size_t size)
{
    kji_strbuf clean = KJI_STRBUF_INIT;
    const unsigned char *at = (const unsigned char *)text;
    while (size) {
        size_t n = character(at, size);
        if (n == 0)
            kji_strbuf_puts(&clean, "\xef\xbf\xbd");
        else if (*at < 0x20 || *at == 0x7f)
            kji_strbuf_putc(&clean, ' ');
        else
            kji_strbuf_add(&clean, (const char *)at, n);
        n = n ? n : 1;
        at += n;
        size -= n;
    }
    struct json_object *json = NULL;
    if (!clean.failed)
        json = json_object_new_string_len(clean.text, (int)clean.size);
    kji_strbuf_done(&clean);
    return json;
}

struct json_object *kji_json_new_text(const char *text, size_t limit)
{
    return kji_json_new_text_len(text ? text : "", text ? strnlen(text, limit) : 0);
}
