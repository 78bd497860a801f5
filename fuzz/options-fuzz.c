/* SPDX-License-Identifier: Apache-2.0 */
/* A text of options either fills the struct with values in range, or is refused with one printable
 * line. */
#include "options.h"

#include "fuzz.h"

#include <math.h>
#include <string.h>

typedef struct sample {
    int64_t count;
    double rate;
    int32_t loud;
} sample;

static const kji_option options[] = {
    {"count", KJ_TYPE_INT, KJI_OPTION_MIN, offsetof(sample, count), "5", 1, 0, "how many"},
    {"rate", KJ_TYPE_FLOAT, KJI_OPTION_MIN | KJI_OPTION_MAX, offsetof(sample, rate), "0.5", 0, 1,
     "how often"},
    {"loud", KJ_TYPE_BOOL, 0, offsetof(sample, loud), "no", 0, 0, "how loud"},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kj_error err = KJ_ERROR_INIT;
    sample s = {0};
    char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    int r = kji_options_parse(options, sizeof options / sizeof *options, "x", text, &s, &err);
    if (r == 0) {
        check(s.count >= 1 && s.rate >= 0 && s.rate <= 1);
        check(s.loud == 0 || s.loud == 1);
    } else {
        check(r == KJ_EARG && err.message[0] != 0);
        for (const char *c = err.message; *c; c++)
            check((unsigned char)*c >= 0x20);
    }
    free(text);
    return 0;
}
