/* SPDX-License-Identifier: Apache-2.0 */
#include "event-make.h"

#include "crc32c.h"
#include "event-frame.h"
#include "files.h"
#include "mem.h"
#include "wire-keys.h"

#include "kji-test.h"

#include <endian.h>
#include <fcntl.h>
#include <string.h>

enum { WALL_TIME = 0x09, STEP = 0x10, SUMMARY = 0x2a, SESSION_LOG = 0x3a };
enum { VALUE = 0x0a, TAG = 0x0a, SIMPLE_VALUE = 0x15, STATUS = 0x08, STATUS_START = 1 };

static void put_varint(kji_strbuf *to, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        kji_strbuf_putc(to, (char)(number | 0x80));
    kji_strbuf_putc(to, (char)number);
}

static void put_step(kji_strbuf *to, int64_t step, double wall_time)
{
    kji_strbuf_putc(to, WALL_TIME);
    kji_strbuf_add(to, (const char *)&wall_time, sizeof wall_time);
    kji_strbuf_putc(to, STEP);
    put_varint(to, (uint64_t)step);
}

/* `payload` is released. */
static void seal(kji_strbuf *to, kji_strbuf *payload)
{
    unsigned char head[KJI_FRAME_HEAD], tail[KJI_FRAME_EXTRA - KJI_FRAME_HEAD];
    kji_frame_seal((const unsigned char *)payload->text, payload->size, head, tail);
    kji_strbuf_add(to, (const char *)head, sizeof head);
    kji_strbuf_add(to, payload->text, payload->size);
    kji_strbuf_add(to, (const char *)tail, sizeof tail);
    kji_strbuf_done(payload);
    assert_false(to->failed);
}

void kji_make_field(kji_strbuf *to, unsigned char key, const void *bytes, size_t size)
{
    kji_strbuf_putc(to, (char)key);
    put_varint(to, size);
    kji_strbuf_add(to, bytes, size);
}

void kji_make_summary(kji_strbuf *to, int64_t step, double wall_time, kji_strbuf *summary)
{
    kji_strbuf payload = KJI_STRBUF_INIT;
    put_step(&payload, step, wall_time);
    kji_make_field(&payload, SUMMARY, summary->text, summary->size);
    kji_strbuf_clear(summary);
    seal(to, &payload);
}

void kji_make_tag(kji_strbuf *value, const char *tag)
{
    kji_make_field(value, KJI_VALUE_TAG, tag, strlen(tag));
}

void kji_make_value(kji_strbuf *summary, kji_strbuf *value)
{
    kji_make_field(summary, KJI_SUMMARY_VALUE, value->text, value->size);
    kji_strbuf_clear(value);
}

void kji_make_plugin(kji_strbuf *value, const char *plugin)
{
    kji_strbuf data = KJI_STRBUF_INIT, metadata = KJI_STRBUF_INIT;
    kji_make_field(&data, KJI_PLUGIN_NAME, plugin, strlen(plugin));
    kji_make_field(&metadata, KJI_METADATA_PLUGIN_DATA, data.text, data.size);
    kji_make_field(value, KJI_VALUE_METADATA, metadata.text, metadata.size);
    kji_strbuf_done(&data);
    kji_strbuf_done(&metadata);
}

void kji_make_blob(kji_strbuf *to, const char *tag, unsigned char key, size_t size,
                   const char *plugin)
{
    kji_strbuf value = KJI_STRBUF_INIT, summary = KJI_STRBUF_INIT;
    char *bytes = calloc(1, size + 1);
    memset(bytes, 0xee, size);
    kji_make_tag(&value, tag);
    if (key)
        kji_make_field(&value, key, bytes, size);
    if (plugin)
        kji_make_plugin(&value, plugin);
    kji_make_value(&summary, &value);
    kji_make_summary(to, 3, 1.5, &summary);
    free(bytes);
    kji_strbuf_done(&value);
    kji_strbuf_done(&summary);
}

void kji_make_scalars(kji_strbuf *to, int64_t step, double wall_time, const char *const *tags,
                      const float *values, size_t n)
{
    kji_strbuf summary = KJI_STRBUF_INIT;
    for (size_t k = 0; k < n; k++) {
        size_t size = strlen(tags[k]);
        kji_strbuf_putc(&summary, VALUE);
        kji_strbuf_putc(&summary, (char)(2 + size + 5));
        kji_strbuf_putc(&summary, TAG);
        kji_strbuf_putc(&summary, (char)size);
        kji_strbuf_add(&summary, tags[k], size);
        kji_strbuf_putc(&summary, SIMPLE_VALUE);
        kji_strbuf_add(&summary, (const char *)&values[k], sizeof values[k]);
    }
    kji_make_summary(to, step, wall_time, &summary);
    kji_strbuf_done(&summary);
}

void kji_make_scalar(kji_strbuf *to, int64_t step, double wall_time, const char *tag, float value)
{
    kji_make_scalars(to, step, wall_time, &tag, &value, 1);
}

void kji_make_start(kji_strbuf *to, int64_t step)
{
    kji_strbuf payload = KJI_STRBUF_INIT;
    put_step(&payload, step, 1.0);
    kji_strbuf_add(&payload, (const char[]){SESSION_LOG, 2, STATUS, STATUS_START}, 4);
    seal(to, &payload);
}

void kji_make_file(const char *path, kji_strbuf *bytes)
{
    KJI_CLEANUP(kji_freep) char *folder = strndup(path, (size_t)(strrchr(path, '/') - path));
    int dir_fd;
    assert_int_equal(kji_open_dir(folder, false, &dir_fd, NULL), 0);
    close(dir_fd);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, bytes->text, bytes->size, NULL), 0);
    close(fd);
    kji_strbuf_clear(bytes);
}

void kji_make_head(unsigned char head[KJI_FRAME_HEAD], uint64_t size)
{
    uint32_t crc;
    size = htole64(size);
    memcpy(head, &size, 8);
    crc = htole32(kji_crc32c_mask(kji_crc32c(head, 8)));
    memcpy(head + 8, &crc, 4);
}
