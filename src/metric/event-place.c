/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name begins with the time in seconds, and readers take the files of a folder in the order of
 * their names; what a resumed training writes must come behind what it wrote before. So where a
 * file of this second (or of a clock that was ahead) is there already, the new one gets the second
 * after it.
 */
#include "event-place.h"

#include "clock.h"
#include "errors.h"
#include "event-frame.h"
#include "event-tail.h"
#include "files.h"
#include "mem.h"
#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static const char prefix[] = "events.out.tfevents.";

enum { NUMBERS = 10000 };
static const int64_t TIME_END = 9999999999; /* the order of names is that of times up to here */

void kji_lock_file(int fd)
{
    while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
        continue;
}

void kji_unlock_file(int fd)
{
    flock(fd, LOCK_UN);
}

static bool take_digits(const char **text, int64_t *ret_number)
{
    const char *from = *text;
    int64_t number = 0;
    for (; **text >= '0' && **text <= '9' && *text - from < 18; (*text)++)
        number = 10 * number + (**text - '0');
    *ret_number = number;
    return *text != from;
}

static bool take_text(const char **text, const char *expected)
{
    size_t size = strlen(expected);
    if (strncmp(*text, expected, size) != 0)
        return false;
    *text += size;
    return true;
}

/* Whether the name goes on behind its time as this host's do, with this suffix. */
static bool is_ours(const kji_event_place *place, const char *rest)
{
    int64_t pid, number;
    return take_text(&rest, ".") && take_text(&rest, place->host) && take_text(&rest, ".") &&
           take_digits(&rest, &pid) && take_text(&rest, ".") && take_digits(&rest, &number) &&
           strcmp(rest, place->suffix) == 0;
}

static int look_at(kji_event_place *place, const char *name, kj_error *err)
{
    const char *rest = name;
    int64_t time;
    if (!take_text(&rest, prefix) || !take_digits(&rest, &time))
        return 0;
    if (time > place->newest && time < TIME_END)
        place->newest = time;
    bool is_newer = !place->found || time > place->found_time ||
                    (time == place->found_time && strcmp(name, place->found) > 0);
    if (!is_newer || !is_ours(place, rest))
        return 0;
    free(place->found);
    place->found = strdup(name);
    place->found_time = time;
    return place->found ? 0 : kji_fail_memory(err);
}

static int look(kji_event_place *place, kj_error *err)
{
    int fd = fcntl(place->dir_fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;
    if (!dir) {
        kji_closep(&fd);
        return kji_fail_errno(err, KJ_EIO, errno, "cannot read the folder");
    }
    for (const struct dirent *entry; r >= 0 && (entry = readdir(dir));)
        r = look_at(place, entry->d_name, err);
    closedir(dir);
    return r;
}

/* Slashes cannot be in a name of a file; what is empty could not be told from what is not there. */
static void name_host(char *host, size_t size)
{
    if (gethostname(host, size) < 0 || !*host)
        snprintf(host, size, "localhost");
    host[size - 1] = 0;
    for (char *at = host; *at; at++)
        if (*at == '/' || (unsigned char)*at <= ' ')
            *at = '_';
}

int kji_event_place_open(kji_event_place *place, const char *dir, const char *suffix, bool lock,
                         kj_error *err)
{
    *place = (kji_event_place)KJI_EVENT_PLACE_INIT;
    place->suffix = suffix;
    name_host(place->host, sizeof place->host);
    int r = kji_make_dirs(dir, 0777, err);
    if (r < 0)
        return r;
    place->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->dir_fd < 0)
        return kji_fail_errno(err, errno == EACCES ? KJ_EPERM : KJ_EIO, errno,
                              "cannot open folder %s", dir);
    if (lock)
        kji_lock_file(place->dir_fd);
    r = look(place, err);
    if (r < 0)
        kji_event_place_done(place);
    return r < 0 ? kji_fail_prefix(err, r, "%s", dir) : 0;
}

void kji_event_place_done(kji_event_place *place)
{
    kji_closep(&place->dir_fd); /* and with it the lock */
    free(place->found);
    place->found = NULL;
}

int kji_event_place_create(kji_event_place *place, int *ret_fd, char **ret_name, kj_error *err)
{
    enum { FLAGS = O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY };
    int64_t now = (int64_t)kji_wall_time();
    if (now <= place->newest)
        now = place->newest + 1;
    for (int number = 0; number < NUMBERS; number++) {
        KJI_CLEANUP(kji_freep)
        char *name = kji_format("%s%010lld.%s.%ld.%d%s", prefix, (long long)now, place->host,
                                (long)getpid(), number, place->suffix);
        if (!name)
            return kji_fail_memory(err);
        int fd = openat(place->dir_fd, name, FLAGS, 0666);
        if (fd >= 0) {
            *ret_fd = fd;
            *ret_name = kji_take(&name);
            return 0;
        }
        if (errno != EEXIST)
            return kji_fail_errno(err, errno == EACCES || errno == EROFS ? KJ_EPERM : KJ_EIO, errno,
                                  "cannot make %s", name);
    }
    return kji_fail(err, KJ_EEXIST, "%d event files of this second are there", NUMBERS);
}

static bool ends_with(const unsigned char *text, size_t size, const char *end)
{
    size_t n = strlen(end);
    return size >= n && memcmp(text + size - n, end, n) == 0;
}

/* Whether the first record is that of a writer that shares its file. */
static bool is_shared(int fd)
{
    unsigned char bytes[512];
    size_t size;
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < KJI_FRAME_HEAD || kji_frame_head(bytes, &size) != KJI_HEAD_GOOD ||
        size > (size_t)n - KJI_FRAME_HEAD)
        return false;
    const unsigned char *from = bytes + KJI_FRAME_HEAD, *end = from + size;
    kji_field field, writer;
    while (from < end && kji_wire_next(&from, end, &field)) {
        const unsigned char *inner = field.bytes;
        if (field.key == (10 << 3 | KJI_WIRE_BYTES) && field.number > 0 &&
            kji_wire_next(&inner, inner + field.number, &writer) &&
            writer.key == (1 << 3 | KJI_WIRE_BYTES))
            return ends_with(writer.bytes, writer.number, KJI_EVENT_SHARED);
    }
    return false;
}

/* Locked: nobody is in the midst of a record. */
static bool is_whole(int fd, off_t *ret_size)
{
    struct stat st;
    off_t end;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0 || !is_shared(fd) ||
        kji_event_tail(fd, 0, st.st_size, &end, NULL) < 0)
        return false;
    *ret_size = st.st_size;
    return end == st.st_size;
}

int kji_event_place_join(kji_event_place *place, int *ret_fd, off_t *ret_size, char **ret_name)
{
    enum { FLAGS = O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK };
    if (!place->found)
        return 0;
    KJI_CLEANUP(kji_closep) int fd = openat(place->dir_fd, place->found, FLAGS);
    if (fd < 0)
        return 0;
    kji_lock_file(fd);
    if (!is_whole(fd, ret_size))
        return 0;
    *ret_fd = fd;
    fd = -1;
    *ret_name = kji_take(&place->found);
    return 1;
}
