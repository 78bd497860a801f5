/* SPDX-License-Identifier: Apache-2.0 */
/* What every C test includes: cmocka in the order it wants, and a few helpers. */
#ifndef KJI_TEST_H
#define KJI_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Removes a folder that the test made, with what is in it. */
void kji_test_remove_tree(const char *path);

/* A fresh folder for each KJI_TOP_TEST: its path. */
extern char kji_test_top[64];
int kji_test_make_top(void **state);
int kji_test_remove_top(void **state);

#define KJI_TOP_TEST(name) \
    cmocka_unit_test_setup_teardown(name, kji_test_make_top, kji_test_remove_top)

/* A path below the repository's tests/data; valid until the next call. */
const char *kji_test_data(const char *name);

struct json_object;

/* Such a file as JSON, for json_object_put; fails when it is none. */
struct json_object *kji_test_json(const char *name);

/* A member that must be there, borrowed. */
struct json_object *kji_test_member(struct json_object *object, const char *key);

#endif
