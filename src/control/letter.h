/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in one file of a mailbox's `in`, for the run that has the mailbox. */
#ifndef KJI_LETTER_H
#define KJI_LETTER_H

#include "mailbox.h"

#include <stddef.h>
#include <stdint.h>

enum { KJI_MAIL_LINES_MAX = 1000 };

typedef struct kji_letter {
    char name[KJI_MAIL_NAME_MAX + 1];
    int kind; /* enum kji_mail_kind */
    char *text;
    size_t size;
    int64_t uid;         /* owner of the file */
    const char *refusal; /* why it is not obeyed, and perhaps not even read; NULL: it may be */
} kji_letter;

/*
 * Reads the file in_fd/file, whose name is one of a request, and removes it: 1. 0 when there is
 * nothing to be obeyed: its sender has taken it back, or it cannot be removed. KJ_EIO when it
 * cannot be read now; it stays. *mail is filled in any case, for kji_letter_done. `fd` is where the
 * descriptor is written down meanwhile (forks.h).
 */
int kji_letter_take(kji_letter *mail, int *fd, int in_fd, const char *file);
void kji_letter_done(kji_letter *mail);

#endif
