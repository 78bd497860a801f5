/* SPDX-License-Identifier: Apache-2.0 */
/* In libkajitori only, not in its layers: so what links the layers may have a hook of its own. */
#include "errors.h"

void kj_log_write(int level, const char *message)
{
    kji_log(level, "%s", message);
}
