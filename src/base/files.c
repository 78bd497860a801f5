/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include "errors.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

/* Beyond the limit of file sizes (RLIMIT_FSIZE) write(2) sends SIGXFSZ, whose default is the end of
 * the process: held back meanwhile, and taken away when this write sent it. */
static ssize_t write_at_most(int fd, const char *bytes, size_t size)
{
    const struct timespec at_once = {0};
    sigset_t limit, before;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    ssize_t n = write(fd, bytes, size);
    int error = errno;
    if (n < 0 && error == EFBIG && !sigismember(&before, SIGXFSZ))
        sigtimedwait(&limit, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

int kji_write_all(int fd, const void *bytes, size_t size, kj_error *err)
{
    const char *from = bytes;
    while (size) {
        ssize_t n = write_at_most(fd, from, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kji_fail_errno(err, KJ_EIO, errno, "write");
        from += n;
        size -= (size_t)n;
    }
    return 0;
}

int kji_read_file(int dir_fd, const char *path, size_t limit, char **ret_text, size_t *ret_size,
                  kj_error *err)
{
    KJI_CLEANUP(kji_closep)
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return kji_fail_errno(err, errno == ENOENT ? KJ_ENOENT : KJ_EIO, errno, "%s", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) /* empty, whatever is about to be written */
        return kji_fail(err, KJ_EDATA, "%s is a FIFO or a pipe, not a file", path);
    KJI_CLEANUP(kji_freep) char *text = NULL;
    size_t capacity = 0, size = 0;
    for (;;) {
        if (!kji_reserve(&text, &capacity, size + 4096, 1))
            return kji_fail_memory(err);
        ssize_t n = read(fd, text + size, capacity - size - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kji_fail_errno(err, KJ_EIO, errno, "%s", path);
        if (n == 0)
            break;
        size += (size_t)n;
        if (size > limit)
            return kji_fail(err, KJ_EDATA, "%s: larger than %zu bytes", path, limit);
    }
    text[size] = 0;
    *ret_text = kji_take(&text);
    if (ret_size)
        *ret_size = size;
    return 0;
}

int kji_write_file_atomic(int dir_fd, const char *name, const char *text, size_t size,
                          kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *temporary = kji_format(".%s.%ld", name, (long)getpid());
    if (!temporary)
        return kji_fail_memory(err);
    int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot write %s", name);
    int r = kji_write_all(fd, text, size, err);
    /* NFS and quotas may tell only here that nothing was stored. */
    if (close(fd) < 0 && r >= 0 && errno != EINTR)
        r = kji_fail_errno(err, KJ_EIO, errno, "close");
    if (r >= 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
        r = kji_fail_errno(err, KJ_EIO, errno, "rename");
    if (r < 0) {
        unlinkat(dir_fd, temporary, 0);
        return kji_fail_prefix(err, r, "cannot write %s", name);
    }
    return 0;
}

int kji_make_dirs(const char *path, mode_t mode, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *copy = strdup(path);
    if (!copy)
        return kji_fail_memory(err);
    for (char *end = copy + 1;; end++) {
        if (*end != '/' && *end != 0)
            continue;
        char kept = *end;
        *end = 0;
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return kji_fail_errno(err, errno == EACCES || errno == EROFS ? KJ_EPERM : KJ_EIO, errno,
                                  "cannot make folder %s", copy);
        *end = kept;
        if (kept == 0)
            return 0;
    }
}

int kji_open_dir(const char *path, bool private_dir, int *ret_fd, kj_error *err)
{
    if (!*path)
        return kji_fail(err, KJ_EARG, "empty folder name");
    int r = kji_make_dirs(path, 0700, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (private_dir ? O_NOFOLLOW : 0));
    struct stat st;
    if (fd < 0 && private_dir && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return kji_fail(err, KJ_EPERM, "%s is a symbolic link; name the folder itself", path);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EPERM, errno, "cannot open folder %s", path);
    if (fstat(fd, &st) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "%s", path);
    if (private_dir && st.st_uid != geteuid())
        return kji_fail(err, KJ_EPERM, "folder %s belongs to user %ld, not to us (%ld)", path,
                        (long)st.st_uid, (long)geteuid());
    if (private_dir && (st.st_mode & 077))
        return kji_fail(err, KJ_EPERM, "folder %s is open to others (mode %03o); it must be 700",
                        path, (unsigned)st.st_mode & 0777);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

bool kji_is_refusal(int errnum)
{
    return errnum == EPERM || errnum == EOPNOTSUPP || errnum == ENOSYS || errnum == EINVAL ||
           errnum == EIO; /* so do some in FUSE */
}

bool kji_is_network_path(const char *path)
{
    static const uint32_t types[] = {
        NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,
        FUSE_SUPER_MAGIC, V9FS_MAGIC,      AFS_SUPER_MAGIC,  CEPH_SUPER_MAGIC,
        0x0bd00bd0,       0x47504653,      0x19830326}; /* the last three: Lustre, GPFS, BeeGFS */
    struct statfs fs;
    if (statfs(path, &fs) < 0)
        return false;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if ((uint32_t)fs.f_type == types[k])
            return true;
    return false;
}
