/* SPDX-License-Identifier: Apache-2.0 */
#include "letter.h"

#include "forks.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char too_long[] = "it has more than 65536 bytes";

/* NULL for a file that may be read. */
static const char *fault_of(const struct stat *st)
{
    if (S_ISLNK(st->st_mode))
        return "it is a symbolic link";
    if (!S_ISREG(st->st_mode))
        return "it is no regular file";
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return "it belongs to another user";
    if (st->st_nlink != 1)
        return "it has a second name (hard link)";
    if (st->st_size > KJI_MAIL_BYTES_MAX)
        return too_long;
    return NULL;
}

static bool is_passing(int errnum)
{
    return errnum != ELOOP && errnum != EACCES && errnum != EPERM && errnum != ENXIO;
}

static int read_all(int fd, kji_letter *mail)
{
    ssize_t n;
    mail->text = malloc(KJI_MAIL_BYTES_MAX + 1);
    if (!mail->text)
        return KJ_EMEM;
    while ((n = read(fd, mail->text + mail->size, KJI_MAIL_BYTES_MAX + 1 - mail->size)) > 0)
        mail->size += (size_t)n;
    if (n < 0)
        return KJ_EIO;
    if (mail->size > KJI_MAIL_BYTES_MAX)
        mail->refusal = too_long;
    return 0;
}

/* 1, 0 when it is not there any more, or an error that may pass. A device is not even opened. */
static int read_mail(kji_letter *mail, int *fd, int in_fd, const char *file)
{
    struct stat st;
    if (fstatat(in_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : KJ_EIO;
    mail->refusal = fault_of(&st);
    if (mail->refusal)
        return 1;
    kji_forks_open(fd, in_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (*fd < 0) {
        mail->refusal = "it cannot be read";
        return errno == ENOENT ? 0 : is_passing(errno) ? KJ_EIO : 1;
    }
    int r = fstat(*fd, &st) < 0 ? KJ_EIO : 1;
    if (r > 0)
        mail->refusal = fault_of(&st);
    if (r > 0 && !mail->refusal && read_all(*fd, mail) < 0)
        r = KJ_EIO;
    mail->uid = (int64_t)st.st_uid;
    kji_forks_close(fd);
    return r;
}

/* Whether it was there, and is no more. A folder with something in it gets a name that is left
 * alone. */
static bool remove_mail(int in_fd, const char *file)
{
    KJI_CLEANUP(kji_freep) char *aside = kji_format(".refused-%s", file);
    if (unlinkat(in_fd, file, 0) == 0)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    return unlinkat(in_fd, file, AT_REMOVEDIR) == 0 ||
           (aside && renameat(in_fd, file, in_fd, aside) == 0);
}

static size_t count_lines(const kji_letter *mail)
{
    size_t n = 0;
    for (size_t k = 0; k < mail->size; k++)
        n += mail->text[k] == '\n' || k + 1 == mail->size;
    return n;
}

int kji_letter_take(kji_letter *mail, int *fd, int in_fd, const char *file)
{
    *mail = (kji_letter){.size = 0};
    mail->kind = kji_mail_kind_of(file, mail->name);
    int r = read_mail(mail, fd, in_fd, file);
    if (r > 0 && mail->kind == KJI_MAIL_LINES && count_lines(mail) > KJI_MAIL_LINES_MAX)
        mail->refusal = "it has more than 1000 lines";
    return r > 0 && !remove_mail(in_fd, file) ? 0 : r;
}

void kji_letter_done(kji_letter *mail)
{
    free(mail->text);
}
