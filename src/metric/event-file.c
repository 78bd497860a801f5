/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer appends records; we see its file at any moment, over a local or a network file system.
 * Reading therefore begins always at the offset behind the last good record ("committed"), and what
 * stands there decides (docs/event-reader.md, "Damage"):
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
#include "event-deliver.h"
#include "event-jump.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
    JUMP_FROM = 32 << 10,      /* larger records are looked at before they are read */
    SUMMARY_LIMIT = 256 << 20, /* a larger record is not loaded */
    BEYOND = 1 << 20,          /* what is appended during a look is read in it up to here */
    SEARCH_BYTES = 64 << 20,   /* of damage that are searched in one look: other files wait */
    VAIN_BYTES = 1 << 30, /* of payloads that are compared with a checksum in vain in one look */
    HOLE_PATIENCE = 12    /* times the grace: then a hole is given up though the file changes */
};

/* One look at one file. */
struct look {
    kji_event_file *file;
    kji_event_reader *reader;
    int fd;
    uint64_t size;                  /* of the file, when the look began */
    bool changed, replaced;         /* since the last look: replaced by another inode */
    uint64_t last_offset, last_end; /* of the last record that was committed in this look */
    uint64_t budget;                /* what is left of VAIN_BYTES */
};

struct record {
    const unsigned char *payload; /* NULL: it is passed over */
    size_t size;
    uint32_t kinds[KJ_EVENT_KINDS]; /* of its values, if it is passed over */
};

bool kji_event_reader_init(kji_event_reader *reader)
{
    return kji_window_init(&reader->window);
}

void kji_event_reader_done(kji_event_reader *reader)
{
    kji_window_done(&reader->window);
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
    free(file->ranges);
    free(file->path);
    free(file);
}

static const unsigned char *at(const struct look *look, uint64_t offset)
{
    return kji_window_at(&look->reader->window, offset);
}

static size_t held(const struct look *look, uint64_t offset)
{
    return kji_window_held(&look->reader->window, offset);
}

/* `size` bytes of the file, from memory where they are there. */
static bool copy_at(const struct look *look, void *bytes, size_t size, uint64_t offset)
{
    if (held(look, offset) < size)
        return kji_read_at(look->fd, bytes, size, offset) == (ssize_t)size;
    memcpy(bytes, at(look, offset), size);
    return true;
}

/* What commit remembered of the last record goes into the mark, as a whole or not at all: from
 * memory, as long as it is there, for the file may be cut at any moment. */
static void note_last(const struct look *look)
{
    kji_file_mark *mark = &look->file->mark;
    unsigned char head[sizeof mark->last_head], tail[sizeof mark->last_tail];
    if (look->last_end == 0 || look->last_end == mark->last_end ||
        !copy_at(look, head, sizeof head, look->last_offset) ||
        !copy_at(look, tail, sizeof tail, look->last_end - sizeof tail))
        return;
    mark->last_offset = look->last_offset;
    mark->last_end = look->last_end;
    memcpy(mark->last_head, head, sizeof head);
    memcpy(mark->last_tail, tail, sizeof tail);
}

/* As kji_window_fill. */
static bool fill(const struct look *look, uint64_t offset, size_t need)
{
    if (held(look, offset) >= need)
        return true;
    note_last(look);
    return kji_window_move(&look->reader->window, offset, need);
}

/* The payload at `committed`, which fits into the window, compared with its checksum. */
static int load(struct look *look, struct record *record)
{
    uint64_t offset = look->file->mark.committed;
    size_t total = record->size + KJI_FRAME_EXTRA;
    if (!fill(look, offset, total))
        return KJ_DAMAGE_UNREADABLE;
    if (held(look, offset) < total)
        return KJ_DAMAGE_PARTIAL;
    record->payload = at(look, offset) + KJI_FRAME_HEAD;
    uint32_t crc = kji_crc32c(record->payload, record->size);
    return kji_frame_crc_matches(crc, record->payload + record->size) ? KJ_DAMAGE_NONE
                                                                      : KJ_DAMAGE_PAYLOAD;
}

/*
 * A record that is not read without need. It is passed over (payload is NULL) when it holds no
 * scalar; else memory for it is taken once its bytes are there and match their checksum.
 */
