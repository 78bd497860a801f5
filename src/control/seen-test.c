/* SPDX-License-Identifier: Apache-2.0 */
/* The ids that make a repeat harmless: the newest are known with their newest record, bounded. */
#include "seen.h"

#include "kji-test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(kji_seen *seen, int id, int record)
{
    char name[20], text[20];
    snprintf(name, sizeof name, "id-%d", id);
    snprintf(text, sizeof text, "%d", record);
    kji_seen_put(seen, name, text);
}

/* The record of the id, -1 for none. */
static int find(const kji_seen *seen, int id)
{
    char name[20];
    snprintf(name, sizeof name, "id-%d", id);
    const char *text = kji_seen_find(seen, name);
    return text ? atoi(text) : -1;
}

static void test_the_newest_are_known(void **state)
{
    (void)state;
    enum { IDS = 3 * KJI_SEEN_MAX };
    kji_seen seen = {0};
    assert_int_equal(find(&seen, 0), -1);
    for (int id = 0; id < IDS; id++) {
        put(&seen, id, 1);
        if (id >= 7)
            put(&seen, id - 7, 2); /* a later record makes an id no younger */
    }
    assert_int_equal(seen.n, KJI_SEEN_MAX);
    for (int id = 0; id < IDS; id++)
        assert_int_equal(find(&seen, id), id < IDS - KJI_SEEN_MAX ? -1 : id < IDS - 7 ? 2 : 1);
    kji_seen_done(&seen);
}

static void test_large_records_push_out_the_oldest(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    kji_seen seen = {0};
    char *large = calloc(1, SIZE + 1);
    memset(large, 'x', SIZE);
    put(&seen, 1, 1);
    for (int k = 0; k < 20; k++) {
        char name[20];
        snprintf(name, sizeof name, "large-%d", k);
        kji_seen_put(&seen, name, large);
        assert_true(seen.bytes <= KJI_SEEN_BYTES);
    }
    assert_int_equal(find(&seen, 1), -1);
    assert_non_null(kji_seen_find(&seen, "large-19"));
    assert_null(kji_seen_find(&seen, "large-11"));
    kji_seen_done(&seen);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_are_known),
        cmocka_unit_test(test_large_records_push_out_the_oldest),
    };
    return cmocka_run_group_tests_name("seen", tests, NULL, NULL);
}
