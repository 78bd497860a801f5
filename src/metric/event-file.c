/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer appends records; we see its file at any moment, over a local or a network file system.
 * Reading therefore begins always at the offset behind the last good record ("committed"), and what
 * stands there decides (docs/metrics.md, "Damage"):
 *
 *     less than a record          wait, it grows
 *     zeros                       wait: a block that is not visible yet
 *     bad header, bad checksum    wait for the grace time, then go on at the next good record
 *     good checksums, bad message skip this record
 *
 * A claimed length never decides how much is allocated: the bytes must exist and match their
 * checksum first. A file whose inode changed or that shrank is recognised by its first bytes and by
 * the header of the last record; if they are still there reading goes on, else it begins anew.
 */
#include "event-file.h"

#include "clock.h"
#include "crc32c.h"
#include "errors.h"
#include "event-wire.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
    BUFFER_SIZE = 256 << 10,
    SUMMARY_LIMIT = 256 << 20, /* a larger summary is not loaded */
    PIECE = 16 << 10,
    HOLE_PATIENCE = 12 /* times the grace: then a hole is given up though the file still changes */
};

/* One look at one file. */
struct look {
    kji_event_file *file;
    kji_event_reader *reader;
    int fd;
    uint64_t size; /* of the file, when the look began */
    bool changed;  /* since the last look */
    uint64_t window;
    size_t filled; /* what the buffer holds: [window, window + filled) */
};

struct record {
    const unsigned char *payload; /* NULL: it is too large for the buffer */
    size_t size;
};

bool kji_event_reader_init(kji_event_reader *reader)
{
    reader->buffer = malloc(BUFFER_SIZE);
    reader->capacity = reader->buffer ? BUFFER_SIZE : 0;
    return reader->buffer != NULL;
}

void kji_event_reader_done(kji_event_reader *reader)
{
    free(reader->buffer);
    reader->buffer = NULL;
}

kji_event_file *kji_event_file_new(char *path, kji_run *run)
{
    kji_event_file *file = calloc(1, sizeof *file);
    if (!file) {
        free(path);
        return NULL;
    }
    const char *slash = strrchr(path, '/');
    file->path = path;
    file->name = slash ? slash + 1 : path;
    file->run = run;
    return file;
}

void kji_event_file_free(kji_event_file *file)
{
    if (!file)
        return;
    free(file->path);
    free(file);
}