static int next_large(struct look *look, struct record *record)
{
    kji_window *window = &look->reader->window;
    bool check_all = look->reader->check_all;
    uint64_t offset = look->file->mark.committed, payload = offset + KJI_FRAME_HEAD;
    size_t total = record->size + KJI_FRAME_EXTRA;
    bool fits = total <= window->capacity;
    enum kj_damage_kind state = KJ_DAMAGE_NONE;
    if (look->size < offset || look->size - offset < total)
        return KJ_DAMAGE_PARTIAL;
    if (fits && check_all)
        return load(look, record);
    if (check_all)
        state = kji_check_payload(look->fd, payload, record->size);
    if (state != KJ_DAMAGE_NONE)
        return (int)state;
    memset(record->kinds, 0, sizeof record->kinds);
    switch (
        kji_event_jump(window, payload, record->size, &look->file->run->plugins, record->kinds)) {
    case KJI_JUMP_PASS:
        record->payload = NULL;
        return KJ_DAMAGE_NONE;
    case KJI_JUMP_UNREADABLE:
        return KJ_DAMAGE_UNREADABLE;
    case KJI_JUMP_READ:
        break;
    }
    if (!fits && !check_all)
        state = kji_check_payload(look->fd, payload, record->size);
    if (state != KJ_DAMAGE_NONE)
        return (int)state;
    if (total > SUMMARY_LIMIT)
        return KJ_DAMAGE_TOO_LARGE;
    return fits || kji_window_enlarge(window, total) ? load(look, record) : KJ_EMEM;
}

/* What stands at `committed`: KJ_DAMAGE_NONE with *record, or why there is no record. `*ret_end`
 * when nothing at all stands there. KJ_EMEM. */
static int next_record(struct look *look, struct record *record, bool *ret_end)
{
    uint64_t offset = look->file->mark.committed;
    size_t there = held(look, offset);
    /* At the known end there is nothing to read; a size of 0 may be that of no ordinary file. */
    if (there < KJI_FRAME_HEAD && (there || offset == 0 || offset != look->size)) {
        if (!fill(look, offset, KJI_FRAME_HEAD))
            return KJ_DAMAGE_UNREADABLE;
        there = held(look, offset);
    }
    *ret_end = there == 0;
    if (there < KJI_FRAME_HEAD)
        return there ? KJ_DAMAGE_PARTIAL : KJ_DAMAGE_NONE;
    enum kji_head head = kji_frame_head(at(look, offset), &record->size);
    if (head != KJI_HEAD_GOOD)
        return head == KJI_HEAD_HOLE ? KJ_DAMAGE_HOLE : KJ_DAMAGE_HEADER;
    return record->size > JUMP_FROM ? next_large(look, record) : load(look, record);
}

static void commit(struct look *look, const struct record *record)
{
    kji_file_mark *mark = &look->file->mark;
    kj_events_stats *stats = look->reader->sink->stats;
    size_t total = record->size + KJI_FRAME_EXTRA;
    if (mark->head_size == 0) {
        size_t size = total < sizeof mark->head ? total : sizeof mark->head;
        if (copy_at(look, mark->head, size, mark->committed))
            mark->head_size = (uint32_t)size;
        mark->head_offset = mark->committed;
    }
    look->last_offset = mark->committed;
    mark->committed += total;
    look->last_end = mark->committed;
    mark->records++;
    mark->values_done = 0;
    look->file->state = KJ_DAMAGE_NONE;
    stats->records++;
    stats->bytes += total;
}

/* Counts and keeps the bytes from `committed` to `end` as damaged. */
static void note_damage(struct look *look, uint64_t end, enum kj_damage_kind kind)
{
    kji_event_file *file = look->file;
    kji_event_reader *reader = look->reader;
    uint64_t bytes = end - file->mark.committed;
    reader->sink->stats->skipped_records++;
    reader->sink->stats->skipped_bytes += bytes;
    file->mark.skipped_records++;
    file->mark.skipped_bytes += bytes;
    if (file->n_ranges >= KJI_MAX_RANGES || reader->n_ranges >= KJI_MAX_ALL_RANGES ||
        !kji_reserve(&file->ranges, &file->ranges_capacity, file->n_ranges + 1,
                     sizeof *file->ranges))
        return;
    file->ranges[file->n_ranges++] =
        (kji_damage_range){file->mark.committed, end, file->mark.records, kind};
    reader->n_ranges++;
}

static void skip_to(struct look *look, uint64_t offset, enum kj_damage_kind kind)
{
    kji_event_file *file = look->file;
    uint64_t bytes = offset - file->mark.committed;
    kji_log(KJ_LOG_WARNING, "%s: skipped %llu damaged bytes at offset %llu", file->path,
            (unsigned long long)bytes, (unsigned long long)file->mark.committed);
    note_damage(look, offset, kind);
    look->reader->sink->stats->bytes += bytes;
    file->mark.committed = offset;
    file->mark.values_done = 0;
    file->state = KJ_DAMAGE_NONE;
}

