/* SPDX-License-Identifier: Apache-2.0 */
#include "kji-test.h"

#include <ftw.h>
#include <stdio.h>

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void kji_test_remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *kji_test_data(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", KJI_TEST_DATA, name);
    return path;
}
