/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter that is understood, written in its canonical way, is understood as the same. */
#include "param-spec.h"

#include "mem.h"

#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KJI_CLEANUP(kji_freep) char *text = strndup((const char *)data, size);
    kji_param_spec spec, again;
    kj_error err = KJ_ERROR_INIT;
    if (!text || size > 4096)
        return 0;
    if (kji_param_spec_parse(text, &spec, &err) < 0) {
        check(err.message[0] != 0);
        return 0;
    }
    KJI_CLEANUP(kji_freep) char *canonical = kji_param_spec_text(&spec);
    KJI_CLEANUP(kji_freep) char *whole = kji_format("%s=%s", spec.name, canonical);
    check(kji_param_spec_parse(whole, &again, NULL) == 0);
    KJI_CLEANUP(kji_freep) char *twice = kji_param_spec_text(&again);
    check(strcmp(canonical, twice) == 0);
    check(spec.distribution.kind == again.distribution.kind);
    check(spec.distribution.n_choices == again.distribution.n_choices);
    kji_param_spec_done(&spec);
    kji_param_spec_done(&again);
    return 0;
}
