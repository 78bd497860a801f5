/* SPDX-License-Identifier: Apache-2.0 */
#include "kji-test.h"

#include <ftw.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void kji_test_remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

char kji_test_top[64];

int kji_test_make_top(void **state)
{
    (void)state;
    strcpy(kji_test_top, "/tmp/kji-test-XXXXXX");
    return mkdtemp(kji_test_top) ? 0 : -1;
}

int kji_test_remove_top(void **state)
{
    (void)state;
    kji_test_remove_tree(kji_test_top);
    return 0;
}

const char *kji_test_data(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", KJI_TEST_DATA, name);
    return path;
}

struct json_object *kji_test_json(const char *name)
{
    struct json_object *json = json_object_from_file(kji_test_data(name));
    if (!json)
        fail_msg("%s: %s", name, json_util_get_last_err());
    return json;
}

struct json_object *kji_test_member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("there is no %s", key);
    return value;
}
