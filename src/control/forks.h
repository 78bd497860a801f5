/* SPDX-License-Identifier: Apache-2.0 */
/* What fork() must know: the runs of this process. */
#ifndef KJI_FORKS_H
#define KJI_FORKS_H

#include <kajitori/run.h>

#include <sys/types.h>

/* From now on a fork makes the child's copy of the run deaf and closes its descriptors there. */
void kji_forks_add(kj_run *run);
void kji_forks_remove(kj_run *run);

/*
 * While this is held no fork of this process can happen: for the moment between the birth of a
 * descriptor and its being written down. Nothing that may wait is done under it.
 */
void kji_forks_hold(void);
void kji_forks_release(void);

/* openat(2) into *fd, which belongs to a run, under the above. Returns *fd, errno as usual. */
int kji_forks_open(int *fd, int dir_fd, const char *path, int flags, mode_t mode);

/* The same for close(2): no child keeps what was open a moment ago. */
void kji_forks_close(int *fd);

#endif
