/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole records of an event file, as TensorBoard's own writer has them (fields in ascending order,
 * zeros left out). Each call makes one record in the encoder, in place of the one before; it is
 * [encoder->at, + kji_encoded_size). false: no memory. Texts are UTF-8, checked by the caller.
 */
#ifndef KJI_EVENT_ENCODE_H
#define KJI_EVENT_ENCODE_H

#include <kajitori/event-writer.h>

#include "wire-encode.h"

void kji_encoder_done(kji_encoder *encoder);

static inline size_t kji_encoded_size(const kji_encoder *encoder)
{
    return (size_t)(encoder->bytes + encoder->capacity - encoder->at);
}

/* The first record of a file; `writer` says who made it. */
bool kji_encode_version(kji_encoder *encoder, double wall_time, const char *writer);

/* SessionLog START at `step`. */
bool kji_encode_start(kji_encoder *encoder, double wall_time, int64_t step);

typedef struct kji_event_at {
    const char *tag;
    size_t tag_size;
    int64_t step;
    double wall_time;
} kji_event_at;

bool kji_encode_scalar(kji_encoder *encoder, const kji_event_at *at, float value);
bool kji_encode_scalar_double(kji_encoder *encoder, const kji_event_at *at, double value);
bool kji_encode_text(kji_encoder *encoder, const kji_event_at *at, const char *text, size_t size);

/* What the page "HParams" reads. The experiment (types of the parameters, and which metrics stand
 * beside them) holds for all runs of a log folder; a session is one run. */
bool kji_encode_experiment(kji_encoder *encoder, double wall_time, const kj_hparams *hparams);
bool kji_encode_session_start(kji_encoder *encoder, double wall_time, const kj_hparams *hparams,
                              const char *group);
bool kji_encode_session_end(kji_encoder *encoder, double wall_time, enum kj_hparams_status status,
                            double end_time);

/* For the files that encode: an empty record with room for `size` bytes, and its completion with
 * the fields that every event has. */
bool kji_encoder_begin(kji_encoder *encoder, size_t size);
void kji_encoder_finish(kji_encoder *encoder, double wall_time, int64_t step);
/* The same for a summary of one value, from what was put behind its tag. */
void kji_encoder_finish_value(kji_encoder *encoder, const kji_event_at *at);
/* SummaryMetadata with the name and the content of a plugin. */
void kji_put_metadata(kji_encoder *encoder, const char *plugin, const unsigned char *content_end);

#endif
