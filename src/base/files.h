/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders. Every descriptor that is opened here has O_CLOEXEC. */
#ifndef KJI_FILES_H
#define KJI_FILES_H

#include <kajitori/error.h>

#include <stdbool.h>
#include <sys/types.h>

/* All of `size` bytes, whatever write(2) makes of it; KJ_EIO, also beyond the limit of file sizes,
 * without the signal of that. */
int kji_write_all(int fd, const void *bytes, size_t size, kj_error *err);

/* The whole file, at most `limit` bytes (KJ_EDATA beyond), NUL-terminated, for free. KJ_ENOENT when
 * there is none. */
int kji_read_file(int dir_fd, const char *path, size_t limit, char **ret_text, size_t *ret_size,
                  kj_error *err);

/* Replaces dir_fd/name by rename, so that a reader sees the old or the new text, never half of one.
 * Mode 0600. */
int kji_write_file_atomic(int dir_fd, const char *name, const char *text, size_t size,
                          kj_error *err);

/* Makes the folder `path` and what is missing above it, with `mode` but for the umask. KJ_EPERM,
 * KJ_EIO. */
int kji_make_dirs(const char *path, mode_t mode, kj_error *err);

/*
 * Makes `path` and what is missing above it (mode 0700 for those made) and opens it. With
 * `private_dir`, the last one must be a real folder, owned by us, with no rights for others, else
 * KJ_EPERM.
 */
int kji_open_dir(const char *path, bool private_dir, int *ret_fd, kj_error *err);

/* Whether the error of mkfifo(2) or bind(2) says that the file system has no files of that kind. */
bool kji_is_refusal(int errnum);

/* True on NFS, SMB, FUSE and others: a writer on another host raises no inotify event, and shared
 * memory does not reach it. false when there is nothing at `path`. */
bool kji_is_network_path(const char *path);

#endif
