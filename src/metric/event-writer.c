/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record is built in the encoder and goes to the file in one write(2) with O_APPEND, or waits in
 * a buffer of whole records.
 *
 * `whole` is the offset behind the last record that is in the file as far as this writer knows.
 * What a failed write left behind it is cut to the last record that is complete; where not even
 * that can be done, the next call tries again first (`is_torn`).
 *
 * Writers that share a file lock it for each write. Under the lock nobody is in the midst of a
 * record: an unfinished one is that of a process that was killed, and is cut off. Each file says in
 * its first record whether it is shared, so none is joined whose owner does not lock it.
 *
 * The record START is written twice: TensorBoard's server takes the first START of a run for its
 * beginning and purges nothing, so a run that has none yet would keep its stale points. A second
 * one changes nothing for all others.
 */
#include "event-writer-impl.h"

#include "clock.h"
#include "errors.h"
#include "event-encode.h"
#include "event-frame.h"
#include "event-name.h"
#include "event-place.h"
#include "event-tail.h"
#include "files.h"
#include "mem.h"
#include "utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_SIZE = 64 * 1024,
    TAG_MAX = 4096,
    TEXT_MAX = 1 << 20,
    SUFFIX_MAX = 64,
    HPARAMS_MAX = 1 << 20 /* bytes of names, texts and tags together */
};

struct kj_event_writer {
    int fd;
    pid_t pid; /* a forked copy has another one */
    uint32_t flags;
    bool is_torn; /* what is behind `whole` could not be cut off */
    off_t whole;
    char *dir;
    char *path;
    kji_encoder encoder;
    unsigned char *buffer; /* with KJ_EVENT_WRITER_BUFFER: whole records */
    size_t buffered;
};

static bool is_shared(const kj_event_writer *writer)
{
    return writer->flags & KJ_EVENT_WRITER_APPEND;
}

static int fail_write(const kj_event_writer *writer, kj_error *err, int r)
{
    return kji_fail_prefix(err, r, "%s", writer->path);
}

/* Cuts the file at `whole`. */
static int cut(kj_event_writer *writer, kj_error *err)
{
    int r;
    while ((r = ftruncate(writer->fd, writer->whole)) < 0 && errno == EINTR)
        continue;
    writer->is_torn = r < 0;
    return r < 0 ? kji_fail_errno(err, KJ_EIO, errno, "cannot take back an unfinished record") : 0;
}

/* Brings `whole` up to what others wrote, without what a killed one left unfinished. */
static int catch_up(kj_event_writer *writer, kj_error *err)
{
    struct stat st;
    off_t end;
    if (fstat(writer->fd, &st) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "stat");
    if (st.st_nlink == 0)
        return kji_fail(err, KJ_EIO, "the file has been removed");
    if (st.st_size == writer->whole)
        return 0;
    if (st.st_size < writer->whole)
        writer->whole = 0;
    int r = kji_event_tail(writer->fd, writer->whole, st.st_size, &end, err);
    if (r < 0)
        return r;
    if (end < 0)
        return kji_fail(err, KJ_EDATA, "it does not end with a record");
    writer->whole = end;
    return end < st.st_size ? cut(writer, err) : 0;
}

/* The size of the whole records among the first `size` of these bytes. */
static size_t whole_records(const unsigned char *bytes, size_t size)
{
    size_t at = 0, payload;
    while (size - at >= KJI_FRAME_EXTRA && kji_frame_head(bytes + at, &payload) == KJI_HEAD_GOOD &&
           payload <= size - at - KJI_FRAME_EXTRA)
        at += KJI_FRAME_EXTRA + payload;
    return at;
}

/* After a write that failed: keeps the records that are complete, returns their size. */
static size_t keep_whole(kj_event_writer *writer, const unsigned char *bytes, size_t size)
{
    struct stat st;
    size_t kept = 0;
    if (fstat(writer->fd, &st) < 0) {
        writer->is_torn = true;
        return 0;
    }
    if (st.st_size > writer->whole) {
        size_t written = (size_t)(st.st_size - writer->whole);
        kept = whole_records(bytes, written < size ? written : size);
        writer->whole += (off_t)kept;
    }
    if (st.st_size > writer->whole)
        cut(writer, NULL);
    return kept;
}

