/* SPDX-License-Identifier: Apache-2.0 */
#include "publish.h"

#include "errors.h"
#include "files.h"
#include "mem.h"
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

static const char *const door_names[] = {"ctl", "sock", "run.json", "lock"};

static void random_text(char *text, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[16];
    if (getrandom(bytes, size, 0) != (ssize_t)size)
        memset(bytes, getpid() & 0xff, size); /* a clash is noticed later: the id is then in use */
    for (size_t k = 0; k < size; k++)
        text[k] = letters[bytes[k] % (sizeof letters - 1)];
    text[size] = 0;
}

char *kji_make_run_id(const char *name)
{
    char clean[41], tail[7];
    size_t n = 0;
    for (; name[n] && n < sizeof clean - 1; n++) {
        char one[2] = {name[n], 0};
        clean[n] = kji_run_id_valid(one) || (n > 0 && name[n] == '.') ? name[n] : '-';
    }
    clean[n] = 0;
    random_text(tail, 6);
    return kji_format("%s-%s", n ? clean : "run", tail);
}

/* The folder itself, private to us whatever the umask. */
static int make_folder(kji_publication *place, int root_fd, const char *name, kj_error *err)
{
    if (mkdirat(root_fd, name, 0700) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a folder in %s", place->root);
    place->dir_fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place->dir_fd < 0 || fchmod(place->dir_fd, 0700) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open the new folder in %s", place->root);
    place->lock_fd = openat(place->dir_fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (place->lock_fd < 0 || flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a lock in %s", place->root);
    return 0;
}

static int prepare_in(kji_publication *place, const char *root, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int root_fd = -1;
    int r = kji_open_dir(root, true, &root_fd, err);
    if (r < 0)
        return r;
    char tail[13];
    random_text(tail, 12);
    KJI_CLEANUP(kji_freep) char *name = kji_format(".new-%s", tail);
    place->root = strdup(root);
    place->dir = name ? kji_format("%s/%s", root, name) : NULL;
    r = place->root && place->dir ? make_folder(place, root_fd, name, err) : kji_fail_memory(err);
    if (r < 0)
        kji_publish_remove(place);
    return r;
}

int kji_publish_prepare(kji_publication *place, const char *override, kj_error *err)
{
    char **roots;
    size_t n;
    int r = kji_runtime_choices(override, &roots, &n, err);
    if (r < 0)
        return r;
    kj_error first = KJ_ERROR_INIT;
    for (size_t k = 0; k < n; k++) {
        r = prepare_in(place, roots[k], k == 0 ? &first : NULL);
        if (r >= 0)
            break;
    }
    kji_places_free(roots, n);
    return r < 0 ? kji_fail_native(err, first.code, first.domain, first.native, "%s", first.message)
                 : 0;
}

/* Opens the lock of a folder and takes it, if that is possible at once: the descriptor, or -1. */
static int take_lock(int dir_fd)
{
    int fd = openat(dir_fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int kji_publish_sweep(int root_fd, const char *name)
{
    KJI_CLEANUP(kji_closep)
    int dir_fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return 0;
    KJI_CLEANUP(kji_closep) int lock_fd = take_lock(dir_fd);
    if (lock_fd < 0)
        return 0;
    /* The lock goes last: while it is there and held by us, nobody else sweeps. */
    for (size_t k = 0; k < sizeof door_names / sizeof *door_names; k++)
        unlinkat(dir_fd, door_names[k], 0);
    return unlinkat(root_fd, name, AT_REMOVEDIR) == 0;
}

int kji_publish_show(kji_publication *place, const char *id, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int root_fd = -1;
    int r = kji_open_dir(place->root, true, &root_fd, err);
    KJI_CLEANUP(kji_freep) char *dir = kji_format("%s/%s", place->root, id);
    if (r < 0)
        return r;
    if (!dir)
        return kji_fail_memory(err);
    const char *building = strrchr(place->dir, '/') + 1;
    for (int attempt = 0; attempt < 3; attempt++) {
        if (renameat(root_fd, building, root_fd, id) == 0) {
            free(place->dir);
            place->dir = kji_take(&dir);
            place->is_shown = true;
            return 0;
        }
        if (errno != ENOTEMPTY && errno != EEXIST)
            return kji_fail_errno(err, KJ_EIO, errno, "cannot make %s", dir);
        kji_publish_sweep(root_fd, id);
    }
    return kji_fail(err, KJ_EBUSY, "there is a live run %s already", id);
}

/* Whether the folder at place->dir is still the one that we made. */
static bool is_ours(const kji_publication *place)
{
    struct stat by_path, by_fd;
    return place->dir_fd >= 0 && lstat(place->dir, &by_path) == 0 &&
           fstat(place->dir_fd, &by_fd) == 0 && by_path.st_dev == by_fd.st_dev &&
           by_path.st_ino == by_fd.st_ino;
}

void kji_publish_remove(kji_publication *place)
{
    for (size_t k = 0; place->dir_fd >= 0 && k < sizeof door_names / sizeof *door_names; k++)
        unlinkat(place->dir_fd, door_names[k], 0);
    if (place->dir && (place->dir_fd < 0 || is_ours(place)))
        rmdir(place->dir);
    kji_closep(&place->lock_fd);
    kji_closep(&place->dir_fd);
    free(place->root);
    free(place->dir);
    *place = (kji_publication)KJI_PUBLICATION_INIT;
}
