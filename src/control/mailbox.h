/* SPDX-License-Identifier: Apache-2.0 */
/* A mailbox as both of its sides see it: names, folders, sign of life (docs/protocol.md,
 * section 7). */
#ifndef KJI_MAILBOX_H
#define KJI_MAILBOX_H

#include <kajitori/error.h>

#include <json-c/json.h>
#include <stdbool.h>

enum {
    KJI_MAIL_NAME_MAX = 64,
    KJI_MAIL_FILE_SIZE = KJI_MAIL_NAME_MAX + 6, /* with ".json" and NUL */
    KJI_MAIL_BYTES_MAX = 65536,                 /* of a request */
    KJI_MAIL_BEAT_S = 10,                       /* `alive` is renewed so often */
    KJI_MAIL_SILENT_S = 60,     /* a run that did not renew it for so long is taken for dead */
    KJI_MAIL_KEPT_S = 24 * 3600 /* then its mailbox may be removed by anybody who lists */
};

enum kji_mail_kind { KJI_MAIL_OTHER, KJI_MAIL_REQUEST, KJI_MAIL_LINES };

/* What a file called `file` is; NAME of NAME.json and NAME.txt in `name`, otherwise untouched. */
int kji_mail_kind_of(const char *file, char name[KJI_MAIL_NAME_MAX + 1]);

/* Opens the folder dir_fd/name, which must be ours alone and no link. KJ_ENOENT, KJ_EPERM, KJ_EIO.
 */
int kji_mail_open_folder(int dir_fd, const char *name, int *ret_fd, kj_error *err);

/* Seconds since 1970 by the clock of the file system, which has the times of `alive`: a file is
 * made in the mailbox for it. Our own clock when none can be made. */
double kji_mail_clock(int dir_fd);

/* run.json of the mailbox, NULL when it has none that can be read. */
struct json_object *kji_mail_read_json(int dir_fd);

/* Whether it is, or was, a run of this host since its start. */
bool kji_mail_is_of_this_host(struct json_object *run_json);

/* Whether its run lives at `now`, of kji_mail_clock: 0, or KJ_ENORUN with the reason. run_json may
 * be NULL. */
int kji_mail_check_alive(int dir_fd, struct json_object *run_json, double now, kj_error *err);

/* Seconds since `alive` was renewed; of a mailbox without it, since something was in it at all. */
double kji_mail_silence(int dir_fd, double now);

/* Removes all that belongs there but for the lock: files that were renamed into it or are written
 * by the run. Anything else stays, and keeps its folder. */
void kji_mail_empty(int dir_fd);
/* Removes the mailbox dir_fd/name. */
void kji_mail_remove(int dir_fd, const char *name);

#endif
