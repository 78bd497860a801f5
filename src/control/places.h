/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where runs and journals lie (docs/protocol.md, section 1). The paths are absolute; nothing is
 * created here.
 */
#ifndef KJI_PLACES_H
#define KJI_PLACES_H

#include <kajitori/error.h>

#include <stdbool.h>

enum { KJI_RUN_ID_MAX = 64 };

/*
 * The folders where the doors of a new run may go, best first: only `override`, else only
 * $KAJITORI_RUNTIME_DIR, else $XDG_RUNTIME_DIR/kajitori and /tmp/kajitori-UID. `override` may be
 * NULL or "". Free with kji_places_free.
 */
int kji_runtime_choices(const char *override, char ***ret_paths, size_t *ret_n, kj_error *err);

/* The first of these; for free. */
int kji_runtime_dir(const char *override, char **ret_path, kj_error *err);

/*
 * All folders where runs of this user may be: as above, and /run/user/UID/kajitori, because a
 * program started by cron often has no XDG_RUNTIME_DIR. Only those that exist now; none is no
 * error. Free with kji_places_free.
 */
int kji_runtime_dirs(const char *override, char ***ret_paths, size_t *ret_n, kj_error *err);

/* `override`, else $KAJITORI_STATE_DIR, else $XDG_STATE_HOME/kajitori, else
 * ~/.local/state/kajitori; for free. KJ_ENOENT when there is no home folder either. */
int kji_state_dir(const char *override, char **ret_path, kj_error *err);

/* `override`, else $KAJITORI_MAILBOX_DIR; for free, NULL when neither says where. */
int kji_mailbox_root(const char *override, char **ret_path, kj_error *err);

void kji_places_free(char **paths, size_t n);

/* 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot or, since no command line could name it, a
 * dash. */
bool kji_run_id_valid(const char *id);

/* `path` with the working folder in front when it is relative; for free. NULL when memory is gone
 * or the working folder is. */
char *kji_absolute_path(const char *path);

#endif
