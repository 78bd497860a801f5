/* SPDX-License-Identifier: Apache-2.0 */
/* Large records, which are passed over unread when they hold no scalar: at all sizes where
 * something changes, with and without checksums of everything. */
#include "crc32c.h"
#include "event-make.h"
#include "file-reading.h"
#include "wire-keys.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A scalar, then what is given, then a scalar; how both policies see it. */
static void check_between(const kji_strbuf *record, size_t n_points, enum kj_event_kind kind,
                          uint64_t n_kind)
{
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    kji_make_scalar(&bytes, 1, 1.5, "before", 1);
    kji_strbuf_add(&bytes, record->text, record->size);
    kji_strbuf_add(&bytes, record->text, record->size);
    kji_make_scalar(&bytes, 2, 1.5, "behind", 2);
    kji_reading_begin(&reading);
    kji_reading_write(&reading, bytes.text, bytes.size);
    for (int check_all = 0; check_all < 2; check_all++) {
        kji_reading_restart(&reading);
        reading.reader.check_all = check_all;
        kji_reading_look(&reading);
        assert_int_equal(reading.file->mark.committed, bytes.size);
        assert_int_equal(reading.n_points, 2 + 2 * n_points);
        assert_int_equal(reading.points[1 + 2 * n_points].record, 3);
        assert_int_equal(reading.stats.kinds[kind], 2 * n_kind + (kind == KJ_EVENT_SCALAR ? 2 : 0));
        assert_int_equal(reading.stats.skipped_records, 0);
    }
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

static const size_t large_sizes[] = {(32 << 10) - 60, (32 << 10) - 1,   32 << 10,  (32 << 10) + 1,
                                     40000,           (256 << 10) - 80, 256 << 10, (256 << 10) + 1,
                                     300001,          2 << 20};

static void test_large_records_without_a_scalar(void **state)
{
    (void)state;
    static const struct {
        unsigned char key;
        const char *plugin;
        enum kj_event_kind kind;
    } cases[] = {{KJI_VALUE_IMAGE, NULL, KJ_EVENT_IMAGE},
                 {KJI_VALUE_AUDIO, "audio", KJ_EVENT_AUDIO},
                 {KJI_VALUE_HISTOGRAM, NULL, KJ_EVENT_HISTOGRAM}};
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
        for (size_t k = 0; k < sizeof large_sizes / sizeof *large_sizes; k++) {
            kji_strbuf record = KJI_STRBUF_INIT;
            kji_make_blob(&record, "blob", cases[j].key, large_sizes[k], cases[j].plugin);
            check_between(&record, 0, cases[j].kind, 1);
            kji_strbuf_done(&record);
        }
    }
}

/* A tensor of strings, as tf.summary.image writes it, and one that lacks all but its dtype. */
static void make_image_tensor(kji_strbuf *to, size_t size, const char *plugin)
{
    kji_strbuf tensor = KJI_STRBUF_INIT, value = KJI_STRBUF_INIT, summary = KJI_STRBUF_INIT;
    char *bytes = calloc(1, size + 1);
    kji_strbuf_add(&tensor, (const char[]){0x08, 7, 0x12, 4, 0x12, 2, 0x08, 3}, 8);
    for (int k = 0; k < 3; k++)
        kji_make_field(&tensor, 8 << 3 | KJI_WIRE_BYTES, bytes, k == 2 ? size : 3);
    kji_make_tag(&value, "picture");
    kji_make_field(&value, KJI_VALUE_TENSOR, tensor.text, tensor.size);
    if (plugin)
        kji_make_plugin(&value, plugin);
    kji_make_value(&summary, &value);
    kji_make_summary(to, 3, 1.5, &summary);
    free(bytes);
    kji_strbuf_done(&tensor);
    kji_strbuf_done(&value);
    kji_strbuf_done(&summary);
}

static void test_large_tensors_by_their_plugin(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof large_sizes / sizeof *large_sizes; k++) {
        kji_strbuf record = KJI_STRBUF_INIT;
        make_image_tensor(&record, large_sizes[k], "images");
        check_between(&record, 0, KJ_EVENT_IMAGE, 1);
        kji_strbuf_clear(&record);
        make_image_tensor(&record, large_sizes[k], "pr_curves");
        check_between(&record, 0, KJ_EVENT_OTHER, 1);
        kji_strbuf_clear(&record);
        make_image_tensor(&record, large_sizes[k], NULL);
        check_between(&record, 0, KJ_EVENT_TENSOR, 1);
        kji_strbuf_done(&record);
    }
}

/* The scalar stands behind the bytes that would be jumped over, in all ways that protobuf allows.
 */
static void test_large_records_with_a_scalar(void **state)
{
    (void)state;
    static const unsigned char simple[] = {KJI_VALUE_SIMPLE, 0, 0, 0x80, 0x3f};
    char *blob = calloc(1, 2 << 20);
    for (size_t k = 0; k < sizeof large_sizes / sizeof *large_sizes; k++) {
        kji_strbuf record = KJI_STRBUF_INIT, value = KJI_STRBUF_INIT, summary = KJI_STRBUF_INIT;
        kji_make_tag(&value, "two"); /* the last member of a oneof wins */
        kji_make_field(&value, KJI_VALUE_IMAGE, blob, large_sizes[k]);
        kji_strbuf_add(&value, (const char *)simple, sizeof simple);
        kji_make_value(&summary, &value);
        kji_make_summary(&record, 3, 1.5, &summary);
        check_between(&record, 1, KJ_EVENT_SCALAR, 1);
        kji_strbuf_clear(&record);

        kji_make_tag(&value, "image"); /* several values in one summary */
        kji_make_field(&value, KJI_VALUE_IMAGE, blob, large_sizes[k]);
        kji_make_value(&summary, &value);
        kji_make_tag(&value, "number");
        kji_strbuf_add(&value, (const char *)simple, sizeof simple);
        kji_make_value(&summary, &value);
        kji_make_summary(&record, 3, 1.5, &summary);
        check_between(&record, 1, KJ_EVENT_IMAGE, 1);
        kji_strbuf_clear(&record);

        kji_make_tag(&value, "unknown"); /* a field that nobody knows */
        kji_make_field(&value, 15 << 3 | KJI_WIRE_BYTES, blob, large_sizes[k]);
        kji_strbuf_add(&value, (const char *)simple, sizeof simple);
        kji_make_value(&summary, &value);
        kji_make_summary(&record, 3, 1.5, &summary);
        check_between(&record, 1, KJ_EVENT_SCALAR, 1);
        kji_strbuf_done(&record);
        kji_strbuf_done(&value);
        kji_strbuf_done(&summary);
    }
    free(blob);
}

