/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes are read from where reading ended last time. Whether the file is still the one that was
 * read is seen by its bytes, not by its inode: the first ones, and those before the place, are kept
 * and compared after each read, so that nothing is used of a file that is being rewritten under our
 * hands, and a longer copy of the same file goes on. Standard input that is a pipe is read as it
 * comes, and ends.
 */
#include "line-file.h"

#include "clock.h"
#include "errors.h"
#include "files.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WARNINGS = 10, INPUT_READS = 16 };

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* A regular file on standard input is read like any other, from its beginning. */
static void init_input(kji_line_file *file)
{
    struct stat st;
    file->is_input = true;
    file->is_piped = fstat(STDIN_FILENO, &st) < 0 || !S_ISREG(st.st_mode);
    if (!file->is_piped)
        return;
    file->is_watched = kji_watch_observe(file->watch, STDIN_FILENO);
    file->ended = !file->is_watched && errno != EPERM; /* closed, or already one of ours */
}

int kji_line_file_init(kji_line_file *file, const char *path, const kji_source_context *context,
                       enum kji_cut cut, const kji_line_user *user, kj_error *err)
{
    struct stat st;
    bool is_input = strcmp(path, "-") == 0;
    if (!is_input && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return kji_fail(err, KJ_EARG, "%s is a folder; name the file in it", path);
    file->options = context->options;
    file->watch = context->watch;
    file->stats = context->stats;
    file->user = *user;
    file->wd = -1;
    file->batch = (kji_batch)KJI_BATCH_INIT;
    kji_lines_init(&file->lines, cut);
    file->path = strdup(is_input ? "standard input" : path);
    file->folder = folder_of(path);
    file->root = kji_tag_table_run(context->tags, ".");
    if (!file->path || !file->folder || !file->root)
        return kji_fail_memory(err);
    if (is_input)
        init_input(file);
    return 0;
}

void kji_line_file_done(kji_line_file *file)
{
    if (file->is_watched)
        kji_watch_forget(file->watch, STDIN_FILENO);
    kji_lines_done(&file->lines);
    kji_batch_done(&file->batch);
    free(file->damage);
    free(file->folder);
    free(file->path);
}

static void tell(kji_line_file *file, const char *what, const char *format, va_list args)
{
    char text[300];
    if (file->n_warnings >= MAX_WARNINGS)
        return;
    file->n_warnings++;
    vsnprintf(text, sizeof text, format, args);
    kji_log(KJ_LOG_WARNING, "%s: line %llu: %s%s%s", file->path,
            (unsigned long long)file->n_lines + 1, text, what,
            file->n_warnings == MAX_WARNINGS ? " (further ones are not reported)" : "");
}

void kji_line_file_warn(kji_line_file *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(file, "", format, args);
    va_end(args);
}

/* More than KJI_LINE_DAMAGE ranges, or no memory for one: it is only counted. */
static void add_damage(kji_line_file *file, enum kj_damage_kind kind)
{
    file->skipped_records++;
    file->skipped_bytes += file->lines.n_bytes;
    file->stats->skipped_records++;
    file->stats->skipped_bytes += file->lines.n_bytes;
    if (file->n_damage >= KJI_LINE_DAMAGE || !kji_reserve(&file->damage, &file->damage_capacity,
                                                          file->n_damage + 1, sizeof *file->damage))
        return;
    uint64_t begin = kji_line_file_committed(file);
    file->damage[file->n_damage++] = (kji_line_damage){kind, file->generation, begin,
                                                       begin + file->lines.n_bytes, file->n_lines};
}

void kji_line_file_reject(kji_line_file *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(file, ": skipped", format, args);
    va_end(args);
    kji_batch_clear(&file->batch);
    add_damage(file, file->lines.too_long ? KJ_DAMAGE_TOO_LARGE : KJ_DAMAGE_MESSAGE);
}

static void use_line(kji_line_file *file)
{
    kji_batch_clear(&file->batch);
    file->batch.origin = (kji_origin){.run = file->root,
                                      .file = file->path,
                                      .record = file->n_lines,
                                      .wall_time = kji_wall_time(),
                                      .generation = file->generation};
    if (file->lines.too_long)
        kji_line_file_reject(file, "longer than %d bytes", KJI_LINE_LIMIT);
    else if (file->lines.size)
        file->user.use(file->user.userdata);
    file->batch.next = file->skip_points < file->batch.n ? file->skip_points : file->batch.n;
    file->skip_points = 0;
    file->in_use = true;
}

/* 0, 1 or KJ_EMEM as from the sink. After 1 the line may have more points: it stays in use. */
static int end_line(kji_line_file *file, kji_sink *sink)
{
    if (file->lines.failed)
        return KJ_EMEM;
    if (!file->in_use)
        use_line(file);
    int r = kji_batch_deliver(&file->batch, sink);
    if (r < 0 || file->batch.next < file->batch.n)
        return r;
    file->in_use = false;
    file->n_lines++;
    file->n_points += file->batch.n;
    file->stats->records++;
    file->stats->bytes += file->lines.n_bytes;
    kji_lines_clear(&file->lines);
    return r;
}

static void begin_anew(kji_line_file *file)
{
    if (file->offset == 0)
        return;
    kji_log(KJ_LOG_INFO, "%s: replaced or truncated, read again from its beginning", file->path);
    file->generation++;
    file->offset = file->n_lines = 0;
    file->head_size = file->tail_size = 0;
    file->from = file->to = 0;
    file->in_use = file->again = false;
    file->skip_points = 0;
    file->mark.pending = false;
    kji_lines_clear(&file->lines);
    kji_batch_clear(&file->batch);
    file->user.restart(file->user.userdata);
}

static int take_buffer(kji_line_file *file, kji_sink *sink)
{
    int r = file->in_use ? end_line(file, sink) : 0;
    while (r == 0 && file->from < file->to) {
        bool complete;
        file->from += kji_lines_take(&file->lines, file->buffer + file->from, file->to - file->from,
                                     &complete);
        if (complete)
            r = end_line(file, sink);
        if (file->again)
            begin_anew(file);
    }
    return r;
}

static bool has_bytes(int fd, const char *expected, size_t size, uint64_t offset)
{
    char bytes[KJI_LINE_HEAD];
    return pread(fd, bytes, size, (off_t)offset) == (ssize_t)size &&
           memcmp(bytes, expected, size) == 0;
}

static bool has_hash(int fd, uint64_t hash, size_t size, uint64_t offset)
{
    char bytes[KJI_LINE_HEAD];
    return pread(fd, bytes, size, (off_t)offset) == (ssize_t)size && kji_hash(bytes, size) == hash;
}

/* The first look behind a cursor: the hashes are made bytes again, of what is before `offset`. */
static bool is_marked(kji_line_file *file, int fd)
{
    file->mark.pending = false;
    if (!has_hash(fd, file->mark.head_hash, file->mark.head_size, 0) ||
        !has_hash(fd, file->mark.tail_hash, file->mark.tail_size,
                  file->mark.end - file->mark.tail_size))
        return false;
    size_t head = file->offset < KJI_LINE_HEAD ? (size_t)file->offset : KJI_LINE_HEAD;
    size_t tail = file->offset < KJI_LINE_TAIL ? (size_t)file->offset : KJI_LINE_TAIL;
    if (pread(fd, file->head, head, 0) != (ssize_t)head ||
        pread(fd, file->tail, tail, (off_t)(file->offset - tail)) != (ssize_t)tail)
        return false;
    file->head_size = head;
    file->tail_size = tail;
    return true;
}

/* Whether it is still the file that was read. */
static bool is_same(kji_line_file *file, int fd)
{
    if (file->mark.pending)
        return is_marked(file, fd);
    return has_bytes(fd, file->head, file->head_size, 0) &&
           has_bytes(fd, file->tail, file->tail_size, file->offset - file->tail_size);
}

/* `n` bytes have come into the buffer. */
static void accept_bytes(kji_line_file *file, size_t n)
{
    if (file->head_size == file->offset && file->head_size < KJI_LINE_HEAD) {
        size_t room = KJI_LINE_HEAD - file->head_size, more = n < room ? n : room;
        memcpy(file->head + file->head_size, file->buffer, more);
        file->head_size += more;
    }
    size_t fresh = n < KJI_LINE_TAIL ? n : KJI_LINE_TAIL;
    size_t kept = file->tail_size < KJI_LINE_TAIL - fresh ? file->tail_size : KJI_LINE_TAIL - fresh;
    memmove(file->tail, file->tail + file->tail_size - kept, kept);
    memcpy(file->tail + kept, file->buffer + n - fresh, fresh);
    file->tail_size = kept + fresh;
    file->offset += n;
    file->from = 0;
    file->to = n;
    file->told = false;
}

/* For the time being: it is looked at again. */
static int cannot_read(kji_line_file *file, const char *why)
{
    if (!file->told)
        kji_log(KJ_LOG_WARNING, "%s: cannot be read: %s; tried again later", file->path, why);
    file->told = true;
    return 0;
}

static int cannot_read_errno(kji_line_file *file)
{
    char reason[128];
    return cannot_read(file, strerror_r(errno, reason, sizeof reason));
}

static bool has_changed(const struct stat *a, const struct stat *b)
{
    return a->st_dev != b->st_dev || a->st_ino != b->st_ino || a->st_size != b->st_size ||
           a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

static void look_at(kji_line_file *file, int fd, const struct stat *st)
{
    file->present = true;
    if (!has_changed(&file->last, st))
        return;
    file->changed = kji_monotonic_ms();
    file->last = *st;
    if ((uint64_t)st->st_size < file->offset || !is_same(file, fd))
        begin_anew(file);
}

/* What is there now, not what is appended meanwhile: it may come faster than it is read. */
static int read_bytes(kji_line_file *file, int fd, kji_sink *sink)
{
    while (file->offset < (uint64_t)file->last.st_size) {
        ssize_t n = pread(fd, file->buffer, sizeof file->buffer, (off_t)file->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_read_errno(file);
        if (n == 0)
            return 0;
        if (!is_same(file, fd)) {
            begin_anew(file);
            continue;
        }
        accept_bytes(file, (size_t)n);
        int r = take_buffer(file, sink);
        if (r != 0)
            return r;
    }
    return 0;
}

/* Standard input has been opened by somebody else, and stays open. */
static int read_file(kji_line_file *file, kji_sink *sink, kj_error *err)
{
    KJI_CLEANUP(kji_closep) int opened = -1;
    if (!file->is_input) {
        opened = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (opened < 0 && errno == EACCES)
            return kji_fail_errno(err, KJ_EPERM, errno, "cannot read %s", file->path);
        file->present = opened >= 0;
        if (opened < 0)
            return errno == ENOENT ? 0 : cannot_read_errno(file);
    }
    int fd = file->is_input ? STDIN_FILENO : opened;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return cannot_read_errno(file);
    if (!S_ISREG(st.st_mode))
        return cannot_read(file, "not a regular file (a pipe is read with - for FILE)");
    look_at(file, fd, &st);
    return read_bytes(file, fd, sink);
}

static void end_input(kji_line_file *file)
{
    if (file->is_watched)
        kji_watch_forget(file->watch, STDIN_FILENO);
    file->is_watched = false;
    file->ended = true;
}

/* A pipe or terminal belongs to others too: it is not made non-blocking, but read only when there
 * is something. */
static int read_input(kji_line_file *file, kji_sink *sink)
{
    for (int k = 0; k < INPUT_READS; k++) {
        struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0)
            return 0;
        ssize_t n = read(STDIN_FILENO, file->buffer, sizeof file->buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            cannot_read_errno(file);
        if (n <= 0) {
            end_input(file);
            return 0;
        }
        file->present = true;
        file->changed = kji_monotonic_ms();
        accept_bytes(file, (size_t)n);
        file->last.st_size = (off_t)file->offset;
        int r = take_buffer(file, sink);
        if (r != 0)
            return r;
    }
    return 0;
}

static void take_event(void *userdata, const struct inotify_event *event)
{
    kji_line_file *file = userdata;
    if (event->wd == file->wd && event->mask & (IN_IGNORED | IN_MOVE_SELF | IN_DELETE_SELF))
        file->wd = -1;
}

static void watch_folder(kji_line_file *file)
{
    kji_watch_drain(file->watch, take_event, file);
    if (file->is_input)
        return;
    int wd = kji_watch_nearest(file->watch, file->folder);
    if (wd != file->wd)
        kji_watch_remove(file->watch, file->wd);
    file->wd = wd;
}

/* An input that cannot be waited on (/dev/zero) always has something. */
static int64_t next_look_ms(const kji_line_file *file, int r)
{
    if (r == 1 || (file->is_piped && !file->is_watched && !file->ended))
        return 0;
    bool network = !file->is_input && kji_is_network_path(file->folder);
    return kji_source_poll_ms(file->options, file->watch, network || file->is_input);
}

int kji_line_file_step(kji_line_file *file, kji_sink *sink, bool finished, kj_error *err)
{
    watch_folder(file);
    int r = take_buffer(file, sink);
    if (r == 0 && file->is_piped && !file->ended)
        r = read_input(file, sink);
    else if (r == 0 && !file->is_piped)
        r = read_file(file, sink, err);
    if (r == 0 && (file->is_piped ? file->ended : finished) && file->lines.started)
        r = end_line(file, sink);
    if (r < 0)
        return r == KJ_EMEM ? kji_fail_memory(err) : r;
    sink->ended = file->ended && r == 0;
    sink->waits = file->is_piped && !file->ended;
    kji_watch_arm(file->watch, next_look_ms(file, r));
    return 0;
}

void kji_line_file_again(kji_line_file *file)
{
    file->again = !file->is_piped;
}

static enum kj_damage_kind state_of(const kji_line_file *file)
{
    if (file->told)
        return KJ_DAMAGE_UNREADABLE;
    return file->lines.started ? KJ_DAMAGE_PARTIAL : KJ_DAMAGE_NONE;
}

static bool was_seen(const kji_line_file *file)
{
    return file->present || file->told || file->offset || file->generation;
}

int kji_line_file_list(const kji_line_file *file, kj_file_fn fn, void *userdata)
{
    const kj_file_info info = {.size = sizeof info,
                               .state = state_of(file),
                               .run = file->root->name,
                               .path = file->path,
                               .file_size = (uint64_t)file->last.st_size,
                               .committed = kji_line_file_committed(file),
                               .records = file->n_lines,
                               .points = file->n_points,
                               .skipped_records = file->skipped_records,
                               .skipped_bytes = file->skipped_bytes,
                               .generation = file->generation,
                               .present = file->present,
                               .quiet_ms = kji_monotonic_ms() - file->changed};
    return was_seen(file) ? fn(userdata, &info) : 0;
}

int kji_line_file_list_damage(const kji_line_file *file, kj_damage_fn fn, void *userdata)
{
    kj_damage damage = {.size = sizeof damage, .run = file->root->name, .file = file->path};
    for (size_t k = 0; k < file->n_damage; k++) {
        const kji_line_damage *range = &file->damage[k];
        damage.kind = range->kind;
        damage.begin = range->begin;
        damage.end = range->end;
        damage.record = range->record;
        damage.generation = range->generation;
        damage.skipped = 1;
        int r = fn(userdata, &damage);
        if (r != 0)
            return r;
    }
    if (state_of(file) == KJ_DAMAGE_NONE)
        return 0;
    damage.kind = state_of(file);
    damage.begin = kji_line_file_committed(file);
    damage.end = damage.begin + file->lines.n_bytes;
    damage.record = file->n_lines;
    damage.generation = file->generation;
    damage.skipped = 0;
    return fn(userdata, &damage);
}

void kji_line_file_count(const kji_line_file *file, kj_events_stats *stats)
{
    stats->files = file->present;
    stats->runs = file->present || file->offset;
    stats->waiting_files = file->present && file->lines.started;
}
