/* SPDX-License-Identifier: Apache-2.0 */
/* Checking and expanding agree, and any text with its braces doubled expands to itself. */
#include "template.h"

#include "mem.h"
#include "strbuf.h"

#include "fuzz.h"

#include <string.h>

static char *double_braces(const char *text)
{
    kji_strbuf out = KJI_STRBUF_INIT;
    for (; *text; text++) {
        kji_strbuf_putc(&out, *text);
        if (*text == '{' || *text == '}')
            kji_strbuf_putc(&out, *text);
    }
    return kji_strbuf_take(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const kji_binding bindings[] = {{"lr", "{0.1}"}, {"trial", ""}, {"a.b", "x"}};
    KJI_CLEANUP(kji_freep) char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    KJI_CLEANUP(kji_freep) char *expanded = NULL;
    kj_error err = KJ_ERROR_INIT;
    int checked = kji_template_check(text, bindings, 3, NULL, &err);
    check(kji_template_expand(text, bindings, 3, &expanded, NULL) == checked);
    check((checked == 0) == (expanded != NULL) && (checked == 0) == (err.message[0] == 0));
    KJI_CLEANUP(kji_freep) char *doubled = double_braces(text);
    KJI_CLEANUP(kji_freep) char *same = NULL;
    check(kji_template_expand(doubled, bindings, 3, &same, NULL) == 0);
    check(strcmp(same, text) == 0);
    return 0;
}