/* Whole records to the file. Also after a failure *ret_kept of their bytes are there. */
static int write_records(kj_event_writer *writer, const unsigned char *bytes, size_t size,
                         size_t *ret_kept, kj_error *err)
{
    int r = 0;
    *ret_kept = 0;
    if (getpid() != writer->pid)
        return kji_fail(err, KJ_ESTATE, "%s belongs to the process that opened it", writer->path);
    if (is_shared(writer))
        kji_lock_file(writer->fd);
    if (is_shared(writer))
        r = catch_up(writer, err);
    else if (writer->is_torn)
        r = cut(writer, err);
    if (r >= 0) {
        r = kji_write_all(writer->fd, bytes, size, err);
        *ret_kept = r < 0 ? keep_whole(writer, bytes, size) : size;
        writer->whole += r < 0 ? 0 : (off_t)size;
    }
    if (is_shared(writer))
        kji_unlock_file(writer->fd);
    return r < 0 ? fail_write(writer, err, r) : 0;
}

static int flush_buffer(kj_event_writer *writer, kj_error *err)
{
    size_t kept;
    if (writer->buffered == 0)
        return 0;
    int r = write_records(writer, writer->buffer, writer->buffered, &kept, err);
    writer->buffered -= kept;
    memmove(writer->buffer, writer->buffer + kept, writer->buffered);
    return r;
}

/* The record in the encoder, to the file or to the buffer. */
static int put_record(kj_event_writer *writer, kj_error *err)
{
    size_t size = kji_encoded_size(&writer->encoder), kept;
    if (writer->buffered + size > BUFFER_SIZE) {
        int r = flush_buffer(writer, err);
        if (r < 0)
            return r;
    }
    if (!writer->buffer || size > BUFFER_SIZE)
        return write_records(writer, writer->encoder.at, size, &kept, err);
    memcpy(writer->buffer + writer->buffered, writer->encoder.at, size);
    writer->buffered += size;
    return 0;
}

static int put_if(kj_event_writer *writer, bool is_encoded, kj_error *err)
{
    return is_encoded ? put_record(writer, err) : kji_fail_memory(err);
}

static int check_suffix(const char *suffix, kj_error *err)
{
    char name[SUFFIX_MAX + 32];
    size_t size = strnlen(suffix, SUFFIX_MAX + 1);
    if (size > SUFFIX_MAX || strchr(suffix, '/'))
        return kji_fail(err, KJ_EARG, "suffix \"%.80s\": at most %d bytes, no slash", suffix,
                        SUFFIX_MAX);
    snprintf(name, sizeof name, "events.out.tfevents.1%s", suffix);
    return kji_is_event_name(name)
               ? 0
               : kji_fail(err, KJ_EARG, "suffix \"%s\": readers pass over such files", suffix);
}

static int check_options(const kj_event_writer_options *options, kj_error *err)
{
    enum { KNOWN = KJ_EVENT_WRITER_APPEND | KJ_EVENT_WRITER_DOUBLE | KJ_EVENT_WRITER_BUFFER };
    if (options->flags & ~(uint32_t)KNOWN)
        return kji_fail(err, KJ_EARG, "flags 0x%x: only 0x%x are known", options->flags,
                        (unsigned)KNOWN);
    return options->suffix ? check_suffix(options->suffix, err) : 0;
}

static void free_writer(kj_event_writer *writer)
{
    kji_closep(&writer->fd);
    kji_encoder_done(&writer->encoder);
    free(writer->buffer);
    free(writer->dir);
    free(writer->path);
    free(writer);
}

static kj_event_writer *new_writer(const char *dir, uint32_t flags)
{
    kj_event_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->fd = -1;
    writer->pid = getpid();
    writer->flags = flags;
    writer->dir = strdup(dir);
    if (writer->dir)
        return writer;
    free_writer(writer);
    return NULL;
}

static int make_path(kj_event_writer *writer, const char *name, kj_error *err)
{
    writer->path = kji_format("%s/%s", writer->dir, name);
    return writer->path ? 0 : kji_fail_memory(err);
}

/* A new file with its first record, which also says whether there is room for any. */
static int begin_file(kj_event_writer *writer, kji_event_place *place, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *name = NULL;
    const char *maker =
        is_shared(writer) ? "kajitori " KJI_VERSION KJI_EVENT_SHARED : "kajitori " KJI_VERSION;
    int r = kji_event_place_create(place, &writer->fd, &name, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "%s", writer->dir);
    r = make_path(writer, name, err);
    if (r >= 0)
        r = put_if(writer, kji_encode_version(&writer->encoder, kji_wall_time(), maker), err);
    if (r < 0)
        unlinkat(place->dir_fd, name, 0);
    return r;
}

static int join_file(kj_event_writer *writer, kji_event_place *place, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *name = NULL;
    int r = kji_event_place_join(place, &writer->fd, &writer->whole, &name);
    if (r == 0)
        return 0;
    kji_unlock_file(writer->fd);
    r = make_path(writer, name, err);
    return r < 0 ? r : 1;
}

