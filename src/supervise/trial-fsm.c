/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each pair of stage and event has an entry, also those that should not happen: events come from
 * timers, other threads and other processes, so a late one must find a place where it does nothing.
 */
#include "trial-fsm.h"

#define STAY(stage)                        \
    {                                      \
        KJI_STAGE_##stage, KJI_ACTION_NONE \
    }
#define GO(stage, what)                      \
    {                                        \
        KJI_STAGE_##stage, KJI_ACTION_##what \
    }
#define DRAIN GO(DRAINING, DRAIN)

static const kji_transition table[KJI_N_STAGES][KJI_N_EVENTS] = {
    /* READY, STOP, KILL, CHANNEL_FAILED, GRACE, ENDED, DRAINED, TOLD */
    [KJI_STAGE_STARTING] = {GO(RUNNING, RESUME), GO(STARTING, DEFER), GO(STARTING, DEFER),
                            STAY(STARTING), STAY(STARTING), DRAIN, STAY(STARTING), STAY(STARTING)},
    [KJI_STAGE_RUNNING] = {STAY(RUNNING), GO(ASKING, ASK), GO(KILLING, KILL), STAY(RUNNING),
                           STAY(RUNNING), DRAIN, STAY(RUNNING), STAY(RUNNING)},
    [KJI_STAGE_ASKING] = {STAY(ASKING), STAY(ASKING), GO(KILLING, KILL), GO(TERMINATING, TERM),
                          GO(TERMINATING, TERM), DRAIN, STAY(ASKING), STAY(ASKING)},
    [KJI_STAGE_TERMINATING] = {STAY(TERMINATING), STAY(TERMINATING), GO(KILLING, KILL),
                               STAY(TERMINATING), GO(KILLING, KILL), DRAIN, STAY(TERMINATING),
                               STAY(TERMINATING)},
    [KJI_STAGE_KILLING] = {STAY(KILLING), STAY(KILLING), STAY(KILLING), STAY(KILLING),
                           GO(KILLING, KILL), DRAIN, STAY(KILLING), STAY(KILLING)},
    [KJI_STAGE_DRAINING] = {STAY(DRAINING), STAY(DRAINING), STAY(DRAINING), STAY(DRAINING),
                            STAY(DRAINING), STAY(DRAINING), GO(TELLING, TELL), STAY(DRAINING)},
    [KJI_STAGE_TELLING] = {STAY(TELLING), STAY(TELLING), STAY(TELLING), STAY(TELLING),
                           STAY(TELLING), STAY(TELLING), STAY(TELLING), GO(DONE, RELEASE)},
    [KJI_STAGE_DONE] = {STAY(DONE), STAY(DONE), STAY(DONE), STAY(DONE), STAY(DONE), STAY(DONE),
                        STAY(DONE), STAY(DONE)},
};

kji_transition kji_trial_fsm(enum kji_trial_stage stage, enum kji_trial_event event)
{
    return table[stage][event];
}

const char *kji_trial_stage_name(enum kji_trial_stage stage)
{
    static const char *const names[KJI_N_STAGES] = {
        "starting", "running", "asking", "terminating", "killing", "draining", "telling", "done"};
    return names[stage];
}
