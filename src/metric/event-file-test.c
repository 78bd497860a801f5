/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file that grows, is damaged and heals, byte by byte. The files are made here: a version,
 * simple values, tensors with metadata, several values in one event, a session START, a histogram
 * and hparams without a value. Reading goes through this program, so that it can fail.
 */
#include "crc32c.h"
#include "event-make.h"
#include "event-wire.h"
#include "file-reading.h"
#include "wire-keys.h"

#include "kji-test.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_RECORDS = 20 };

static int reads_left = INT32_MAX; /* then the disk fails */

ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
    if (reads_left <= 0) {
        errno = EIO;
        return -1;
    }
    reads_left--;
    return syscall(SYS_pread64, fd, bytes, size, offset);
}

static const unsigned char scalar_metadata[] = {0x0a, 0x09, 0x0a, 0x07, 's',  'c', 'a',
                                                'l',  'a',  'r',  's',  0x20, 0x01};

/* As tf.summary.scalar of TensorFlow 2 writes it. */
static void make_tensor(kji_strbuf *to, int64_t step, const char *tag, float number)
{
    unsigned char tensor[10] = {0x08, 1, 0x12, 0, 0x22, 4};
    kji_strbuf value = KJI_STRBUF_INIT, summary = KJI_STRBUF_INIT;
    memcpy(tensor + 6, &number, 4);
    kji_make_tag(&value, tag);
    kji_make_field(&value, KJI_VALUE_TENSOR, tensor, sizeof tensor);
    kji_make_field(&value, KJI_VALUE_METADATA, scalar_metadata, sizeof scalar_metadata);
    kji_make_value(&summary, &value);
    kji_make_summary(to, step, 1.5, &summary);
    kji_strbuf_done(&value);
    kji_strbuf_done(&summary);
}

static void make_base(kji_strbuf *to)
{
    static const char *const tags[] = {"a", "b", "c"};
    static const float values[] = {1, 2, 3};
    kji_make_blob(to, "h", KJI_VALUE_HISTOGRAM, 20, NULL);
    kji_make_blob(to, "p", 0, 0, "hparams");
    kji_make_scalars(to, 1, 2.5, tags, values, 3);
    for (int k = 0; k < (N_RECORDS - 4) / 2; k++) {
        kji_make_scalar(to, k, 1e9 + k, k % 2 ? "train/loss" : "lr", 1.0F / (float)(k + 1));
        make_tensor(to, k - 4, "epoch_loss", (float)k);
        if (k == 0)
            kji_make_start(to, 0);
    }
}

static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    kji_reading whole, grown;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    make_base(&bytes);
    kji_reading_begin(&whole);
    kji_reading_begin(&grown);
    for (size_t size = 0; size <= bytes.size; size++) {
        kji_reading_write(&grown, bytes.text, size);
        kji_reading_look(&grown);
        kji_reading_restart(&whole);
        kji_reading_write(&whole, bytes.text, size);
        kji_reading_look(&whole);
        kji_reading_assert_same(&grown, &whole);
        assert_int_equal(grown.file->mark.committed, whole.file->mark.committed);
        assert_int_equal(grown.file->state,
                         grown.file->mark.committed == size ? KJ_DAMAGE_NONE : KJ_DAMAGE_PARTIAL);
    }
    assert_int_equal(grown.file->mark.records, N_RECORDS);
    assert_int_equal(grown.n_points, 20); /* one is a restart */
    assert_memory_equal(grown.stats.kinds, whole.stats.kinds, sizeof grown.stats.kinds);
    assert_int_equal(grown.stats.kinds[KJ_EVENT_SCALAR], 19);
    assert_int_equal(grown.stats.kinds[KJ_EVENT_SESSION], 1);
    assert_int_equal(grown.stats.kinds[KJ_EVENT_HISTOGRAM], 1);
    assert_int_equal(grown.stats.kinds[KJ_EVENT_HPARAMS], 1);
    kji_reading_end(&whole);
    kji_reading_end(&grown);
    kji_strbuf_done(&bytes);
}