static int open_file(kj_event_writer *writer, const char *suffix, kj_error *err)
{
    kji_event_place place;
    int r = kji_event_place_open(&place, writer->dir, suffix, is_shared(writer), err);
    if (r < 0)
        return r;
    r = is_shared(writer) ? join_file(writer, &place, err) : 0;
    if (r == 0)
        r = begin_file(writer, &place, err);
    kji_event_place_done(&place);
    return r;
}

int kji_event_writer_start(kj_event_writer *writer, int64_t step, kj_error *err)
{
    int r = 0;
    for (int k = 0; r >= 0 && k < 2; k++)
        r = put_if(writer, kji_encode_start(&writer->encoder, kji_wall_time(), step), err);
    return r;
}

int kj_event_writer_open(const char *dir, const kj_event_writer_options *from,
                         kj_event_writer **ret_writer, kj_error *err)
{
    kj_event_writer_options options = KJ_EVENT_WRITER_OPTIONS_INIT;
    if (!dir || !*dir)
        return kji_fail(err, KJ_EARG, "empty folder name");
    int r = from ? kji_check_size(from->size, sizeof options, "kj_event_writer_options", err) : 0;
    if (from && r >= 0) {
        options = *from;
        r = check_options(&options, err);
    }
    if (r < 0)
        return r;
    kj_event_writer *writer = new_writer(dir, options.flags);
    if (!writer)
        return kji_fail_memory(err);
    r = open_file(writer, options.suffix ? options.suffix : "", err);
    if (r >= 0 && options.has_purge_step)
        r = kji_event_writer_start(writer, options.purge_step, err);
    if (r >= 0 && options.flags & KJ_EVENT_WRITER_BUFFER) {
        writer->buffer = malloc(BUFFER_SIZE);
        r = writer->buffer ? 0 : kji_fail_memory(err);
    }
    if (r < 0) {
        free_writer(writer);
        return r;
    }
    *ret_writer = writer;
    return 0;
}

int kj_event_writer_close(kj_event_writer *writer, kj_error *err)
{
    if (!writer)
        return 0;
    bool is_copy = getpid() != writer->pid;
    int r = is_copy ? 0 : flush_buffer(writer, err);
    int fd = writer->fd;
    writer->fd = -1;
    /* NFS and quotas may tell only here that nothing was stored. */
    if (close(fd) < 0 && errno != EINTR && r >= 0 && !is_copy)
        r = kji_fail_errno(err, KJ_EIO, errno, "%s", writer->path);
    free_writer(writer);
    return r;
}

const char *kj_event_writer_path(const kj_event_writer *writer)
{
    return writer->path;
}

/* Fills *ret_at for one value. */
static int check_place(kji_event_at *ret_at, const char *tag, int64_t step, double wall_time,
                       kj_error *err)
{
    size_t size = tag ? strnlen(tag, TAG_MAX + 1) : 0;
    if (size == 0 || size > TAG_MAX || !kji_utf8_valid(tag, size))
        return kji_fail(err, KJ_EARG, "the tag is %s; expected 1 to %d bytes of UTF-8",
                        size == 0        ? "empty"
                        : size > TAG_MAX ? "too long"
                                         : "not UTF-8",
                        TAG_MAX);
    if (isinf(wall_time))
        return kji_fail(err, KJ_EARG,
                        "the wall time is infinite; expected seconds since 1970, or "
                        "NaN for now");
    *ret_at = (kji_event_at){tag, size, step, isnan(wall_time) ? kji_wall_time() : wall_time};
    return 0;
}

int kj_event_writer_add_scalar(kj_event_writer *writer, const char *tag, int64_t step,
                               double wall_time, double value, kj_error *err)
{
    kji_event_at at;
    int r = check_place(&at, tag, step, wall_time, err);
    if (r < 0)
        return r;
    bool done = writer->flags & KJ_EVENT_WRITER_DOUBLE
                    ? kji_encode_scalar_double(&writer->encoder, &at, value)
                    : kji_encode_scalar(&writer->encoder, &at, (float)value);
    return put_if(writer, done, err);
}

