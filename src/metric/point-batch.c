/* SPDX-License-Identifier: Apache-2.0 */
#include "point-batch.h"

#include "mem.h"

void kji_batch_done(kji_batch *batch)
{
    kji_strbuf_done(&batch->names);
    free(batch->points);
    *batch = (kji_batch)KJI_BATCH_INIT;
}

void kji_batch_clear(kji_batch *batch)
{
    kji_strbuf_clear(&batch->names);
    batch->n = batch->next = 0;
    batch->failed = false;
}

void kji_batch_add(kji_batch *batch, const char *tag, size_t tag_size, double value)
{
    if (!kji_reserve(&batch->points, &batch->capacity, batch->n + 1, sizeof *batch->points)) {
        batch->failed = true;
        return;
    }
    batch->points[batch->n++] = (kji_batch_point){batch->names.size, tag_size, value};
    kji_strbuf_add(&batch->names, tag, tag_size);
}

int kji_batch_deliver(kji_batch *batch, kji_sink *sink)
{
    if (batch->failed || batch->names.failed)
        return KJ_EMEM;
    while (batch->next < batch->n) {
        const kji_batch_point *point = &batch->points[batch->next];
        int r = kji_sink_scalar(sink, &batch->origin, batch->names.text + point->tag,
                                point->tag_size, point->value);
        if (r < 0)
            return r;
        batch->next++;
        if (r != 0)
            return r;
    }
    return 0;
}