static void test_split_at_every_offset(void **state)
{
    (void)state;
    kji_reading whole, split;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    make_base(&bytes);
    kji_reading_begin(&whole);
    kji_reading_write(&whole, bytes.text, bytes.size);
    kji_reading_look(&whole);
    kji_reading_begin(&split);
    for (size_t size = 0; size <= bytes.size; size++) {
        kji_reading_restart(&split);
        kji_reading_write(&split, bytes.text, size);
        kji_reading_look(&split);
        kji_reading_write(&split, bytes.text, bytes.size);
        kji_reading_look(&split);
        kji_reading_assert_same(&split, &whole);
        assert_int_equal(split.stats.skipped_records, 0);
    }
    kji_reading_end(&whole);
    kji_reading_end(&split);
    kji_strbuf_done(&bytes);
}

static bool is_same_point(const kji_read_point *a, const kji_read_point *b)
{
    return a->value_bits == b->value_bits && a->tag_hash == b->tag_hash && a->step == b->step &&
           a->flags == b->flags && memcmp(&a->wall_time, &b->wall_time, sizeof a->wall_time) == 0;
}

/* How many records of the undamaged file are missing. Nothing else is missing, and nothing is there
 * that should not be. */
static size_t count_lost(const kji_reading *got, const kji_reading *expected)
{
    size_t at = 0, lost = 0;
    uint64_t last = UINT64_MAX;
    for (size_t k = 0; k < expected->n_points; k++) {
        const kji_read_point *point = &expected->points[k];
        if (at < got->n_points && point->record != last && is_same_point(&got->points[at], point)) {
            at++;
        } else if (point->record != last) {
            lost++;
            last = point->record;
        }
    }
    assert_int_equal(at, got->n_points);
    return lost;
}

static void check_every_flip(bool check_all)
{
    kji_reading whole, flipped;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    make_base(&bytes);
    kji_reading_begin(&whole);
    kji_reading_write(&whole, bytes.text, bytes.size);
    kji_reading_look(&whole);
    kji_reading_begin(&flipped);
    flipped.reader.finished = true;
    flipped.reader.check_all = check_all;
    for (size_t bit = 0; bit < bytes.size * 8; bit++) {
        bytes.text[bit / 8] ^= (char)(1 << bit % 8);
        kji_reading_restart(&flipped);
        kji_reading_write(&flipped, bytes.text, bytes.size);
        kji_reading_look(&flipped);
        assert_true(count_lost(&flipped, &whole) <= 1);
        assert_int_equal(flipped.stats.skipped_records, 1);
        assert_int_equal(flipped.file->n_ranges, 1);
        assert_true(flipped.file->ranges[0].begin <= bit / 8);
        assert_true(flipped.file->ranges[0].end > bit / 8);
        bytes.text[bit / 8] ^= (char)(1 << bit % 8);
    }
    kji_reading_end(&whole);
    kji_reading_end(&flipped);
    kji_strbuf_done(&bytes);
}

static void test_every_flip_of_a_bit(void **state)
{
    (void)state;
    check_every_flip(false);
    check_every_flip(true);
}

static void test_hole_that_is_filled_later(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 12, 40, 300};
    kji_reading whole, healed;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    make_base(&bytes);
    kji_reading_begin(&whole);
    kji_reading_write(&whole, bytes.text, bytes.size);
    kji_reading_look(&whole);
    kji_reading_begin(&healed);
    char *holed = malloc(bytes.size);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (size_t at = 0; at + sizes[k] <= bytes.size; at++) {
            memcpy(holed, bytes.text, bytes.size);
            memset(holed + at, 0, sizes[k]);
            kji_reading_restart(&healed);
            kji_reading_write(&healed, holed, bytes.size);
            kji_reading_look(&healed);
            assert_true(healed.file->mark.committed <= at + sizes[k] ||
                        memcmp(holed, bytes.text, bytes.size) == 0);
            kji_reading_write(&healed, bytes.text, bytes.size);
            kji_reading_look(&healed);
            kji_reading_assert_same(&healed, &whole);
            assert_int_equal(healed.stats.skipped_records, 0);
            assert_int_equal(healed.file->state, KJ_DAMAGE_NONE);
        }
    }
    free(holed);
    kji_reading_end(&whole);
    kji_reading_end(&healed);
    kji_strbuf_done(&bytes);
}

