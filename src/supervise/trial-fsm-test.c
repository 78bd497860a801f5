/* SPDX-License-Identifier: Apache-2.0 */
#include "trial-fsm.h"

#include "kji-test.h"

/* Walks a trial along `events`, ended by -1, and returns the actions it met in order. */
static int walk(enum kji_trial_stage *stage, const int *events, int *ret_actions)
{
    int n = 0;
    for (; *events >= 0; events++) {
        kji_transition to = kji_trial_fsm(*stage, (enum kji_trial_event) * events);
        *stage = (enum kji_trial_stage)to.next;
        if (to.action != KJI_ACTION_NONE)
            ret_actions[n++] = to.action;
    }
    return n;
}

static void expect(enum kji_trial_stage from, const int *events, enum kji_trial_stage end,
                   const int *actions, int n_actions)
{
    int met[32];
    enum kji_trial_stage stage = from;
    assert_int_equal(walk(&stage, events, met), n_actions);
    for (int k = 0; k < n_actions; k++)
        assert_int_equal(met[k], actions[k]);
    assert_int_equal(stage, end);
}

#define EXPECT(from, end, actions, ...)                                                \
    expect(KJI_STAGE_##from, (const int[]){__VA_ARGS__, -1}, KJI_STAGE_##end, actions, \
           (int)(sizeof(actions) / sizeof *(actions)))

static void test_a_life_without_trouble(void **state)
{
    (void)state;
    const int actions[] = {KJI_ACTION_DRAIN, KJI_ACTION_TELL, KJI_ACTION_RELEASE};
    EXPECT(RUNNING, DONE, actions, KJI_EVENT_DRAINED, KJI_EVENT_ENDED, KJI_EVENT_DRAINED,
           KJI_EVENT_TOLD);
}

static void test_the_whole_ladder(void **state)
{
    (void)state;
    const int actions[] = {KJI_ACTION_ASK,  KJI_ACTION_TERM,  KJI_ACTION_KILL,
                           KJI_ACTION_KILL, KJI_ACTION_DRAIN, KJI_ACTION_TELL};
    EXPECT(RUNNING, TELLING, actions, KJI_EVENT_STOP, KJI_EVENT_GRACE, KJI_EVENT_GRACE,
           KJI_EVENT_GRACE, KJI_EVENT_ENDED, KJI_EVENT_DRAINED);
}

static void test_without_a_channel_sigterm_comes_at_once(void **state)
{
    (void)state;
    const int actions[] = {KJI_ACTION_ASK, KJI_ACTION_TERM};
    EXPECT(RUNNING, TERMINATING, actions, KJI_EVENT_STOP, KJI_EVENT_CHANNEL_FAILED,
           KJI_EVENT_CHANNEL_FAILED, KJI_EVENT_STOP);
}

static void test_wishes_wait_for_the_shims_pid(void **state)
{
    (void)state;
    const int actions[] = {KJI_ACTION_DEFER, KJI_ACTION_RESUME};
    EXPECT(STARTING, RUNNING, actions, KJI_EVENT_STOP, KJI_EVENT_READY);
}

static void test_late_events_do_nothing(void **state)
{
    (void)state;
    for (int stage = KJI_STAGE_DRAINING; stage < KJI_N_STAGES; stage++)
        for (int event = 0; event < KJI_N_EVENTS; event++) {
            kji_transition to =
                kji_trial_fsm((enum kji_trial_stage)stage, (enum kji_trial_event)event);
            if (event == KJI_EVENT_DRAINED || event == KJI_EVENT_TOLD)
                continue;
            assert_int_equal(to.next, stage);
            assert_int_equal(to.action, KJI_ACTION_NONE);
        }
}

static void test_an_end_is_seen_in_every_stage(void **state)
{
    (void)state;
    for (int stage = 0; stage < KJI_STAGE_DRAINING; stage++) {
        kji_transition to = kji_trial_fsm((enum kji_trial_stage)stage, KJI_EVENT_ENDED);
        assert_int_equal(to.next, KJI_STAGE_DRAINING);
        assert_int_equal(to.action, KJI_ACTION_DRAIN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_life_without_trouble),
        cmocka_unit_test(test_the_whole_ladder),
        cmocka_unit_test(test_without_a_channel_sigterm_comes_at_once),
        cmocka_unit_test(test_wishes_wait_for_the_shims_pid),
        cmocka_unit_test(test_late_events_do_nothing),
        cmocka_unit_test(test_an_end_is_seen_in_every_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
