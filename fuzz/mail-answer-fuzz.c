/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's mailbox holds as answers, two versions one after the other with a NUL between: each
 * becomes at most one line, and that is JSON. */
#include "client-mailbox.h"
#include "json.h"
#include "mem.h"

#include "fuzz.h"

#include <string.h>

static struct json_object *parse(const char *text, size_t size)
{
    struct json_object *json = NULL;
    return kji_json_parse(text, size, &json, NULL) < 0 ? NULL : json;
}

static void check_lines(const kji_strbuf *lines)
{
    if (lines->size == 0)
        return;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = parse(lines->text, lines->size - 1);
    check(strchr(lines->text, '\n') == lines->text + lines->size - 1);
    check(json_object_is_type(json, json_type_object));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *text = (const char *)bytes;
    const char *middle = size ? memchr(text, 0, size) : NULL;
    if (!middle)
        return 0;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf lines = KJI_STRBUF_INIT;
    KJI_CLEANUP(kji_json_putp) struct json_object *before = parse(text, (size_t)(middle - text));
    KJI_CLEANUP(kji_json_putp)
    struct json_object *now = parse(middle + 1, size - (size_t)(middle - text) - 1);
    bool is_one = kji_mail_add_lines(&lines, before, now);
    check(is_one || lines.size == 0);
    check_lines(&lines);
    return 0;
}