/* A whole record whose content cannot be used. */
static void skip_record(struct look *look, const struct record *record, enum kj_damage_kind kind)
{
    kji_event_file *file = look->file;
    kji_log(KJ_LOG_WARNING, "%s: record %llu %s: skipped", file->path,
            (unsigned long long)file->mark.records,
            kind == KJ_DAMAGE_TOO_LARGE ? "is too large" : "is no event");
    note_damage(look, file->mark.committed + record->size + KJI_FRAME_EXTRA, kind);
    commit(look, record);
}

static void note_state(struct look *look, enum kj_damage_kind state)
{
    kji_event_file *file = look->file;
    int64_t now = look->reader->now_ms;
    if (state != file->state) {
        file->first_ms = file->since_ms = now;
        file->search = (kji_event_search){0};
        file->given_up = false;
    } else if (look->changed) {
        /* While a file with a hole still changes, the hole may yet be filled. */
        int64_t patience = file->first_ms + (int64_t)HOLE_PATIENCE * look->reader->grace_ms;
        if (state == KJ_DAMAGE_HOLE && now < patience) {
            file->since_ms = now;
            file->search.running = false;
        }
        file->given_up = false;
    }
    file->state = state;
}

/* errno is that of the read that failed just now. */
static void tell_read_error(const kji_event_file *file)
{
    char text[128];
    if (file->state != KJ_DAMAGE_UNREADABLE)
        kji_log(KJ_LOG_WARNING, "%s: cannot be read at offset %llu: %s; tried again later",
                file->path, (unsigned long long)file->mark.committed,
                strerror_r(errno, text, sizeof text));
}

/* For the good record behind what is damaged. A hole may have been filled anywhere meanwhile. */
static enum kji_search_end search_on(struct look *look, enum kj_damage_kind state)
{
    kji_event_search *search = &look->file->search;
    uint64_t behind = look->file->mark.committed + 1;
    if (!search->running && (state == KJ_DAMAGE_HOLE || search->at < behind))
        search->at = behind;
    note_last(look);
    return kji_event_search_on(search, &look->reader->window, look->size,
                               look->reader->finished ? UINT64_MAX : SEARCH_BYTES, &look->budget);
}

/* Up to the record that was found. */
static void skip_damage(struct look *look, enum kj_damage_kind state, const struct record *record)
{
    kji_event_file *file = look->file;
    uint64_t bytes = file->search.at - file->mark.committed;
    skip_to(look, file->search.at, state);
    if (state == KJ_DAMAGE_PAYLOAD && bytes == record->size + KJI_FRAME_EXTRA) {
        file->mark.records++; /* so that those behind it keep their numbers */
        look->reader->sink->stats->records++;
    }
}

/* There is no record at `committed`, or one that is damaged (PAYLOAD). True when something was
 * skipped, so that reading can go on. */
static bool recover(struct look *look, enum kj_damage_kind state, const struct record *record)
{
    kji_event_file *file = look->file;
    const kji_event_reader *reader = look->reader;
    if (state == KJ_DAMAGE_UNREADABLE)
        tell_read_error(file);
    note_state(look, state);
    if (state == KJ_DAMAGE_NONE || state == KJ_DAMAGE_UNREADABLE)
        return false;
    if (!reader->finished && (state == KJ_DAMAGE_PARTIAL || file->given_up ||
                              reader->now_ms - file->since_ms < (int64_t)reader->grace_ms))
        return false;
    switch (search_on(look, state)) {
    case KJI_SEARCH_FOUND:
        skip_damage(look, state, record);
        return true;
    case KJI_SEARCH_UNREADABLE:
        tell_read_error(file);
        note_state(look, KJ_DAMAGE_UNREADABLE);
        return false;
    case KJI_SEARCH_LATER:
        return false;
    case KJI_SEARCH_NONE:
        break;
    }
    file->given_up = true;
    if (reader->finished && state != KJ_DAMAGE_PARTIAL && look->size > file->mark.committed)
        skip_to(look, look->size, state);
    return false;
}