static void test_a_claim_is_not_believed(void **state)
{
    (void)state;
    static const uint64_t claims[] = {1 << 15, 1 << 20, 200 << 20, KJI_FRAME_LIMIT};
    kji_reading reading;
    unsigned char head[KJI_FRAME_HEAD];
    kji_reading_begin(&reading);
    size_t capacity = reading.reader.window.capacity;
    for (size_t k = 0; k < sizeof claims / sizeof *claims; k++) {
        kji_make_head(head, claims[k]);
        kji_reading_restart(&reading);
        kji_reading_write(&reading, head, sizeof head);
        kji_reading_look(&reading);
        assert_int_equal(reading.file->state, KJ_DAMAGE_PARTIAL);
        assert_int_equal(reading.reader.window.capacity, capacity);
    }
    kji_make_head(head, KJI_FRAME_LIMIT + 1);
    kji_reading_restart(&reading);
    kji_reading_write(&reading, head, sizeof head);
    kji_reading_look(&reading);
    assert_int_equal(reading.file->state, KJ_DAMAGE_HEADER);
    kji_reading_end(&reading);
}

static long resident_kb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The bytes are there, but do not match their checksum: they are not kept in memory. */
static void test_no_memory_for_a_wrong_checksum(void **state)
{
    (void)state;
    enum { SIZE = 128 << 20 };
    kji_reading reading;
    unsigned char head[KJI_FRAME_HEAD];
    kji_reading_begin(&reading);
    kji_make_head(head, SIZE);
    kji_reading_write(&reading, head, sizeof head);
    assert_int_equal(ftruncate(reading.fd, SIZE + KJI_FRAME_EXTRA), 0);
    long before = resident_kb();
    kji_reading_look(&reading);
    assert_int_equal(reading.file->state, KJ_DAMAGE_PAYLOAD);
    assert_true(resident_kb() - before < SIZE / 1024 / 2);
    kji_reading_end(&reading);
}

