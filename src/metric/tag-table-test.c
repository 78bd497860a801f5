/* SPDX-License-Identifier: Apache-2.0 */
#include "tag-table.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 1 << 20, NAMES = 64 };

/* A file may hold tags of a megabyte; not all of them are kept. */
static void test_names_are_bounded(void **state)
{
    (void)state;
    kji_tag_table table;
    assert_true(kji_tag_table_init(&table, NULL));
    kji_run *run = kji_tag_table_run(&table, ".");
    char *name = malloc(NAME_SIZE);
    assert_non_null(name);
    memset(name, 'x', NAME_SIZE);
    kji_tag *tag;
    for (int k = 0; k < NAMES; k++) {
        memcpy(name, &k, sizeof k);
        assert_int_equal(kji_tag_table_tag(&table, run, name, NAME_SIZE, &tag), 1);
    }
    assert_int_equal(kji_tag_table_tag(&table, run, "loss", 4, &tag), 0);
    assert_int_equal(kji_tag_table_tag(&table, run, name, NAME_SIZE, &tag), 1);
    assert_int_equal(table.n_tags, NAMES);
    free(name);
    kji_tag_table_done(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