/* The record that has been read: delivered, or its values counted. 0, or what the sink returned. */
static int take_record(struct look *look, const struct record *record)
{
    kj_events_stats *stats = look->reader->sink->stats;
    bool good = true;
    if (record->payload) {
        int r =
            kji_deliver_event(look->file, look->reader->sink, record->payload, record->size, &good);
        if (r != 0)
            return r;
    } else {
        for (size_t k = 0; k < KJ_EVENT_KINDS; k++)
            stats->kinds[k] += record->kinds[k];
    }
    if (good)
        commit(look, record);
    else
        skip_record(look, record, KJ_DAMAGE_MESSAGE);
    return 0;
}

/* A writer that is as fast as we are must not make the look endless: an event, or the next look,
 * tells of the rest. */
static bool is_far_enough(const struct look *look)
{
    return !look->reader->finished && look->file->mark.committed > look->size + BEYOND;
}

static int read_records(struct look *look)
{
    while (!is_far_enough(look)) {
        struct record record;
        bool end = false;
        int state = next_record(look, &record, &end);
        if (state < 0)
            return state;
        if (state == KJ_DAMAGE_TOO_LARGE) {
            skip_record(look, &record, KJ_DAMAGE_TOO_LARGE);
        } else if (state != KJ_DAMAGE_NONE || end) {
            if (!recover(look, (enum kj_damage_kind)state, &record))
                return 0;
        } else {
            int r = take_record(look, &record);
            if (r != 0)
                return r;
        }
    }
    return 0;
}

/* Whether the file has these bytes at `offset`; -1: that cannot be read. */
static int has_at(int fd, const unsigned char *bytes, size_t size, uint64_t offset)
{
    unsigned char there[sizeof((kji_file_mark *)NULL)->head];
    ssize_t n = kji_read_at(fd, there, size, offset);
    return n < 0 ? -1 : (size_t)n == size && memcmp(there, bytes, size) == 0;
}

/* Whether the first bytes are still there, as far as the file goes; -1 as above. */
static int begins_the_same(const kji_file_mark *mark, int fd, uint64_t size)
{
    uint64_t there = size > mark->head_offset ? size - mark->head_offset : 0;
    size_t want = there < mark->head_size ? (size_t)there : mark->head_size;
    return has_at(fd, mark->head, want, mark->head_offset);
}

/* Whether all that we have read of it before is still there; -1 as above. */
static int is_the_same(const kji_file_mark *mark, int fd)
{
    int r = begins_the_same(mark, fd, UINT64_MAX);
    if (r <= 0 || mark->last_end == 0) /* cut before that of the last record could be kept */
        return r;
    r = has_at(fd, mark->last_head, sizeof mark->last_head, mark->last_offset);
    size_t tail = sizeof mark->last_tail;
    return r <= 0 ? r : has_at(fd, mark->last_tail, tail, mark->last_end - tail);
}

static void begin_anew(kji_event_file *file, kji_event_reader *reader)
{
    kji_log(KJ_LOG_INFO, "%s: replaced or truncated, read again from its beginning", file->path);
    reader->n_ranges -= file->n_ranges;
    file->n_ranges = 0;
    file->mark = (kji_file_mark){.generation = file->mark.generation + 1};
    file->state = KJ_DAMAGE_NONE;
    file->search = (kji_event_search){0};
    file->given_up = false;
}

enum identity {
    SAME,
    SHORTER, /* than what was read, but it begins the same: it may be in the course of being copied
              */
    OTHER,
    UNKNOWN /* it cannot be read */
};

static enum identity identify(const struct look *look)
{
    const kji_event_file *file = look->file;
    const kji_file_mark *mark = &file->mark;
    bool shorter = look->size < mark->committed;
    bool doubtful = look->changed || file->state == KJ_DAMAGE_UNREADABLE;
    if (!shorter && (!doubtful || mark->committed == 0))
        return SAME;
    if (mark->head_size == 0) /* nothing but damage, by which nobody recognises it */
        return look->replaced || shorter ? OTHER : SAME;
    int r = shorter ? begins_the_same(mark, look->fd, look->size) : is_the_same(mark, look->fd);
    return r < 0 ? UNKNOWN : r == 0 ? OTHER : shorter ? SHORTER : SAME;
}

/* Who copies a file anew will soon have it as long as it was; else it is another one. */
static bool is_waited_for(struct look *look)
{
    note_state(look, KJ_DAMAGE_SHRUNK);
    return !look->reader->finished &&
           look->reader->now_ms - look->file->since_ms < (int64_t)look->reader->grace_ms;
}

int64_t kji_event_mtime_ns(const struct stat *st)
{
    return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec);
}

int64_t kji_event_file_age_ms(int64_t mtime_ns)
{
    double age = kji_wall_time() * 1e3 - (double)mtime_ns * 1e-6;
    return age > 0 ? (int64_t)age : 0;
}

