/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"

#include <kajitori/event-writer.h>

int kj_event_writer_open(const char *dir, const kj_event_writer_options *options,
                         kj_event_writer **ret_writer, kj_error *err)
{
    (void)dir, (void)options, (void)ret_writer;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_close(kj_event_writer *writer, kj_error *err)
{
    (void)writer, (void)err;
    return 0;
}

const char *kj_event_writer_path(const kj_event_writer *writer)
{
    (void)writer;
    return "";
}

int kj_event_writer_add_scalar(kj_event_writer *writer, const char *tag, int64_t step,
                               double wall_time, double value, kj_error *err)
{
    (void)writer, (void)tag, (void)step, (void)wall_time, (void)value;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_add_text(kj_event_writer *writer, const char *tag, int64_t step,
                             double wall_time, const char *text, kj_error *err)
{
    (void)writer, (void)tag, (void)step, (void)wall_time, (void)text;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_add_hparams(kj_event_writer *writer, const kj_hparams *hparams, kj_error *err)
{
    (void)writer, (void)hparams;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_end_hparams(kj_event_writer *writer, enum kj_hparams_status status,
                                double end_time, kj_error *err)
{
    (void)writer, (void)status, (void)end_time;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_flush(kj_event_writer *writer, kj_error *err)
{
    (void)writer;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}

int kj_event_writer_sync(kj_event_writer *writer, kj_error *err)
{
    (void)writer;
    return kji_fail(err, KJ_EUNSUPPORTED, "not yet");
}
