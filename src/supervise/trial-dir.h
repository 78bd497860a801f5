/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of one trial, through which the worker and the shim know of each other
 * (docs/tune.md):
 *
 *     lock        locked (flock) while the shim lives
 *     trial.json  what the worker started
 *     metric.json in which run the metric was found, once it was
 *     shim.json   pids, once the program was started
 *     output.log  the program's standard output and error
 *     exit.json   how it ended; nothing of it is left when this is there
 */
#ifndef KJI_TRIAL_DIR_H
#define KJI_TRIAL_DIR_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Makes the folder of a new trial and locks it. KJ_EEXIST when there is one already. */
int kji_trial_dir_create(int trials_fd, int64_t number, int *ret_fd, int *ret_lock_fd,
                         kj_error *err);

/* KJ_ENOENT when this trial has no folder here. */
int kji_trial_dir_open(int trials_fd, int64_t number, int *ret_fd, kj_error *err);

/* Whether somebody has removed it. */
bool kji_trial_dir_is_gone(int dir_fd);

/* Whether a shim holds the lock. */
bool kji_trial_dir_is_alive(int dir_fd);

typedef struct kji_trial_record {
    char run_id[65];
    double start_time; /* seconds since 1970 */
    bool has_stale;    /* the metric had points before the trial began */
} kji_trial_record;

int kji_trial_dir_write_record(int dir_fd, const kji_trial_record *record, int64_t number,
                               const char *study, const char *params_json, const char *metric,
                               kj_error *err);
/* *ret_metric is for free. */
int kji_trial_dir_read_record(int dir_fd, kji_trial_record *ret_record, char **ret_metric,
                              kj_error *err);

/* In which run (folder) the metric was found first; points of others are not the trial's. */
int kji_trial_dir_write_metric_run(int dir_fd, const char *name, kj_error *err);
/* *ret_name is for free. KJ_ENOENT when none was found. */
int kji_trial_dir_read_metric_run(int dir_fd, char **ret_name, kj_error *err);

/* The shim's pid. KJ_ENOENT while shim.json is not there. */
int kji_trial_dir_read_shim(int dir_fd, pid_t *ret_pid, kj_error *err);

typedef struct kji_trial_exit {
    int exit_code; /* -1 when a signal ended it */
    int signal;    /* 0 when it exited */
    int native;    /* errno when it could not be started */
} kji_trial_exit;

/* KJ_ENOENT when it has not ended, or nobody could write down how. */
int kji_trial_dir_read_exit(int dir_fd, kji_trial_exit *ret_exit, kj_error *err);

/* The end of the program's output, at most `lines` lines and `limit` bytes, lines joined by
 * " | ", control bytes blanked; for free. "" when it said nothing, NULL when memory is gone. */
char *kji_trial_dir_output_end(int dir_fd, int lines, size_t limit);

/* Kills every process of this user whose environment has KAJITORI_RUN_ID=run_id: what a killed
 * shim left behind. Returns how many. */
int kji_trial_dir_sweep(const char *run_id);

#endif