static void note_stat(struct look *look, const struct stat *st)
{
    kji_event_file *file = look->file;
    int64_t mtime_ns = kji_event_mtime_ns(st);
    look->size = (uint64_t)st->st_size;
    look->replaced =
        look->replaced || (file->ino && (st->st_dev != file->dev || st->st_ino != file->ino));
    look->changed =
        look->changed || look->replaced || look->size != file->size || mtime_ns != file->mtime_ns;
    if (look->changed)
        file->changed_ms = look->reader->now_ms - (file->ino ? 0 : kji_event_file_age_ms(mtime_ns));
    file->dev = st->st_dev;
    file->ino = st->st_ino;
    file->size = look->size;
    file->mtime_ns = mtime_ns;
}

/* Notices what has happened to the file since the last look. false: nothing can be read now. */
static bool compare(struct look *look, struct stat *st)
{
    enum { TRIES = 3 };
    kji_event_file *file = look->file;
    note_stat(look, st);
    enum identity identity = identify(look);
    /* It may have been cut or filled between the looks at its size and at its bytes. */
    for (int k = 1; k < TRIES && identity == OTHER && fstat(look->fd, st) == 0; k++) {
        note_stat(look, st);
        identity = identify(look);
    }
    if (identity == UNKNOWN) {
        tell_read_error(file);
        note_state(look, KJ_DAMAGE_UNREADABLE);
        return false;
    }
    if (identity == SHORTER && is_waited_for(look))
        return false;
    if (identity != SAME)
        begin_anew(file, look->reader);
    else if (file->state == KJ_DAMAGE_SHRUNK)
        file->state = KJ_DAMAGE_NONE;
    return true;
}

bool kji_event_file_is_as_seen(const kji_event_file *file, const struct stat *st)
{
    int64_t mtime_ns = kji_event_mtime_ns(st);
    return st->st_ino == file->ino && st->st_dev == file->dev &&
           (uint64_t)st->st_size == file->size && mtime_ns == file->mtime_ns &&
           file->mark.values_done == 0 && file->mark.committed == file->size &&
           file->state != KJ_DAMAGE_UNREADABLE;
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
    bool by_name = file->ino != 0 && !reader->reopen;
    if (by_name && stat(file->path, &st) < 0)
        return cannot_open(file);
    if (by_name && !needs_look(file, reader, &st))
        return 0;
    KJI_CLEANUP(kji_closep)
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cannot_open(file);
    file->told = false;
    if (!needs_look(file, reader, &st))
        return 0;
    struct look look = {.file = file, .reader = reader, .fd = fd, .budget = VAIN_BYTES};
    if (!compare(&look, &st))
        return 0;
    kji_window_open(&reader->window, fd);
    int r = read_records(&look);
    note_last(&look);
    kji_window_restore(&reader->window);
    return r;
}

int64_t kji_event_file_deadline(const kji_event_file *file, const kji_event_reader *reader)
{
    bool damaged = file->state == KJ_DAMAGE_HOLE || file->state == KJ_DAMAGE_HEADER ||
                   file->state == KJ_DAMAGE_PAYLOAD || file->state == KJ_DAMAGE_SHRUNK;
    if (!file->present || !damaged || file->given_up)
        return INT64_MAX;
    int64_t due_ms = file->since_ms + reader->grace_ms;
    return file->search.running && due_ms <= reader->now_ms ? reader->now_ms + 1 : due_ms;
}

int kji_event_file_list_damage(const kji_event_file *file, kj_damage_fn fn, void *userdata)
{
    if (!file->run) /* it has never been read */
        return 0;
    kj_damage damage = {.size = sizeof damage,
                        .run = file->run->name,
                        .file = file->path,
                        .generation = file->mark.generation,
                        .skipped = 1};
    int r = 0;
    for (size_t k = 0; r == 0 && k < file->n_ranges; k++) {
        const kji_damage_range *range = &file->ranges[k];
        damage.kind = range->kind;
        damage.begin = range->begin;
        damage.end = range->end;
        damage.record = range->record;
        r = fn(userdata, &damage);
    }
    if (r != 0 || !file->present || file->told || file->state == KJ_DAMAGE_NONE)
        return r;
    damage.kind = file->state;
    damage.begin = file->mark.committed;
    damage.end = file->size > damage.begin ? file->size : damage.begin;
    damage.record = file->mark.records;
    damage.skipped = 0;
    return fn(userdata, &damage);
}
