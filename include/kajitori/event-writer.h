/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes TensorBoard event files: scalars, text and hyperparameters.
 *
 *     kj_event_writer *writer;
 *     kj_event_writer_open("logs/7", NULL, &writer, &err);
 *     kj_event_writer_add_scalar(writer, "loss", step, NAN, 0.25, &err);
 *     kj_event_writer_close(writer, &err);
 *
 * A record reaches the file whole, with one write(2), and another process sees it at once. A
 * process that is killed leaves at most one unfinished record, where it was killed between two
 * pages of the file; readers wait for the rest of it. Where a write is cut short (full disk), what
 * was written of the record is taken back, the call fails, and the next one begins where it should.
 * A writer is for one thread at a time. After fork(2) the child's copy must not be used but to
 * close it, which then writes nothing; what else it would write is refused (KJ_ESTATE). Besides
 * what each call names, all may fail with KJ_EMEM, and those that write with KJ_EIO and, where
 * somebody else damaged a shared file, with KJ_EDATA.
 */
#ifndef KAJITORI_EVENT_WRITER_H
#define KAJITORI_EVENT_WRITER_H

#include <kajitori/error.h>
#include <kajitori/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kj_event_writer kj_event_writer;

enum kj_event_writer_flag {
    KJ_EVENT_WRITER_APPEND = 1, /* go on in the newest file that such a writer (with this flag, and
                                   the same suffix) of this host left in the folder, if it is whole;
                                   several processes may do so at the same time, each record then
                                   costs a lock of the file. Without: always a new file */
    KJ_EVENT_WRITER_DOUBLE = 2, /* scalars as 64-bit tensors, which TensorBoard shows only with
                                   --load_fast=false. Without: as 32-bit simple_value, which every
                                   reader takes */
    KJ_EVENT_WRITER_BUFFER = 4  /* records wait until there are 64 KiB of them, or for flush. Those
                                   that could not be written wait for the next attempt */
};

typedef struct kj_event_writer_options {
    uint32_t size;
    uint32_t flags;     /* enum kj_event_writer_flag */
    const char *suffix; /* end of the file's name, at most 64 bytes [""] */
    int64_t purge_step; /* with has_purge_step: this writer goes on from an earlier one, whose
                           points from this step on count no more (SessionLog START) */
    uint32_t has_purge_step;
    uint32_t reserved;
} kj_event_writer_options;

#define KJ_EVENT_WRITER_OPTIONS_INIT                      \
    {                                                     \
        sizeof(kj_event_writer_options), 0, NULL, 0, 0, 0 \
    }

/* Makes the folder `dir` with those above it where they are missing, and a file in it:
 * events.out.tfevents.TIME.HOST.PID.NUMBER[SUFFIX]. TIME is now, or later than that of all event
 * files that are there: readers go by the order of names. `options` may be NULL. KJ_EARG, KJ_EPERM,
 * KJ_EIO. */
KJ_API int kj_event_writer_open(const char *dir, const kj_event_writer_options *options,
                                kj_event_writer **ret_writer, kj_error *err);

/* Writes what is buffered. Also after a failure the writer is gone. NULL: 0. */
KJ_API int kj_event_writer_close(kj_event_writer *writer, kj_error *err);

/* Path of the file. Borrowed. */
KJ_API const char *kj_event_writer_path(const kj_event_writer *writer);

/* `tag`: 1 to 4096 bytes of UTF-8. `wall_time`: seconds since 1970, NaN: now; not infinite. Any
 * value, NaN and infinities too. KJ_EARG. */
KJ_API int kj_event_writer_add_scalar(kj_event_writer *writer, const char *tag, int64_t step,
                                      double wall_time, double value, kj_error *err);

/* Markdown for TensorBoard's page "Text"; at most 1 MiB of UTF-8. KJ_EARG. */
KJ_API int kj_event_writer_add_text(kj_event_writer *writer, const char *tag, int64_t step,
                                    double wall_time, const char *text, kj_error *err);

typedef struct kj_hparam {
    const char *name;
    kj_value value; /* number, text or truth value */
} kj_hparam;

typedef struct kj_hparams {
    uint32_t size;
    uint32_t reserved;
    const kj_hparam *params;
    uint64_t n_params;
    const char *const *metrics; /* tags of the scalars that TensorBoard shows beside them */
    uint64_t n_metrics;
    const char *group; /* runs of one trial have the same [the folder's name] */
    double start_time; /* seconds since 1970; 0: now */
} kj_hparams;

#define KJ_HPARAMS_INIT                                    \
    {                                                      \
        sizeof(kj_hparams), 0, NULL, 0, NULL, 0, NULL, 0.0 \
    }

/*
 * The hyperparameters of this run, for TensorBoard's page "HParams"; together at most 1 MiB.
 * KJ_EARG. TensorBoard takes the first such record of a run only. Without `metrics` it finds out
 * itself which parameters and scalars the runs of a log folder have; with them, it shows the
 * parameters and metrics of the first run that named some, for all runs.
 */
KJ_API int kj_event_writer_add_hparams(kj_event_writer *writer, const kj_hparams *hparams,
                                       kj_error *err);

enum kj_hparams_status { KJ_HPARAMS_SUCCESS = 1, KJ_HPARAMS_FAILURE = 2, KJ_HPARAMS_RUNNING = 3 };

/* How the run of add_hparams ended. `end_time` as start_time. KJ_EARG. */
KJ_API int kj_event_writer_end_hparams(kj_event_writer *writer, enum kj_hparams_status status,
                                       double end_time, kj_error *err);

/* flush: what is buffered is in the file. sync: and on the disk (fsync). */
KJ_API int kj_event_writer_flush(kj_event_writer *writer, kj_error *err);
KJ_API int kj_event_writer_sync(kj_event_writer *writer, kj_error *err);

#ifdef __cplusplus
}
#endif

#endif
