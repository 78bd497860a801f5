/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock tells only on one host whether a run lives: other hosts see the lock of some network file
 * systems and not of others. So a run renews the time of `alive`, and whoever asks compares it with
 * the time of a file that he makes on the same file system: one clock, whatever those of the hosts
 * say. On the run's own host the lock tells at once.
 */
#include "mailbox.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { RUN_JSON_LIMIT = 1024 * 1024 };

int kji_mail_kind_of(const char *file, char name[KJI_MAIL_NAME_MAX + 1])
{
    static const char *const tails[] = {[KJI_MAIL_REQUEST] = ".json", [KJI_MAIL_LINES] = ".txt"};
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = strnlen(file, KJI_MAIL_FILE_SIZE);
    for (int kind = KJI_MAIL_REQUEST; kind <= KJI_MAIL_LINES; kind++) {
        size_t tail = strlen(tails[kind]);
        if (size <= tail || size - tail > KJI_MAIL_NAME_MAX || file[size] || *file == '.' ||
            strcmp(file + size - tail, tails[kind]) != 0 || strspn(file, letters) != size)
            continue;
        memcpy(name, file, size - tail);
        name[size - tail] = 0;
        return kind;
    }
    return KJI_MAIL_OTHER;
}

int kji_mail_open_folder(int dir_fd, const char *name, int *ret_fd, kj_error *err)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return kji_fail_errno(err, KJ_ENOENT, errno, "no folder %s", name);
    if (fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot open the folder %s", name);
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077)) {
        close(fd);
        return kji_fail(err, KJ_EPERM, "%s must be a folder of ours with mode 700", name);
    }
    *ret_fd = fd;
    return 0;
}

static double seconds(const struct timespec *time)
{
    return (double)time->tv_sec + (double)time->tv_nsec * 1e-9;
}

double kji_mail_clock(int dir_fd)
{
    char name[60];
    struct stat st;
    snprintf(name, sizeof name, "in/.clock-%ld-%llx", (long)getpid(),
             (unsigned long long)kji_monotonic_ms());
    KJI_CLEANUP(kji_closep)
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return kji_wall_time();
    bool known = fstat(fd, &st) == 0;
    unlinkat(dir_fd, name, 0);
    return known ? seconds(&st.st_mtim) : kji_wall_time();
}

struct json_object *kji_mail_read_json(int dir_fd)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    struct json_object *json = NULL;
    size_t size = 0;
    if (kji_read_file(dir_fd, "run.json", RUN_JSON_LIMIT, &text, &size, NULL) < 0 ||
        kji_json_parse(text, size, &json, NULL) < 0)
        return NULL;
    if (json_object_is_type(json, json_type_object))
        return json;
    json_object_put(json);
    return NULL;
}

/* Opened, not only looked up: that is when a network file system asks its server. */
double kji_mail_silence(int dir_fd, double now)
{
    struct stat st;
    KJI_CLEANUP(kji_closep)
    int fd = openat(dir_fd, "alive", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fstat(fd >= 0 ? fd : dir_fd, &st) == 0 ? now - seconds(&st.st_mtim) : INFINITY;
}

bool kji_mail_is_of_this_host(struct json_object *run_json)
{
    KJI_CLEANUP(kji_freep) char *boot = NULL;
    const char *of_run = kji_json_string(run_json, "boot_id");
    size_t size = 0;
    if (!of_run ||
        kji_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 100, &boot, &size, NULL) < 0)
        return false;
    boot[strcspn(boot, "\n")] = 0;
    return strcmp(boot, of_run) == 0;
}

static bool is_lock_free(int dir_fd)
{
    KJI_CLEANUP(kji_closep)
    int fd = openat(dir_fd, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
}

int kji_mail_check_alive(int dir_fd, struct json_object *run_json, double now, kj_error *err)
{
    struct stat st;
    if (json_object_object_get_ex(run_json, "ended", NULL))
        return kji_fail(err, KJ_ENORUN, "the run has ended");
    if (fstatat(dir_fd, "alive", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return kji_fail(err, KJ_ENORUN, "no run has opened this mailbox");
    double silence = kji_mail_silence(dir_fd, now);
    if (fabs(silence) > KJI_MAIL_SILENT_S)
        return kji_fail(
            err, KJ_ENORUN,
            "no sign of life of the run for %.0f s: it has died, or its host or process "
            "stands still",
            fabs(silence));
    if (kji_mail_is_of_this_host(run_json) && is_lock_free(dir_fd))
        return kji_fail(err, KJ_ENORUN, "the run has died");
    return 0;
}

static void empty_folder(int dir_fd, const char *name)
{
    char mail_name[KJI_MAIL_NAME_MAX + 1];
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        kji_closep(&fd);
        return;
    }
    for (struct dirent *item; (item = readdir(listing));)
        if (*item->d_name == '.' || kji_mail_kind_of(item->d_name, mail_name) != KJI_MAIL_OTHER)
            unlinkat(fd, item->d_name, 0);
    closedir(listing);
    unlinkat(dir_fd, name, AT_REMOVEDIR);
}

void kji_mail_empty(int dir_fd)
{
    empty_folder(dir_fd, "in");
    empty_folder(dir_fd, "out");
    unlinkat(dir_fd, "run.json", 0);
    unlinkat(dir_fd, "alive", 0);
}

void kji_mail_remove(int dir_fd, const char *name)
{
    KJI_CLEANUP(kji_closep) int fd = -1;
    if (kji_mail_open_folder(dir_fd, name, &fd, NULL) < 0)
        return;
    kji_mail_empty(fd);
    unlinkat(fd, "lock", 0);
    unlinkat(dir_fd, name, AT_REMOVEDIR);
}
