/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkajitori-engine has its own copy of the base layer, and with it a hook that no caller can
 * reach. Its warnings go on to the one that callers know: kj_log_set of libkajitori.
 */
#include <kajitori/error.h>

static void forward(void *userdata, int level, const char *message)
{
    (void)userdata;
    kj_log_write(level, message);
}

__attribute__((constructor)) static void begin_forwarding(void)
{
    kj_log_set(forward, NULL);
}
