/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event file that is followed: where we are in it, and what to do about its end. No descriptor
 * and no buffer is kept between two looks.
 */
#ifndef KJI_EVENT_FILE_H
#define KJI_EVENT_FILE_H

#include "event-frame.h"
#include "event-search.h"
#include "event-window.h"
#include "point-sink.h"

#include <sys/stat.h>

/* All that a reader must know to go on where another one was; plain values. */
typedef struct kji_file_mark {
    uint64_t committed;   /* offset behind the last record that was delivered or skipped */
    uint64_t values_done; /* of the record at `committed`: the caller stopped in its middle */
    uint64_t records, points, skipped_records, skipped_bytes; /* of this generation */
    uint32_t generation;

    /* To recognise the file when it has been replaced or rewritten: the beginning of the first good
     * record, which holds the time when the file was begun, and the checksums of the last one. */
    uint32_t head_size; /* 0: there was no good record yet */
    uint64_t head_offset;
    uint64_t last_offset, last_end;
    unsigned char head[64], last_head[KJI_FRAME_HEAD], last_tail[4];
} kji_file_mark;

/* Bytes that were passed over: the first KJI_MAX_RANGES of a file are kept, and
 * KJI_MAX_ALL_RANGES of all files. */
enum { KJI_MAX_RANGES = 1000, KJI_MAX_ALL_RANGES = 100000 };

typedef struct kji_damage_range {
    uint64_t begin, end;
    uint64_t record; /* number of the record that should stand there */
    enum kj_damage_kind kind;
} kji_damage_range;

typedef struct kji_event_file {
    char *path;
    const char *name; /* the last part of path */
    kji_run *run;
    bool present;
    bool told; /* that it cannot be opened */

    /* For event-dir.h and event-queue.h. */
    struct kji_event_folder *folder;
    bool dirty;         /* may have changed: look again */
    uint32_t listing;   /* number of the last listing of its folder that had it */
    uint32_t poll_ms;   /* until the next look, where no event tells; 0: at the next round */
    size_t timed_at;    /* 0: no time is set */
    int64_t due_ms;     /* monotonic */
    int64_t changed_ms; /* monotonic: when it changed last, as far as is known */

    /* As it was at the beginning of the last look. */
    dev_t dev;
    ino_t ino;
    uint64_t size;
    int64_t mtime_ns;

    kji_file_mark mark;
    kji_damage_range *ranges; /* of this generation, the first ones */
    size_t n_ranges, ranges_capacity;

    enum kj_damage_kind state;  /* what stands at mark.committed; all but NONE may still heal */
    int64_t first_ms, since_ms; /* when this state was first seen; when its grace began */
    kji_event_search search;    /* for the next good record behind it */
    bool given_up;              /* there was none up to `size` */
} kji_event_file;

/* Shared by all files of a source. */
typedef struct kji_event_reader {
    kji_window window;
    kji_sink *sink;
    uint32_t grace_ms;
    bool finished;  /* wait for nothing */
    bool reopen;    /* do not believe stat(2) by name: over a network it may be late */
    bool check_all; /* payloads of every kind are read and compared with their checksums */
    int64_t now_ms;
    size_t n_ranges; /* kept for all files */
} kji_event_reader;

bool kji_event_reader_init(kji_event_reader *reader);
void kji_event_reader_done(kji_event_reader *reader);

/* Takes `path` over; NULL frees it when memory is gone. */
kji_event_file *kji_event_file_new(char *path, kji_run *run);
void kji_event_file_free(kji_event_file *file);

/* Delivers what is new. 0: read to its end as far as that goes; 1: the sink wants no more now;
 * KJ_EMEM. */
int kji_event_file_read(kji_event_file *file, kji_event_reader *reader);

/* Whether it is as it was at the last look, and all of it has been read. */
bool kji_event_file_is_as_seen(const kji_event_file *file, const struct stat *st);

/* Modulo 2^64: times beyond the year 2262 differ from each other, too. */
int64_t kji_event_mtime_ns(const struct stat *st);

/* How long ago it was, by a clock that need not be that of the file system. */
int64_t kji_event_file_age_ms(int64_t mtime_ns);

/* When it wants to be looked at though nothing changes (monotonic); INT64_MAX: never. */
int64_t kji_event_file_deadline(const kji_event_file *file, const kji_event_reader *reader);

/* Calls fn for what has been skipped, then for what is waited for, until it returns nonzero. */
int kji_event_file_list_damage(const kji_event_file *file, kj_damage_fn fn, void *userdata);

#endif
