/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include "strbuf.h"

#include <json-c/json.h>
#include <string.h>

size_t kji_utf8_decode(const char *text, size_t size, uint32_t *ret_code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)*text;
    size_t n = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    if (n == 0 || lead > 0xf4 || size < n)
        return 0;
    uint32_t code = n == 1 ? lead : lead & (0x7fu >> n);
    for (size_t k = 1; k < n; k++) {
        unsigned char byte = (unsigned char)text[k];
        if ((byte & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (byte & 0x3f);
    }
    if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    *ret_code = code;
    return n;
}

bool kji_utf8_valid(const char *text, size_t size)
{
    uint32_t code;
    while (size) {
        size_t n = kji_utf8_decode(text, size, &code);
        if (n == 0)
            return false;
        text += n;
        size -= n;
    }
    return true;
}

struct json_object *kji_json_new_text_len(const char *text, size_t size)
{
    kji_strbuf clean = KJI_STRBUF_INIT;
    uint32_t code;
    while (size) {
        size_t n = kji_utf8_decode(text, size, &code);
        if (n == 0)
            kji_strbuf_puts(&clean, "\xef\xbf\xbd");
        else if (code < 0x20 || code == 0x7f)
            kji_strbuf_putc(&clean, ' ');
        else
            kji_strbuf_add(&clean, text, n);
        n = n ? n : 1;
        text += n;
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
