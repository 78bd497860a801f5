/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event files to time readers with, of the layouts that real writers leave:
 *
 *     events-make scalars N DIR   one file, N scalars as simple_value, 10 tags (PyTorch's
 * add_scalar) events-make tensors N DIR   the same as tensors with metadata (tf.summary of
 * TensorFlow 2) events-make images N DIR    one file, N images of 250 kB and 100 scalars after each
 *     events-make runs N DIR      N runs, each a folder with one file of 500 scalars
 */
#include "crc32c.h"
#include "event-frame.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { N_TAGS = 10, IMAGE_SIZE = 250000, SCALARS_PER_IMAGE = 100, SCALARS_PER_RUN = 500 };

static const char *const tags[N_TAGS] = {
    "train/loss", "train/accuracy", "lr",         "grad_norm",      "epoch",
    "valid/loss", "valid/accuracy", "throughput", "layer_1/w_mean", "layer_1/w_std"};

/* What make_dataclass of tf.summary.scalar writes: plugin "scalars", data class scalar. */
static const unsigned char metadata[] = {0x4a, 0x0d, 0x0a, 0x09, 0x0a, 0x07, 's', 'c',
                                         'a',  'l',  'a',  'r',  's',  0x20, 0x01};

static unsigned char *put_varint(unsigned char *to, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        *to++ = (unsigned char)(value | 0x80);
    *to++ = (unsigned char)value;
    return to;
}

static unsigned char *put_bytes(unsigned char *to, unsigned char key, const void *bytes,
                                size_t size)
{
    *to++ = key;
    return mempcpy(put_varint(to, size), bytes, size);
}

static void put_record(FILE *file, const void *payload, size_t size)
{
    unsigned char head[KJI_FRAME_HEAD], tail[4];
    kji_frame_seal(payload, size, head, tail);
    fwrite(head, sizeof head, 1, file);
    fwrite(payload, size, 1, file);
    fwrite(tail, sizeof tail, 1, file);
}

/* An event of `value`, which is one serialized Summary.Value. */
static void put_event(FILE *file, uint64_t step, const void *value, size_t size)
{
    static unsigned char event[IMAGE_SIZE + 200], summary[IMAGE_SIZE + 100];
    double wall_time = 1.7e9 + 1e-3 * (double)step;
    size_t summary_size = (size_t)(put_bytes(summary, 0x0a, value, size) - summary);
    unsigned char *to = event;
    *to++ = 0x09;
    to = mempcpy(to, &wall_time, sizeof wall_time);
    *to++ = 0x10;
    to = put_varint(to, step);
    to = put_bytes(to, 0x2a, summary, summary_size);
    put_record(file, event, (size_t)(to - event));
}

static void put_scalar(FILE *file, bool as_tensor, uint64_t k)
{
    unsigned char value[100], tensor[10] = {0x08, 0x01, 0x12, 0x00, 0x22, 0x04};
    const char *tag = tags[k % N_TAGS];
    float number = 1.0f / (float)(k + 1);
    unsigned char *to = put_bytes(value, 0x0a, tag, strlen(tag));
    if (as_tensor) {
        memcpy(tensor + 6, &number, sizeof number);
        to = put_bytes(to, 0x42, tensor, sizeof tensor);
        to = mempcpy(to, metadata, sizeof metadata);
    } else {
        *to++ = 0x15;
        to = mempcpy(to, &number, sizeof number);
    }
    put_event(file, k / N_TAGS, value, (size_t)(to - value));
}

static void put_image(FILE *file, uint64_t k)
{
    static unsigned char pixels[IMAGE_SIZE], image[IMAGE_SIZE + 50], value[IMAGE_SIZE + 80];
    for (size_t j = 0; j < sizeof pixels; j++)
        pixels[j] = (unsigned char)(j * 31 + k);
    unsigned char *to = image;
    *to++ = 0x08;
    to = put_varint(to, 288);
    *to++ = 0x10;
    to = put_varint(to, 288);
    to = put_bytes(to, 0x22, pixels, sizeof pixels);
    size_t size = (size_t)(to - image);
    to = put_bytes(value, 0x0a, "sample", 6);
    to = put_bytes(to, 0x22, image, size);
    put_event(file, k, value, (size_t)(to - value));
}

static FILE *open_file(const char *folder)
{
    static const unsigned char version[] = "\x09\0\0\0\0\0\0\0\0\x1a\x0d"
                                           "brain.Event:2";
    char path[1000];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/events.out.tfevents.1700000000.bench.1.0", folder);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    put_record(file, version, sizeof version - 1);
    return file;
}

static void make_one(const char *kind, uint64_t n, const char *folder)
{
    FILE *file = open_file(folder);
    bool images = strcmp(kind, "images") == 0;
    for (uint64_t k = 0; k < n; k++) {
        if (images)
            put_image(file, k);
        for (uint64_t j = 0; images && j < SCALARS_PER_IMAGE; j++)
            put_scalar(file, false, k * SCALARS_PER_IMAGE + j);
        if (!images)
            put_scalar(file, strcmp(kind, "tensors") == 0, k);
    }
    fclose(file);
}

static void make_runs(uint64_t n, const char *folder)
{
    mkdir(folder, 0777);
    for (uint64_t run = 0; run < n; run++) {
        char path[900];
        snprintf(path, sizeof path, "%s/run-%06d", folder, (int)run);
        make_one("scalars", SCALARS_PER_RUN, path);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: events-make scalars|tensors|images|runs N DIR\n");
        return 2;
    }
    uint64_t n = strtoull(argv[2], NULL, 10);
    if (strcmp(argv[1], "runs") == 0)
        make_runs(n, argv[3]);
    else
        make_one(argv[1], n, argv[3]);
    return 0;
}