int kj_event_writer_add_text(kj_event_writer *writer, const char *tag, int64_t step,
                             double wall_time, const char *text, kj_error *err)
{
    kji_event_at at;
    size_t size = text ? strnlen(text, TEXT_MAX + 1) : TEXT_MAX + 1;
    int r = check_place(&at, tag, step, wall_time, err);
    if (r < 0)
        return r;
    if (size > TEXT_MAX || !kji_utf8_valid(text, size))
        return kji_fail(err, KJ_EARG,
                        "the text of tag %.80s is %s; expected at most %d bytes of UTF-8", tag,
                        !text             ? "missing"
                        : size > TEXT_MAX ? "too long"
                                          : "not UTF-8",
                        TEXT_MAX);
    return put_if(writer, kji_encode_text(&writer->encoder, &at, text, size), err);
}

/* Adds the size of a text to *room, and checks it; names may not be empty. */
static int check_text(const char *what, const char *text, bool is_name, size_t *room, kj_error *err)
{
    size_t size = text ? strnlen(text, HPARAMS_MAX + 1) : 0;
    if (!text || (is_name && size == 0))
        return kji_fail(err, KJ_EARG, "%s is missing", what);
    *room += size;
    if (*room > HPARAMS_MAX)
        return kji_fail(err, KJ_EARG, "the hyperparameters have more than %d bytes", HPARAMS_MAX);
    if (!kji_utf8_valid(text, size))
        return kji_fail(err, KJ_EARG, "%s is not UTF-8", what);
    return 0;
}

static int check_hparam(const kj_hparam *param, size_t *room, kj_error *err)
{
    enum { FRAME = 64 }; /* so that their number is limited, too */
    *room += FRAME;
    int r = check_text("the name of a hyperparameter", param->name, true, room, err);
    if (r < 0)
        return r;
    switch (param->value.type) {
    case KJ_TYPE_BOOL:
    case KJ_TYPE_INT:
    case KJ_TYPE_FLOAT:
        return 0;
    case KJ_TYPE_STRING:
        return check_text("a hyperparameter's text", param->value.s, false, room, err);
    }
    return kji_fail(err, KJ_EARG, "hyperparameter %.80s: a number, a text or a truth value",
                    param->name);
}

static int check_hparams(const kj_hparams *hparams, kj_error *err)
{
    size_t room = 0;
    int r = kji_check_size(hparams->size, sizeof *hparams, "kj_hparams", err);
    for (uint64_t k = 0; r >= 0 && k < hparams->n_params; k++)
        r = check_hparam(&hparams->params[k], &room, err);
    for (uint64_t k = 0; r >= 0 && k < hparams->n_metrics; k++)
        r = check_text("the tag of a metric", hparams->metrics[k], true, &room, err);
    if (r >= 0 && hparams->group)
        r = check_text("the group", hparams->group, false, &room, err);
    return r;
}

/* The folder's name, wherever it is seen from; "" when it is not UTF-8. For free. */
static char *default_group(const char *dir)
{
    KJI_CLEANUP(kji_freep) char *real = realpath(dir, NULL);
    const char *slash = strrchr(real ? real : dir, '/');
    const char *name = slash ? slash + 1 : dir;
    return strdup(kji_utf8_valid(name, strlen(name)) ? name : "");
}

int kj_event_writer_add_hparams(kj_event_writer *writer, const kj_hparams *hparams, kj_error *err)
{
    int r = check_hparams(hparams, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep)
    char *group = hparams->group ? strdup(hparams->group) : default_group(writer->dir);
    if (!group)
        return kji_fail_memory(err);
    double now = kji_wall_time();
    if (hparams->n_metrics > 0)
        r = put_if(writer, kji_encode_experiment(&writer->encoder, now, hparams), err);
    if (r >= 0)
        r = put_if(writer, kji_encode_session_start(&writer->encoder, now, hparams, group), err);
    return r;
}

int kj_event_writer_end_hparams(kj_event_writer *writer, enum kj_hparams_status status,
                                double end_time, kj_error *err)
{
    if (status < KJ_HPARAMS_SUCCESS || status > KJ_HPARAMS_RUNNING)
        return kji_fail(err, KJ_EARG, "status %d: expected %d to %d of enum kj_hparams_status",
                        (int)status, KJ_HPARAMS_SUCCESS, KJ_HPARAMS_RUNNING);
    return put_if(writer,
                  kji_encode_session_end(&writer->encoder, kji_wall_time(), status, end_time), err);
}

int kj_event_writer_flush(kj_event_writer *writer, kj_error *err)
{
    return flush_buffer(writer, err);
}

int kj_event_writer_sync(kj_event_writer *writer, kj_error *err)
{
    int r = flush_buffer(writer, err);
    if (r < 0)
        return r;
    while ((r = fsync(writer->fd)) < 0 && errno == EINTR)
        continue;
    return r < 0 ? kji_fail_errno(err, KJ_EIO, errno, "%s", writer->path) : 0;
}
