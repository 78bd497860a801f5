/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one trial process as a table of states and events (docs/tune.md, "The ladder"). Pure:
 * what an action does is in trial-run.c.
 */
#ifndef KJI_TRIAL_FSM_H
#define KJI_TRIAL_FSM_H

enum kji_trial_stage {
    KJI_STAGE_STARTING,    /* the shim lives, its pid is not known yet (adopted trials only) */
    KJI_STAGE_RUNNING,     /* the program runs, its metric is followed */
    KJI_STAGE_ASKING,      /* it was asked over the channel to stop */
    KJI_STAGE_TERMINATING, /* SIGTERM was sent to its group */
    KJI_STAGE_KILLING,     /* SIGKILL was sent to its group and its descendants */
    KJI_STAGE_DRAINING,    /* it has ended; its last metrics are read and reported */
    KJI_STAGE_TELLING,     /* its end state is being stored */
    KJI_STAGE_DONE,
    KJI_N_STAGES
};

enum kji_trial_event {
    KJI_EVENT_READY,          /* the shim's pid is known */
    KJI_EVENT_STOP,           /* a rule cut it, or the worker wants it to end: the ladder begins */
    KJI_EVENT_KILL,           /* the worker wants it to end at once */
    KJI_EVENT_CHANNEL_FAILED, /* nobody there, or it refused */
    KJI_EVENT_GRACE,          /* the time between two rungs is over */
    KJI_EVENT_ENDED,          /* the shim has ended */
    KJI_EVENT_DRAINED,        /* nothing is left to report */
    KJI_EVENT_TOLD,           /* stored */
    KJI_N_EVENTS
};

enum kji_trial_action {
    KJI_ACTION_NONE,
    KJI_ACTION_DEFER,  /* remember the wish to stop or kill until READY */
    KJI_ACTION_RESUME, /* carry out what was deferred */
    KJI_ACTION_ASK,    /* ask over the channel, start the grace time */
    KJI_ACTION_TERM,   /* SIGTERM, start the grace time */
    KJI_ACTION_KILL,   /* SIGKILL, start the grace time */
    KJI_ACTION_DRAIN,
    KJI_ACTION_TELL,
    KJI_ACTION_RELEASE
};

typedef struct kji_transition {
    unsigned char next;   /* enum kji_trial_stage */
    unsigned char action; /* enum kji_trial_action */
} kji_transition;

kji_transition kji_trial_fsm(enum kji_trial_stage stage, enum kji_trial_event event);

const char *kji_trial_stage_name(enum kji_trial_stage stage);

#endif
