/* SPDX-License-Identifier: Apache-2.0 */
/* Masking: a secret that is put behind any text is never in what comes out, and what is
 * UTF-8 stays so. */
#include "mask.h"
#include "mem.h"
#include "strbuf.h"
#include "utf8.h"

#include "fuzz.h"

#include <string.h>

static const char secret[] = "S3cr3tV4lue";

static void check_hidden(const uint8_t *bytes, size_t size, const char *form)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf text = KJI_STRBUF_INIT;
    kji_strbuf_add(&text, (const char *)bytes, size);
    kji_strbuf_printf(&text, form, secret);
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(text.text, text.size);
    check(masked && !memmem(masked, strlen(masked), secret, strlen(secret)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text((const char *)bytes, size);
    check(masked);
    bool has_nul = memchr(bytes, 0, size);
    if (!has_nul && kji_utf8_valid((const char *)bytes, size))
        check(kji_utf8_valid(masked, strlen(masked)));
    if (has_nul || memmem(bytes, size, secret, strlen(secret)))
        return 0;
    check_hidden(bytes, size, " api_key=%s");
    check_hidden(bytes, size, " {\"token\": \"%s\"}");
    check_hidden(bytes, size, " https://me:%s@host/");
    check_hidden(bytes, size, " --password %s");
    return 0;
}
