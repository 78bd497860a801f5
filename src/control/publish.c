/* SPDX-License-Identifier: Apache-2.0 */
#include "publish.h"

#include "errors.h"
#include "files.h"
#include "forks.h"
#include "json.h"
#include "mailbox.h"
#include "mem.h"
#include "places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

static const char *const door_names[] = {"ctl", "sock", "monitor", "run.json", "lock"};

enum {
    UNFINISHED_GRACE_S = 60
}; /* a hidden folder, or one without a lock, this young is being made */

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
    for (; *name && n < sizeof clean - 1; name++) {
        char one[2] = {*name, 0};
        if (kji_run_id_valid(one) || (n > 0 && *name == '.'))
            clean[n++] = *name;
        else if (n > 0 && clean[n - 1] != '-') /* one dash for all bytes of a character */
            clean[n++] = '-';
    }
    if (n > 0 && clean[n - 1] == '-')
        n--;
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
    kji_forks_open(&place->lock_fd, place->dir_fd, "lock", O_RDWR | O_CREAT | O_EXCL, 0600);
    if (place->lock_fd < 0 || flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make a lock in %s", place->root);
    return 0;
}

int kji_publish_prepare(kji_publication *place, const char *root, kj_error *err)
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

static bool is_young(int dir_fd)
{
    struct stat st;
    return fstat(dir_fd, &st) == 0 && time(NULL) - st.st_mtime < UNFINISHED_GRACE_S;
}

/* Removes what a dead run left. Anything we do not know keeps the folder. `lock` goes last, so that
 * until then others see that the run is dead. */
static void remove_dead(int root_fd, const char *name, int dir_fd)
{
    int listing_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = listing_fd < 0 ? NULL : fdopendir(listing_fd);
    if (!listing) {
        kji_closep(&listing_fd);
        return;
    }
    for (struct dirent *item; (item = readdir(listing));) /* left by a death before the rename */
        if (strncmp(item->d_name, ".run.json.", 10) == 0)
            unlinkat(dir_fd, item->d_name, 0);
    closedir(listing);
    for (size_t k = 0; k < sizeof door_names / sizeof *door_names; k++)
        unlinkat(dir_fd, door_names[k], 0);
    kji_mail_remove(dir_fd, "mailbox");
    /* Fails when something is left in it, or when another one was faster: both are fine. */
    unlinkat(root_fd, name, AT_REMOVEDIR);
}

bool kji_publish_is_door(const char *name)
{
    for (size_t k = 0; k < sizeof door_names / sizeof *door_names; k++)
        if (strcmp(door_names[k], name) == 0)
            return true;
    return strncmp(name, ".run.json.", 10) == 0; /* left by a death before the rename */
}

/* Of a dead one *ret_lock_fd is locked, so that two who clean up do not meet; -1 without a lock. */
static int look(const char *name, int dir_fd, int *ret_lock_fd)
{
    *ret_lock_fd = openat(dir_fd, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (*ret_lock_fd < 0 && errno != ENOENT)
        return KJI_DOORS_UNFINISHED;
    bool unfinished = *ret_lock_fd < 0 || *name == '.';
    if (unfinished && is_young(dir_fd))
        return KJI_DOORS_UNFINISHED;
    if (*ret_lock_fd >= 0 && flock(*ret_lock_fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? KJI_DOORS_LIVE : KJI_DOORS_UNFINISHED;
    return KJI_DOORS_DEAD;
}

int kji_publish_look(const char *name, int dir_fd)
{
    KJI_CLEANUP(kji_closep) int lock_fd = -1;
    return look(name, dir_fd, &lock_fd);
}

bool kji_publish_is_live(int root_fd, const char *name, int dir_fd)
{
    KJI_CLEANUP(kji_closep) int lock_fd = -1;
    int doors = look(name, dir_fd, &lock_fd);
    if (doors == KJI_DOORS_DEAD)
        remove_dead(root_fd, name, dir_fd);
    else if (doors == KJI_DOORS_UNFINISHED && *name != '.') /* its remover died: it is empty */
        unlinkat(root_fd, name, AT_REMOVEDIR);
    return doors == KJI_DOORS_LIVE;
}

/* Whether only the mailbox of a run that has ended is left there, for those who still look. */
static bool has_ended(int dir_fd)
{
    KJI_CLEANUP(kji_closep) int box_fd = -1;
    if (faccessat(dir_fd, "lock", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        kji_mail_open_folder(dir_fd, "mailbox", &box_fd, NULL) < 0)
        return false;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = kji_mail_read_json(box_fd);
    return json_object_object_get_ex(json, "ended", NULL);
}

/* Makes room for the name of a run that is dead. */
static void sweep(int root_fd, const char *name)
{
    KJI_CLEANUP(kji_closep)
    int dir_fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd >= 0 && has_ended(dir_fd))
        remove_dead(root_fd, name, dir_fd);
    else if (dir_fd >= 0)
        kji_publish_is_live(root_fd, name, dir_fd);
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
        sweep(root_fd, id);
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
    kji_forks_close(&place->lock_fd);
    kji_forks_close(&place->dir_fd);
    free(place->root);
    free(place->dir);
    *place = (kji_publication)KJI_PUBLICATION_INIT;
}
