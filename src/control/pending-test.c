/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"
#include "mem.h"
#include "pending.h"

#include "kji-test.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SEQ = 3000 };

static kji_pending pending;
static int state_of[MAX_SEQ + 1]; /* 0 = not open; else how its newest line begins */

static void take(int64_t seq, const char *state)
{
    struct json_object *record = NULL;
    char text[100];
    int size =
        snprintf(text, sizeof text, "{\"seq\":%lld,\"state\":\"%s\"}", (long long)seq, state);
    assert_int_equal(kji_json_parse(text, (size_t)size, &record, NULL), 0);
    kji_pending_take(&pending, record, text, (size_t)size);
    json_object_put(record);
}

static void check_all(void)
{
    size_t k = 0, bytes = 0;
    for (int seq = 1; seq <= MAX_SEQ; seq++) {
        if (!state_of[seq])
            continue;
        assert_true(k < pending.n);
        const kji_pending_command *item = &pending.item[k++];
        assert_int_equal(item->seq, seq);
        assert_non_null(strstr(item->line, state_of[seq] == 1 ? "accepted" : "applied"));
        assert_ptr_equal(kji_pending_find(&pending, seq), item);
        bytes += strlen(item->line);
    }
    assert_int_equal(pending.n, k);
    assert_int_equal(pending.bytes, bytes);
}

/* From both ends and the middle, with more and fewer that wait. */
static void test_whatever_comes_and_goes(void **state)
{
    (void)state;
    uint32_t random = 1;
    int last = 0;
    for (int k = 0; k < 20000; k++) {
        random = random * 1664525 + 1013904223;
        int seq = 1 + (int)((random >> 8) % (uint32_t)(last + 1));
        if (last < MAX_SEQ && k % 3 == 0) {
            state_of[++last] = 1;
            take(last, "accepted");
        } else if (seq <= last && state_of[seq]) {
            take(seq, state_of[seq] == 1 ? "applied" : "done");
            state_of[seq] = state_of[seq] == 1 ? 2 : 0;
        }
        if (k % 500 == 0)
            check_all();
    }
    check_all();
    kji_pending_done(&pending);
}

/* As a queue: the room that it takes is that of what waits, however many have passed. */
static void test_a_queue_takes_no_more_room_than_what_waits(void **state)
{
    (void)state;
    enum { WAITING = 1000 };
    for (int64_t seq = 1; seq <= 100000; seq++) {
        take(seq, "accepted");
        if (seq > WAITING)
            take(seq - WAITING, "done");
    }
    assert_int_equal(pending.n, WAITING);
    assert_in_range(pending.capacity, WAITING, 4 * WAITING);
    assert_int_equal(pending.item[0].seq, 100000 - WAITING + 1);
    kji_pending_done(&pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_comes_and_goes),
        cmocka_unit_test(test_a_queue_takes_no_more_room_than_what_waits),
    };
    return cmocka_run_group_tests_name("pending", tests, NULL, NULL);
}
