/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event file that is followed: where we are in it, and what to do about its end. No descriptor
 * and no buffer is kept between two looks.
 */
#ifndef KJI_EVENT_FILE_H
#define KJI_EVENT_FILE_H

#include "event-frame.h"
#include "point-sink.h"

#include <sys/stat.h>

/* What stands at `committed`. All but CLEAN may still heal. */
enum kji_file_state {
    KJI_FILE_CLEAN,       /* nothing: all has been read */
    KJI_FILE_PARTIAL,     /* the beginning of a record */
    KJI_FILE_HOLE,        /* zeros where a record should begin */
    KJI_FILE_BAD_HEAD,    /* no record */
    KJI_FILE_BAD_PAYLOAD, /* a record whose content does not match its checksum */
    KJI_FILE_SHRUNK, /* the file is shorter than what was read: perhaps it is being rewritten */
    KJI_FILE_ERROR   /* it could not be read */
};

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

    uint64_t committed; /* offset behind the last record that was delivered or skipped */
    uint64_t records;
    size_t values_done; /* of the record at `committed`: the caller stopped in its middle */

    enum kji_file_state state;
    int64_t first_ms, since_ms; /* when this state was first seen; when its grace began */
    uint64_t searched;          /* resynchronising: no record begins before this offset */
    bool given_up;              /* there was none up to `size` */

    /* To recognise the file when it has been replaced or rewritten: the beginning of the first good
     * record, which holds the time when the file was begun, and the checksums of the last one. */
    unsigned char head[64];
    uint32_t head_size; /* 0: there was no good record yet */
    uint64_t head_offset;
    uint64_t last_offset, last_end;
    unsigned char last_head[KJI_FRAME_HEAD], last_tail[4];
} kji_event_file;

/* Shared by all files of a source. */
typedef struct kji_event_reader {
    unsigned char *buffer;
    size_t capacity;
    kji_sink *sink;
    uint32_t grace_ms;
    bool finished; /* wait for nothing */
    bool reopen;   /* do not believe stat(2) by name: over a network it may be late */
    int64_t now_ms;
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

/* When it wants to be looked at though nothing changes (monotonic); INT64_MAX: never. */
int64_t kji_event_file_deadline(const kji_event_file *file, const kji_event_reader *reader);

#endif
