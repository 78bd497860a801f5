/* SPDX-License-Identifier: Apache-2.0 */
/* The text language: a line is a command, nothing, or refused with a reason; what it is, is text
 * within the limits. */
#include "text-line.h"
#include "utf8.h"

#include "fuzz.h"

#include <string.h>

static void check_text(const char *text)
{
    check(strlen(text) <= KJI_LINE_MAX && kji_utf8_valid(text, strlen(text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static kji_text_line line;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_text_line_parse((const char *)bytes, size, &line, &err);
    check(r == 0 || r == 1 || (r == KJ_EDATA && *err.message));
    if (r != 1)
        return 0;
    check(kji_name_valid(line.verb));
    for (size_t k = 0; k < line.n_words; k++)
        check_text(line.words[k]);
    for (size_t k = 0; k < line.n_args; k++) {
        check(kji_name_valid(line.args[k].key));
        check_text(line.args[k].value);
        for (size_t j = 0; j < k; j++)
            check(strcmp(line.args[j].key, line.args[k].key) != 0);
    }
    return 0;
}