static void test_payloads_of_images_are_checked_on_request(void **state)
{
    (void)state;
    for (size_t k = 2; k < sizeof large_sizes / sizeof *large_sizes; k++) {
        kji_strbuf bytes = KJI_STRBUF_INIT;
        kji_reading reading;
        kji_make_scalar(&bytes, 1, 1.5, "before", 1);
        size_t begin = bytes.size;
        kji_make_blob(&bytes, "blob", KJI_VALUE_IMAGE, large_sizes[k] + 100, NULL);
        size_t end = bytes.size;
        kji_make_scalar(&bytes, 2, 1.5, "behind", 2);
        bytes.text[(begin + end) / 2] ^= 1;
        kji_reading_begin(&reading);
        kji_reading_write(&reading, bytes.text, bytes.size);
        reading.reader.finished = true;
        kji_reading_look(&reading);
        assert_int_equal(reading.n_points, 2);
        assert_int_equal(reading.stats.skipped_records, 0);
        kji_reading_restart(&reading);
        reading.reader.check_all = true;
        kji_reading_look(&reading);
        assert_int_equal(reading.n_points, 2);
        assert_int_equal(reading.stats.kinds[KJ_EVENT_IMAGE], 0);
        assert_int_equal(reading.file->n_ranges, 1);
        assert_int_equal(reading.file->ranges[0].kind, KJ_DAMAGE_PAYLOAD);
        assert_int_equal(reading.file->ranges[0].begin, begin);
        assert_int_equal(reading.file->ranges[0].end, end);
        assert_int_equal(reading.file->ranges[0].record, 1);
        assert_int_equal(reading.points[1].record, 2);
        kji_reading_end(&reading);
        kji_strbuf_done(&bytes);
    }
}

/* Larger than anything that is loaded, and with a scalar. */
static void test_a_summary_that_is_too_large(void **state)
{
    (void)state;
    enum { SIZE = 257 << 20, TAIL = 12 };
    static const unsigned char begin[] = {0x2a, 14,   0x0a, 12,   0x0a, 5,    't',
                                          'o',  'o',  ' ',  'b',  0x15, 0,    0,
                                          0x80, 0x3f, 0x7a, 0xe8, 0xff, 0xff, 0x7f};
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    unsigned char head[KJI_FRAME_HEAD], *payload = calloc(1, SIZE);
    assert_non_null(payload);
    memcpy(payload, begin, sizeof begin);
    size_t size = sizeof begin + 0xfffffe8;
    kji_reading_begin(&reading);
    kji_make_head(head, size);
    uint32_t crc = htole32(kji_crc32c_mask(kji_crc32c(payload, size)));
    assert_int_equal(pwrite(reading.fd, head, sizeof head, 0), sizeof head);
    assert_int_equal(pwrite(reading.fd, payload, sizeof begin, sizeof head), sizeof begin);
    free(payload);
    kji_strbuf_add(&bytes, (const char *)&crc, 4);
    kji_make_scalar(&bytes, 2, 1.5, "behind", 2);
    assert_int_equal(pwrite(reading.fd, bytes.text, bytes.size, (off_t)(sizeof head + size)),
                     bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, 1);
    assert_int_equal(reading.file->n_ranges, 1);
    assert_int_equal(reading.file->ranges[0].kind, KJ_DAMAGE_TOO_LARGE);
    assert_int_equal(reading.file->ranges[0].end, size + KJI_FRAME_EXTRA);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

/* As writers of TensorFlow 1 do: metadata with the first value of a tag only. */
static void test_metadata_of_an_earlier_value_tell_the_kind(void **state)
{
    (void)state;
    for (size_t size = 10; size <= 100010; size += 100000) {
        kji_strbuf bytes = KJI_STRBUF_INIT;
        kji_reading reading;
        make_image_tensor(&bytes, 10, "images");
        for (int k = 0; k < 3; k++)
            make_image_tensor(&bytes, size, NULL);
        kji_reading_begin(&reading);
        kji_reading_write(&reading, bytes.text, bytes.size);
        kji_reading_look(&reading);
        assert_int_equal(reading.stats.kinds[KJ_EVENT_IMAGE], 4);
        assert_int_equal(reading.tags.n_tags, 0);
        kji_reading_end(&reading);
        kji_strbuf_done(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_records_without_a_scalar),
        cmocka_unit_test(test_large_tensors_by_their_plugin),
        cmocka_unit_test(test_large_records_with_a_scalar),
        cmocka_unit_test(test_payloads_of_images_are_checked_on_request),
        cmocka_unit_test(test_a_summary_that_is_too_large),
        cmocka_unit_test(test_metadata_of_an_earlier_value_tell_the_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