static void test_generations(void **state)
{
    (void)state;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    kji_reading_begin(&reading);
    reading.reader.finished = true;
    for (uint32_t k = 0; k < 3; k++) {
        kji_strbuf_clear(&bytes);
        kji_strbuf_puts(&bytes, "this is no record");
        kji_make_scalar(&bytes, k, 1.5 + k, "a", (float)k);
        kji_reading_write(&reading, bytes.text, bytes.size);
        kji_reading_look(&reading);
        assert_int_equal(reading.n_points, k + 1);
        assert_int_equal(reading.points[k].generation, k);
        assert_int_equal(reading.points[k].record, 0);
        assert_int_equal(reading.file->mark.records, 1);
        assert_int_equal(reading.file->mark.points, 1);
        assert_int_equal(reading.file->mark.skipped_bytes, 17);
        assert_int_equal(reading.file->n_ranges, 1);
        assert_int_equal(reading.reader.n_ranges, 1);
    }
    assert_int_equal(reading.stats.skipped_records, 3);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

/* So many ranges are kept, all are counted. */
/* What was nothing but damage, and skipped to its end, is replaced by a good file. */
static void test_damage_replaced(void **state)
{
    (void)state;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    kji_reading_begin(&reading);
    reading.reader.finished = true;
    kji_reading_write(&reading, "this is no record", 17);
    kji_reading_look(&reading);
    assert_int_equal(reading.file->mark.committed, 17);
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(dup2(fd, reading.fd), reading.fd);
    close(fd);
    kji_make_scalar(&bytes, 0, 1.5, "a", 0);
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, 1);
    assert_int_equal(reading.file->n_ranges, 0);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

/* An error of the disk or the network says nothing about what the file is. */
static void test_read_errors(void **state)
{
    (void)state;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    kji_reading_begin(&reading);
    kji_make_scalar(&bytes, 0, 1.5, "a", 0);
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    for (uint32_t k = 1; k < 10; k++) {
        if (k % 3 == 0)
            kji_strbuf_puts(&bytes, "this is no record");
        kji_make_scalar(&bytes, k, 1.5 + k, "a", (float)k);
        kji_reading_write(&reading, bytes.text, bytes.size);
        reading.reader.now_ms += 5000;
        for (int reads = 0; reads < 8; reads++) { /* until the first one that fails */
            reads_left = reads;
            kji_reading_look(&reading);
            reading.reader.now_ms += 5000;
        }
        reads_left = INT32_MAX;
        kji_reading_look(&reading);
        reading.reader.now_ms += 5000;
        kji_reading_look(&reading);
        assert_int_equal(reading.n_points, k + 1);
        assert_int_equal(reading.points[k].generation, 0);
    }
    assert_int_equal(reading.file->n_ranges, 3);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

/* More damage than one look goes through is gone through in the next ones, which come at once. */
static void test_very_much_damage(void **state)
{
    (void)state;
    enum { SIZE = 100 << 20 };
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    char *noise = malloc(SIZE);
    memset(noise, 0x55, SIZE);
    kji_strbuf_add(&bytes, noise, SIZE);
    free(noise);
    kji_make_scalar(&bytes, 1, 1.5, "behind", 1);
    kji_reading_begin(&reading);
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_strbuf_done(&bytes);
    int n_looks = 0;
    for (; reading.n_points == 0; n_looks++) {
        kji_reading_look(&reading);
        int64_t due = kji_event_file_deadline(reading.file, &reading.reader);
        assert_true(due == (reading.n_points ? INT64_MAX
                            : n_looks        ? reading.reader.now_ms + 1
                                             : reading.reader.grace_ms));
        reading.reader.now_ms = due;
    }
    assert_true(n_looks > 2);
    assert_int_equal(reading.file->n_ranges, 1);
    assert_int_equal(reading.file->ranges[0].end, SIZE);
    kji_reading_end(&reading);
}

static void test_much_damage(void **state)
{
    (void)state;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    for (int k = 0; k < 1500; k++) {
        kji_strbuf_puts(&bytes, "damage");
        kji_make_scalar(&bytes, k, 1.5, "a", 1);
    }
    kji_reading_begin(&reading);
    reading.reader.finished = true;
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, 1500);
    assert_int_equal(reading.file->n_ranges, 1000);
    assert_int_equal(reading.file->ranges[999].record, 999);
    assert_int_equal(reading.file->mark.skipped_records, 1500);
    assert_int_equal(reading.stats.skipped_bytes, 6 * 1500);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

/* Each head has the right checksum and claims nearly all that follows; without a limit this would
 * be minutes of checksums. */
static void test_heads_that_claim_all_that_follows(void **state)
{
    (void)state;
    enum { N = 400000 };
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    for (size_t k = 0; k < N; k++) {
        unsigned char head[KJI_FRAME_HEAD];
        kji_make_head(head, (N - k) * KJI_FRAME_HEAD - 20);
        kji_strbuf_add(&bytes, (const char *)head, k + 2 < N ? sizeof head : 0);
    }
    size_t damaged = bytes.size;
    kji_make_scalar(&bytes, 1, 1.5, "behind", 1);
    kji_reading_begin(&reading);
    reading.reader.finished = true;
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, 1);
    assert_int_equal(reading.file->n_ranges, 1);
    assert_int_equal(reading.file->ranges[0].end, damaged);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

static void test_points_say_their_type(void **state)
{
    (void)state;
    static const struct {
        unsigned char dtype, size;
        unsigned char content[8];
        double value;
    } cases[] = {{1, 4, {0, 0, 0xc0, 0x3f}, 1.5},
                 {2, 8, {[6] = 0xf8, [7] = 0x3f}, 1.5},
                 {9, 8, {1, 2}, 513},
                 {10, 1, {1}, 1},
                 {14, 2, {0xc0, 0x3f}, 1.5},
                 {19, 2, {0, 0x3e}, 1.5}};
    enum { N = sizeof cases / sizeof *cases };
    kji_strbuf bytes = KJI_STRBUF_INIT, tensor = KJI_STRBUF_INIT, value = KJI_STRBUF_INIT,
               summary = KJI_STRBUF_INIT;
    kji_reading reading;
    for (size_t k = 0; k < N; k++) {
        kji_strbuf_clear(&tensor);
        kji_strbuf_add(&tensor, (const char[]){KJI_TENSOR_DTYPE, (char)cases[k].dtype}, 2);
        kji_make_field(&tensor, KJI_TENSOR_CONTENT, cases[k].content, cases[k].size);
        kji_make_tag(&value, "t");
        kji_make_field(&value, KJI_VALUE_TENSOR, tensor.text, tensor.size);
        kji_make_value(&summary, &value);
        kji_make_summary(&bytes, 1, 1.5, &summary);
    }
    kji_reading_begin(&reading);
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, N);
    for (size_t k = 0; k < N; k++) {
        assert_int_equal(reading.points[k].dtype, cases[k].dtype);
        assert_memory_equal(&reading.points[k].value_bits, &cases[k].value, 8);
    }
    kj_tag_info info = kji_tag_table_info(&reading.tags, reading.tags.series[0]);
    assert_int_equal(info.dtype, 19);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
    kji_strbuf_done(&tensor);
    kji_strbuf_done(&value);
    kji_strbuf_done(&summary);
}

static void put_described(kji_strbuf *to, int64_t step, const char *plugin, const char *name,
                          size_t description_size)
{
    kji_strbuf data = KJI_STRBUF_INIT, metadata = KJI_STRBUF_INIT, value = KJI_STRBUF_INIT,
               summary = KJI_STRBUF_INIT;
    char *text = malloc(description_size + 1);
    for (size_t k = 0; k < description_size; k++)
        text[k] = "\xe2\x82\xac"[k % 3];
    kji_make_field(&data, KJI_PLUGIN_NAME, plugin, strlen(plugin));
    kji_make_field(&metadata, KJI_METADATA_PLUGIN_DATA, data.text, data.size);
    kji_make_field(&metadata, KJI_METADATA_DISPLAY_NAME, name, strlen(name));
    kji_make_field(&metadata, KJI_METADATA_DESCRIPTION, text, description_size);
    kji_make_tag(&value, "loss");
    kji_strbuf_add(&value, (const char[]){KJI_VALUE_SIMPLE, 0, 0, 0, 0}, 5);
    kji_make_field(&value, KJI_VALUE_METADATA, metadata.text, metadata.size);
    kji_make_value(&summary, &value);
    kji_make_summary(to, step, 1.5, &summary);
    free(text);
    kji_strbuf_done(&data);
    kji_strbuf_done(&metadata);
    kji_strbuf_done(&value);
    kji_strbuf_done(&summary);
}

static void test_the_first_metadata_count(void **state)
{
    (void)state;
    kji_strbuf bytes = KJI_STRBUF_INIT;
    kji_reading reading;
    kji_make_scalar(&bytes, 1, 1.5, "loss", 1);
    put_described(&bytes, 2, "scalars", "Loss", 30000);
    put_described(&bytes, 3, "other", "Another", 3);
    kji_reading_begin(&reading);
    kji_reading_write(&reading, bytes.text, bytes.size);
    kji_reading_look(&reading);
    assert_int_equal(reading.n_points, 3);
    kj_tag_info info = kji_tag_table_info(&reading.tags, reading.tags.series[0]);
    assert_string_equal(info.plugin, "scalars");
    assert_string_equal(info.display_name, "Loss");
    assert_int_equal(strlen(info.description), 16383); /* whole characters of three bytes */
    assert_int_equal(info.dtype, 1);
    kji_reading_end(&reading);
    kji_strbuf_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_byte_at_a_time),
        cmocka_unit_test(test_split_at_every_offset),
        cmocka_unit_test(test_every_flip_of_a_bit),
        cmocka_unit_test(test_hole_that_is_filled_later),
        cmocka_unit_test(test_a_claim_is_not_believed),
        cmocka_unit_test(test_no_memory_for_a_wrong_checksum),
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_much_damage),
        cmocka_unit_test(test_very_much_damage),
        cmocka_unit_test(test_damage_replaced),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_heads_that_claim_all_that_follows),
        cmocka_unit_test(test_points_say_their_type),
        cmocka_unit_test(test_the_first_metadata_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
