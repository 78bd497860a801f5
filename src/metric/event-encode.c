/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of fields are those of TensorFlow's event.proto, summary.proto and tensor.proto:
 * Event wall_time 1, step 2, file_version 3, summary 5, session_log 7, source_metadata 10;
 * Summary.Value tag 1, simple_value 2, tensor 8, metadata 9; TensorProto dtype 1, shape 2,
 * double_val 6, string_val 8; SummaryMetadata plugin_data 1 with plugin_name 1 and content 2.
 *
 * Metadata goes with every value, not with the first of its tag only: several processes may write
 * into one file, and none knows what the others wrote.
 */
#include "event-encode.h"

#include "event-frame.h"
#include "mem.h"

#include <stdlib.h>

enum { DT_DOUBLE = 2, DT_STRING = 7, SESSION_START = 1, TAIL = KJI_FRAME_EXTRA - KJI_FRAME_HEAD };

void kji_encoder_done(kji_encoder *encoder)
{
    free(encoder->bytes);
    *encoder = (kji_encoder){0};
}

bool kji_encoder_begin(kji_encoder *encoder, size_t size)
{
    enum { EVENT_ROOM = 8 * KJI_FIELD_ROOM };
    size_t need = size + KJI_FRAME_EXTRA + EVENT_ROOM;
    if (need > encoder->capacity && !kji_reserve(&encoder->bytes, &encoder->capacity, need, 1))
        return false;
    encoder->at = encoder->bytes + encoder->capacity - TAIL;
    return true;
}

static const unsigned char *payload_end(const kji_encoder *encoder)
{
    return encoder->bytes + encoder->capacity - TAIL;
}

void kji_encoder_finish(kji_encoder *encoder, double wall_time, int64_t step)
{
    if (step != 0)
        kji_put_number(encoder, 2, (uint64_t)step);
    if (wall_time != 0)
        kji_put_double(encoder, 1, wall_time);
    unsigned char *payload = encoder->at;
    size_t size = (size_t)(payload_end(encoder) - payload);
    encoder->at -= KJI_FRAME_HEAD;
    kji_frame_seal(payload, size, encoder->at, payload + size);
}

void kji_encoder_finish_value(kji_encoder *encoder, const kji_event_at *at)
{
    kji_put_text(encoder, 1, at->tag, at->tag_size);
    kji_put_message(encoder, 1, payload_end(encoder));
    kji_put_message(encoder, 5, payload_end(encoder));
    kji_encoder_finish(encoder, at->wall_time, at->step);
}

void kji_put_metadata(kji_encoder *encoder, const char *plugin, const unsigned char *content_end)
{
    const unsigned char *end = content_end;
    if (encoder->at != content_end)
        kji_put_message(encoder, 2, content_end);
    kji_put_text(encoder, 1, plugin, strlen(plugin));
    kji_put_message(encoder, 1, end);
    kji_put_message(encoder, 9, end);
}

bool kji_encode_version(kji_encoder *encoder, double wall_time, const char *writer)
{
    static const char version[] = "brain.Event:2";
    if (!kji_encoder_begin(encoder, strlen(writer) + sizeof version))
        return false;
    const unsigned char *end = encoder->at;
    kji_put_text(encoder, 1, writer, strlen(writer));
    kji_put_message(encoder, 10, end);
    kji_put_text(encoder, 3, version, sizeof version - 1);
    kji_encoder_finish(encoder, wall_time, 0);
    return true;
}

bool kji_encode_start(kji_encoder *encoder, double wall_time, int64_t step)
{
    if (!kji_encoder_begin(encoder, 0))
        return false;
    const unsigned char *end = encoder->at;
    kji_put_number(encoder, 1, SESSION_START);
    kji_put_message(encoder, 7, end);
    kji_encoder_finish(encoder, wall_time, step);
    return true;
}

bool kji_encode_scalar(kji_encoder *encoder, const kji_event_at *at, float value)
{
    if (!kji_encoder_begin(encoder, at->tag_size))
        return false;
    kji_put_float(encoder, 2, value);
    kji_encoder_finish_value(encoder, at);
    return true;
}

/* A tensor of no dimensions, its value (one field) put since `end`. */
static void put_scalar_tensor(kji_encoder *encoder, uint64_t dtype, const unsigned char *end)
{
    kji_put_message(encoder, 2, encoder->at);
    kji_put_number(encoder, 1, dtype);
    kji_put_message(encoder, 8, end);
}

bool kji_encode_scalar_double(kji_encoder *encoder, const kji_event_at *at, double value)
{
    if (!kji_encoder_begin(encoder, at->tag_size + 64))
        return false;
    kji_put_metadata(encoder, "scalars", encoder->at);
    const unsigned char *end = encoder->at;
    kji_put_double_bytes(encoder, value);
    kji_put_message(encoder, 6, end);
    put_scalar_tensor(encoder, DT_DOUBLE, end);
    kji_encoder_finish_value(encoder, at);
    return true;
}

bool kji_encode_text(kji_encoder *encoder, const kji_event_at *at, const char *text, size_t size)
{
    if (!kji_encoder_begin(encoder, at->tag_size + size + 64))
        return false;
    kji_put_metadata(encoder, "text", encoder->at);
    const unsigned char *end = encoder->at;
    kji_put_text(encoder, 8, text, size);
    put_scalar_tensor(encoder, DT_STRING, end);
    kji_encoder_finish_value(encoder, at);
    return true;
}
