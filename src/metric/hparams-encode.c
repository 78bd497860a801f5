/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorBoard keeps hyperparameters in the metadata of three summaries of each run, with an empty
 * tensor as their value (tensorboard/plugins/hparams: plugin_data.proto, api.proto).
 *
 * HParamsPluginData: experiment 2, session_start_info 3, session_end_info 4. Experiment:
 * time_created_secs 3, hparam_infos 4 (name 1, type 4), metric_infos 5 (name 1: tag 2).
 * SessionStartInfo: hparams 1, a map (key 1, value 2: number 2, string 3, bool 4), group_name 4,
 * start_time_secs 5. SessionEndInfo: status 1, end_time_secs 2.
 */
#include "event-encode.h"

enum { DT_FLOAT = 1, DATA_STRING = 1, DATA_BOOL = 2, DATA_FLOAT64 = 3 };

enum { PER_ITEM = 6 * KJI_FIELD_ROOM };

static size_t text_room(const char *text)
{
    return text ? strlen(text) : 0;
}

static size_t room_for(const kj_hparams *hparams, const char *group)
{
    size_t room = 1024 + text_room(group);
    for (uint64_t k = 0; k < hparams->n_params; k++) {
        const kj_hparam *param = &hparams->params[k];
        room += PER_ITEM + text_room(param->name);
        room += param->value.type == KJ_TYPE_STRING ? text_room(param->value.s) : 0;
    }
    for (uint64_t k = 0; k < hparams->n_metrics; k++)
        room += PER_ITEM + text_room(hparams->metrics[k]);
    return room;
}

/* The event around the message `field` of HParamsPluginData, which was put since `end`. */
static void finish(kji_encoder *encoder, uint32_t field, const unsigned char *end, double wall_time,
                   const char *tag)
{
    kji_event_at at = {.tag = tag, .tag_size = strlen(tag), .wall_time = wall_time};
    kji_put_message(encoder, field, end);
    kji_put_metadata(encoder, "hparams", end);
    end = encoder->at;
    kji_put_message(encoder, 2, encoder->at); /* a size of 0, left out */
    kji_put_message(encoder, 2, end);
    kji_put_number(encoder, 1, DT_FLOAT);
    kji_put_message(encoder, 8, end);
    kji_encoder_finish_value(encoder, &at);
}

static uint64_t data_type(int32_t type)
{
    if (type == KJ_TYPE_BOOL)
        return DATA_BOOL;
    return type == KJ_TYPE_STRING ? DATA_STRING : DATA_FLOAT64;
}

bool kji_encode_experiment(kji_encoder *encoder, double wall_time, const kj_hparams *hparams)
{
    if (!kji_encoder_begin(encoder, room_for(hparams, NULL)))
        return false;
    const unsigned char *begin = encoder->at;
    for (uint64_t k = hparams->n_metrics; k-- > 0;) {
        const unsigned char *end = encoder->at;
        kji_put_text(encoder, 2, hparams->metrics[k], strlen(hparams->metrics[k]));
        kji_put_message(encoder, 1, end);
        kji_put_message(encoder, 5, end);
    }
    for (uint64_t k = hparams->n_params; k-- > 0;) {
        const kj_hparam *param = &hparams->params[k];
        const unsigned char *end = encoder->at;
        kji_put_number(encoder, 4, data_type(param->value.type));
        kji_put_text(encoder, 1, param->name, strlen(param->name));
        kji_put_message(encoder, 4, end);
    }
    kji_put_double(encoder, 3, wall_time);
    finish(encoder, 2, begin, wall_time, "_hparams_/experiment");
    return true;
}

static void put_value(kji_encoder *encoder, const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_BOOL:
        kji_put_number(encoder, 4, value->i != 0);
        break;
    case KJ_TYPE_INT:
        kji_put_double(encoder, 2, (double)value->i);
        break;
    case KJ_TYPE_FLOAT:
        kji_put_double(encoder, 2, value->f);
        break;
    default:
        kji_put_text(encoder, 3, value->s, strlen(value->s));
    }
}

bool kji_encode_session_start(kji_encoder *encoder, double wall_time, const kj_hparams *hparams,
                              const char *group)
{
    if (!kji_encoder_begin(encoder, room_for(hparams, group)))
        return false;
    const unsigned char *begin = encoder->at;
    kji_put_double(encoder, 5, hparams->start_time != 0 ? hparams->start_time : wall_time);
    if (*group)
        kji_put_text(encoder, 4, group, strlen(group));
    for (uint64_t k = hparams->n_params; k-- > 0;) {
        const kj_hparam *param = &hparams->params[k];
        const unsigned char *end = encoder->at;
        put_value(encoder, &param->value);
        kji_put_message(encoder, 2, end);
        kji_put_text(encoder, 1, param->name, strlen(param->name));
        kji_put_message(encoder, 1, end);
    }
    finish(encoder, 3, begin, wall_time, "_hparams_/session_start_info");
    return true;
}

bool kji_encode_session_end(kji_encoder *encoder, double wall_time, enum kj_hparams_status status,
                            double end_time)
{
    if (!kji_encoder_begin(encoder, 256))
        return false;
    const unsigned char *begin = encoder->at;
    kji_put_double(encoder, 2, end_time != 0 ? end_time : wall_time);
    kji_put_number(encoder, 1, (uint64_t)status);
    finish(encoder, 4, begin, wall_time, "_hparams_/session_end_info");
    return true;
}