/* All of `size` bytes at `offset`, or fewer at the end of the file; -1 with errno. */
static ssize_t read_at(int fd, void *bytes, size_t size, uint64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (char *)bytes + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* How many bytes from `offset` on the buffer holds. */
static size_t held(const struct look *look, uint64_t offset)
{
    if (offset < look->window || offset > look->window + look->filled)
        return 0;
    return (size_t)(look->window + look->filled - offset);
}

/* Fills the buffer from `offset` on unless `need` bytes are there already. false: read error. */
static bool fill(struct look *look, uint64_t offset, size_t need)
{
    if (held(look, offset) >= need)
        return true;
    ssize_t n = read_at(look->fd, look->reader->buffer, look->reader->capacity, offset);
    look->window = offset;
    look->filled = n < 0 ? 0 : (size_t)n;
    return n >= 0;
}

static const unsigned char *at(const struct look *look, uint64_t offset)
{
    return look->reader->buffer + (offset - look->window);
}

/* The checksum of a payload that need not fit into the buffer, which it leaves alone. */
static enum kji_file_state check_payload(const struct look *look, uint64_t offset, size_t size)
{
    unsigned char piece[PIECE];
    uint32_t crc = 0;
    while (size) {
        size_t want = size < sizeof piece ? size : sizeof piece;
        ssize_t n = read_at(look->fd, piece, want, offset);
        if (n < 0)
            return KJI_FILE_ERROR;
        if ((size_t)n < want)
            return KJI_FILE_PARTIAL;
        crc = kji_crc32c_extend(crc, piece, want);
        offset += want;
        size -= want;
    }
    ssize_t n = read_at(look->fd, piece, 4, offset);
    if (n != 4)
        return n < 0 ? KJI_FILE_ERROR : KJI_FILE_PARTIAL;
    return kji_frame_crc_matches(crc, piece) ? KJI_FILE_CLEAN : KJI_FILE_BAD_PAYLOAD;
}

/* What stands at `committed`: KJI_FILE_CLEAN with record->size, or why there is no record.
 * `*ret_end` when nothing at all stands there. */
static enum kji_file_state next_record(struct look *look, struct record *record, bool *ret_end)
{
    uint64_t offset = look->file->committed;
    if (!fill(look, offset, KJI_FRAME_HEAD))
        return KJI_FILE_ERROR;
    size_t there = held(look, offset);
    *ret_end = there == 0;
    if (there < KJI_FRAME_HEAD)
        return there ? KJI_FILE_PARTIAL : KJI_FILE_CLEAN;
    enum kji_head head = kji_frame_head(at(look, offset), &record->size);
    if (head != KJI_HEAD_GOOD)
        return head == KJI_HEAD_HOLE ? KJI_FILE_HOLE : KJI_FILE_BAD_HEAD;
    size_t total = record->size + KJI_FRAME_EXTRA;
    record->payload = NULL;
    if (total > look->reader->capacity)
        return look->size < offset || total > look->size - offset
                   ? KJI_FILE_PARTIAL
                   : check_payload(look, offset + KJI_FRAME_HEAD, record->size);
    if (!fill(look, offset, total))
        return KJI_FILE_ERROR;
    if (held(look, offset) < total)
        return KJI_FILE_PARTIAL;
    const unsigned char *payload = at(look, offset) + KJI_FRAME_HEAD;
    if (!kji_frame_crc_matches(kji_crc32c(payload, record->size), payload + record->size))
        return KJI_FILE_BAD_PAYLOAD;
    record->payload = payload;
    return KJI_FILE_CLEAN;
}

static void count_skipped(struct look *look, uint64_t bytes)
{
    look->reader->sink->stats->skipped_records++;
    look->reader->sink->stats->skipped_bytes += bytes;
}

/*
 * The good record that begins at or behind `from`. false: there is none (file->searched says from
 * where to search when the file has grown), or a read error.
 */
static bool find_record(struct look *look, uint64_t from, uint64_t *ret_offset)
{
    uint64_t unfinished = UINT64_MAX; /* the first header that waits for its payload */
    uint64_t offset = from;
    for (; fill(look, offset, KJI_FRAME_HEAD) && held(look, offset) >= KJI_FRAME_HEAD; offset++) {
        const unsigned char *head = at(look, offset);
        size_t size;
        if ((head[4] | head[5] | head[6] | head[7]) != 0 ||
            kji_frame_head(head, &size) != KJI_HEAD_GOOD)
            continue;
        enum kji_file_state state = check_payload(look, offset + KJI_FRAME_HEAD, size);
        if (state == KJI_FILE_CLEAN) {
            *ret_offset = offset;
            return true;
        }
        if (state == KJI_FILE_PARTIAL && unfinished == UINT64_MAX)
            unfinished = offset;
    }
    look->file->searched = unfinished < offset ? unfinished : offset;
    return false;
}

static void keep_head(kji_event_file *file, const struct record *record, size_t total)
{
    size_t size = record->payload ? total : KJI_FRAME_HEAD;
    file->head_size = size < sizeof file->head ? (uint32_t)size : sizeof file->head;
    file->head_offset = file->committed;
    memcpy(file->head, record->payload ? record->payload - KJI_FRAME_HEAD : file->last_head,
           file->head_size);
}

static void commit(struct look *look, const struct record *record)
{
    kji_event_file *file = look->file;
    kji_sink *sink = look->reader->sink;
    size_t total = record->size + KJI_FRAME_EXTRA;
    if (file->head_size == 0)
        keep_head(file, record, total);
    if (record->payload) {
        memcpy(file->last_head, record->payload - KJI_FRAME_HEAD, KJI_FRAME_HEAD);
        memcpy(file->last_tail, record->payload + record->size, sizeof file->last_tail);
    }
    file->last_offset = file->committed;
    file->last_end = file->committed + total;
    file->committed += total;
    file->records++;
    file->values_done = 0;
    file->state = KJI_FILE_CLEAN;
    sink->stats->records++;
    sink->stats->bytes += total;
}

static void skip_to(struct look *look, uint64_t offset)
{
    kji_event_file *file = look->file;
    uint64_t bytes = offset - file->committed;
    kji_log(KJ_LOG_WARNING, "%s: skipped %llu damaged bytes at offset %llu", file->path,
            (unsigned long long)bytes, (unsigned long long)file->committed);
    count_skipped(look, bytes);
    look->reader->sink->stats->bytes += bytes;
    file->committed = offset;
    file->values_done = 0;
    file->state = KJI_FILE_CLEAN;
}

static void note_state(struct look *look, enum kji_file_state state)
{
    kji_event_file *file = look->file;
    int64_t now = look->reader->now_ms;
    if (state != file->state) {
        file->first_ms = file->since_ms = now;
        file->searched = 0;
        file->given_up = false;
    } else if (look->changed) {
        /* While a file with a hole still changes, the hole may yet be filled. */
        int64_t patience = file->first_ms + (int64_t)HOLE_PATIENCE * look->reader->grace_ms;
        if (state == KJI_FILE_HOLE && now < patience)
            file->since_ms = now;
        file->given_up = false;
    }
    file->state = state;
}

/* errno is that of the read that failed just now. */
static void tell_read_error(const kji_event_file *file)
{
    char text[128];
    if (file->state != KJI_FILE_ERROR)
        kji_log(KJ_LOG_WARNING, "%s: cannot be read at offset %llu: %s; tried again later",
                file->path, (unsigned long long)file->committed,
                strerror_r(errno, text, sizeof text));
}

/* There is no record at `committed`. True when something was skipped, so that reading can go on. */
static bool recover(struct look *look, enum kji_file_state state)
{
    kji_event_file *file = look->file;
    const kji_event_reader *reader = look->reader;
    if (state == KJI_FILE_ERROR)
        tell_read_error(file);
    note_state(look, state);
    if (state == KJI_FILE_CLEAN || state == KJI_FILE_ERROR)
        return false;
    if (!reader->finished && (state == KJI_FILE_PARTIAL || file->given_up ||
                              reader->now_ms - file->since_ms < (int64_t)reader->grace_ms))
        return false;
    uint64_t from = file->committed + 1, found;
    if (state != KJI_FILE_HOLE && file->searched > from)
        from = file->searched;
    if (find_record(look, from, &found)) {
        skip_to(look, found);
        return true;
    }
    file->given_up = true;
    if (reader->finished && state != KJI_FILE_PARTIAL && look->size > file->committed)
        skip_to(look, look->size);
    return false;
}

/* Delivers the values from number file->values_done on. */
static int deliver_values(kji_event_file *file, kji_sink *sink, const kji_event *event,
                          const kji_origin *origin)
{
    kji_scalar_iter iter;
    kji_scalar scalar;
    kji_scalar_begin(&iter, event);
    for (size_t k = 0; kji_scalar_next(&iter, &scalar) == 1; k++) {
        if (k < file->values_done)
            continue;
        int r = kji_sink_scalar(sink, origin, scalar.tag, scalar.tag_size, scalar.value);
        if (r >= 0)
            file->values_done = k + 1;
        if (r != 0)
            return r;
    }
    return 0;
}

/* Nothing of an event is delivered unless all of it is well-formed. */
static int deliver_summary(kji_event_file *file, kji_sink *sink, const kji_event *event,
                           const kji_origin *origin, bool *ret_good)
{
    kji_scalar_iter iter;
    kji_scalar first, other;
    kji_scalar_begin(&iter, event);
    int r = kji_scalar_next(&iter, &first);
    size_t n = r == 1;
    while (r == 1 && (r = kji_scalar_next(&iter, &other)) == 1)
        n++;
    *ret_good = r == 0;
    if (r < 0 || n <= file->values_done)
        return 0;
    if (n > 1)
        return deliver_values(file, sink, event, origin);
    r = kji_sink_scalar(sink, origin, first.tag, first.tag_size, first.value);
    file->values_done = r >= 0;
    return r;
}

/* A session that starts where there is something already starts again. */
static int deliver_start(kji_event_file *file, kji_sink *sink, const kji_origin *origin)
{
    if (file->values_done)
        return 0;
    int r = file->run->started ? kji_sink_restart(sink, origin) : 0;
    file->values_done = r >= 0;
    file->run->started = true;
    return r;
}

static int deliver(struct look *look, const struct record *record)
{
    kji_event_file *file = look->file;
    kji_sink *sink = look->reader->sink;
    kji_event event;
    bool good = kji_event_parse(record->payload, record->size, &event);
    int r = 0;
    if (good) {
        const kji_origin origin = {file->run, file->path, file->records, event.step,
                                   event.wall_time};
        if (event.kind == KJI_EVENT_SUMMARY)
            r = deliver_summary(file, sink, &event, &origin, &good);
        else if (event.kind == KJI_EVENT_START)
            r = deliver_start(file, sink, &origin);
    }
    if (!good) {
        kji_log(KJ_LOG_WARNING, "%s: record %llu is no event: skipped", file->path,
                (unsigned long long)file->records);
        count_skipped(look, 0);
    }
    return r;
}

enum { NOT_READABLE = 2 };

/* A record that is larger than the buffer, its checksum has been found right. Graphs are passed
 * over; a summary is loaded. 0, NOT_READABLE or KJ_EMEM. */
static int load_large(struct look *look, struct record *record)
{
    kji_event_reader *reader = look->reader;
    uint64_t offset = look->file->committed;
    size_t total = record->size + KJI_FRAME_EXTRA;
    if (!fill(look, offset, reader->capacity) || held(look, offset) < KJI_FRAME_HEAD)
        return NOT_READABLE;
    kji_event_file *file = look->file;
    memcpy(file->last_head, at(look, offset), KJI_FRAME_HEAD);
    if (read_at(look->fd, file->last_tail, 4, offset + total - 4) != 4)
        return NOT_READABLE;
    size_t prefix = held(look, offset) - KJI_FRAME_HEAD;
    if (kji_event_is_blob(at(look, offset) + KJI_FRAME_HEAD, prefix, record->size))
        return 0;
    if (total > SUMMARY_LIMIT) {
        kji_log(KJ_LOG_WARNING, "%s: record %llu of %zu bytes is too large: skipped", file->path,
                (unsigned long long)file->records, total);
        count_skipped(look, 0);
        return 0;
    }
    unsigned char *grown = realloc(reader->buffer, total);
    if (!grown)
        return KJ_EMEM;
    reader->buffer = grown;
    reader->capacity = total;
    look->filled = 0;
    if (!fill(look, offset, total) || held(look, offset) < total)
        return NOT_READABLE;
    record->payload = at(look, offset) + KJI_FRAME_HEAD;
    return 0;
}

static void shrink_buffer(kji_event_reader *reader)
{
    if (reader->capacity == BUFFER_SIZE)
        return;
    unsigned char *shrunk = realloc(reader->buffer, BUFFER_SIZE);
    if (!shrunk)
        return;
    reader->buffer = shrunk;
    reader->capacity = BUFFER_SIZE;
}

static int read_records(struct look *look)
{
    for (;;) {
        struct record record;
        bool end = false;
        enum kji_file_state state = next_record(look, &record, &end);
        if (state != KJI_FILE_CLEAN || end) {
            if (!recover(look, state))
                return 0;
            continue;
        }
        int r = record.payload ? 0 : load_large(look, &record);
        if (r == 0 && record.payload)
            r = deliver(look, &record);
        if (r == NOT_READABLE) {
            note_state(look, KJI_FILE_ERROR);
            return 0;
        }
        if (r != 0)
            return r;
        commit(look, &record);
    }
}

/* Whether the first bytes are still there, as far as the file goes. */
static bool begins_the_same(const kji_event_file *file, int fd, uint64_t size)
{
    unsigned char bytes[sizeof file->head];
    uint64_t there = size > file->head_offset ? size - file->head_offset : 0;
    size_t want = there < file->head_size ? (size_t)there : file->head_size;
    return read_at(fd, bytes, want, file->head_offset) == (ssize_t)want &&
           memcmp(bytes, file->head, want) == 0;
}

/* Whether all that we have read of it before is still there. */
static bool is_the_same(const kji_event_file *file, int fd)
{
    unsigned char bytes[KJI_FRAME_HEAD];
    size_t tail = sizeof file->last_tail;
    if (file->head_size == 0) /* nothing but damage so far */
        return true;
    return begins_the_same(file, fd, UINT64_MAX) &&
           read_at(fd, bytes, KJI_FRAME_HEAD, file->last_offset) == KJI_FRAME_HEAD &&
           memcmp(bytes, file->last_head, KJI_FRAME_HEAD) == 0 &&
           read_at(fd, bytes, tail, file->last_end - tail) == (ssize_t)tail &&
           memcmp(bytes, file->last_tail, tail) == 0;
}

static void begin_anew(kji_event_file *file)
{
    kji_log(KJ_LOG_INFO, "%s: replaced or truncated, read again from its beginning", file->path);
    file->committed = file->records = 0;
    file->values_done = 0;
    file->state = KJI_FILE_CLEAN;
    file->searched = 0;
    file->given_up = false;
    file->head_size = 0;
}

/* The file is shorter than what was read. Who copies it anew will soon have it as long as it was;
 * else it is another file. */
static bool is_being_rewritten(struct look *look)
{
    kji_event_file *file = look->file;
    note_state(look, KJI_FILE_SHRUNK);
    return !look->reader->finished && begins_the_same(file, look->fd, look->size) &&
           look->reader->now_ms - file->since_ms < (int64_t)look->reader->grace_ms;
}

/* How long ago it was, by a clock that need not be that of the file system. */
static int64_t age_ms(int64_t mtime_ns)
{
    double age = kji_wall_time() * 1e3 - (double)mtime_ns * 1e-6;
    return age > 0 ? (int64_t)age : 0;
}

/* Notices what has happened to the file since the last look. false: nothing can be read now. */
static bool compare(struct look *look, const struct stat *st)
{
    kji_event_file *file = look->file;
    int64_t mtime_ns = st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    bool replaced = file->ino && (st->st_dev != file->dev || st->st_ino != file->ino);
    look->size = (uint64_t)st->st_size;
    look->changed = replaced || look->size != file->size || mtime_ns != file->mtime_ns;
    if (look->changed)
        file->changed_ms = look->reader->now_ms - (file->ino ? 0 : age_ms(mtime_ns));
    file->dev = st->st_dev;
    file->ino = st->st_ino;
    file->size = look->size;
    file->mtime_ns = mtime_ns;
    if (look->size < file->committed) {
        if (is_being_rewritten(look))
            return false;
        begin_anew(file);
    } else if (look->changed && file->committed && !is_the_same(file, look->fd)) {
        begin_anew(file);
    } else if (file->state == KJI_FILE_SHRUNK) {
        file->state = KJI_FILE_CLEAN;
    }
    return true;
}

bool kji_event_file_is_as_seen(const kji_event_file *file, const struct stat *st)
{
    int64_t mtime_ns = st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    return st->st_ino == file->ino && st->st_dev == file->dev &&
           (uint64_t)st->st_size == file->size && mtime_ns == file->mtime_ns &&
           file->values_done == 0 && file->committed == file->size;
}

static bool needs_look(const kji_event_file *file, const kji_event_reader *reader,
                       const struct stat *st)
{
    return S_ISREG(st->st_mode) && (reader->finished || !kji_event_file_is_as_seen(file, st));
}

static int cannot_open(kji_event_file *file)
{
    if (errno != ENOENT && !file->told) {
        char text[128];
        kji_log(KJ_LOG_WARNING, "%s: %s; tried again later", file->path,
                strerror_r(errno, text, sizeof text));
        file->told = true;
    }
    return 0;
}

int kji_event_file_read(kji_event_file *file, kji_event_reader *reader)
{
    struct stat st;
    if (!reader->reopen && stat(file->path, &st) < 0)
        return cannot_open(file);
    if (!reader->reopen && !needs_look(file, reader, &st))
        return 0;
    KJI_CLEANUP(kji_closep)
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cannot_open(file);
    file->told = false;
    if (!needs_look(file, reader, &st))
        return 0;
    struct look look = {.file = file, .reader = reader, .fd = fd};
    if (!compare(&look, &st))
        return 0;
    int r = read_records(&look);
    shrink_buffer(reader);
    return r;
}

int64_t kji_event_file_deadline(const kji_event_file *file, const kji_event_reader *reader)
{
    bool damaged = file->state == KJI_FILE_HOLE || file->state == KJI_FILE_BAD_HEAD ||
                   file->state == KJI_FILE_BAD_PAYLOAD || file->state == KJI_FILE_SHRUNK;
    if (!file->present || !damaged || file->given_up)
        return INT64_MAX;
    return file->since_ms + reader->grace_ms;
}
