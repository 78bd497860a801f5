/* SPDX-License-Identifier: Apache-2.0 */
#include "event-wire.h"

#include "crc32c.h"
#include "kji-test.h"
#include "wire.h"

#include <math.h>
#include <string.h>

/* A message under construction. */
struct bytes {
    unsigned char data[4096];
    size_t size;
};

static void put_varint(struct bytes *to, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        to->data[to->size++] = (unsigned char)(value | 0x80);
    to->data[to->size++] = (unsigned char)value;
}

static void put_raw(struct bytes *to, const void *data, size_t size)
{
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_int(struct bytes *to, uint32_t field, uint64_t value)
{
    put_varint(to, field << 3 | KJI_WIRE_VARINT);
    put_varint(to, value);
}

static void put_bytes(struct bytes *to, uint32_t field, const void *data, size_t size)
{
    put_varint(to, field << 3 | KJI_WIRE_BYTES);
    put_varint(to, size);
    put_raw(to, data, size);
}

static void put_message(struct bytes *to, uint32_t field, const struct bytes *message)
{
    put_bytes(to, field, message->data, message->size);
}

static void put_double(struct bytes *to, uint32_t field, double value)
{
    put_varint(to, field << 3 | KJI_WIRE_FIXED64);
    put_raw(to, &value, 8);
}

static void put_float(struct bytes *to, uint32_t field, float value)
{
    put_varint(to, field << 3 | KJI_WIRE_FIXED32);
    put_raw(to, &value, 4);
}

/* An event at step 7 with one value whose tensor is given. */
static struct bytes event_with_tensor(const struct bytes *tensor)
{
    struct bytes value = {0}, summary = {0}, event = {0};
    put_bytes(&value, 1, "t", 1);
    put_message(&value, 8, tensor);
    put_message(&summary, 1, &value);
    put_double(&event, 1, 1.5);
    put_int(&event, 2, 7);
    put_message(&event, 5, &summary);
    return event;
}

/* -1 malformed, else the number of scalars; the last one in *ret. */
static int scan(const struct bytes *message, kji_event *event, kji_value *ret)
{
    kji_value_iter iter;
    int n = 0, r;
    if (!kji_event_parse(message->data, message->size, event))
        return -1;
    if (!event->has_summary)
        return 0;
    kji_value_begin(&iter, event);
    kji_value value;
    while ((r = kji_value_next(&iter, &value)) == 1) {
        if (value.kind == KJ_EVENT_SCALAR)
            *ret = value;
        n += value.kind == KJ_EVENT_SCALAR;
    }
    return r < 0 ? -1 : n;
}

static uint32_t last_dtype; /* of what tensor_value found */

static int tensor_value(const struct bytes *tensor, double *ret_value)
{
    kji_event event;
    kji_value scalar = {0};
    struct bytes message = event_with_tensor(tensor);
    int n = scan(&message, &event, &scalar);
    *ret_value = scalar.number;
    last_dtype = scalar.dtype;
    return n;
}

static const struct {
    int dtype;
    size_t size;
    uint64_t bits; /* of tensor_content */
    int field;
    uint64_t number; /* of the repeated field */
    double value;
} dtypes[] = {
    {1, 4, 0x3e99999a, 5, 0x3e99999a, 0.30000001192092896},
    {2, 8, 0x3fd3333333333333, 6, 0x3fd3333333333333, 0.3},
    {3, 4, 0x80000000, 7, (uint64_t)INT32_MIN, -2147483648.0},
    {4, 1, 0xff, 7, 255, 255},
    {5, 2, 0x8000, 7, (uint64_t)-32768, -32768},
    {6, 1, 0x80, 7, (uint64_t)-128, -128},
    {9, 8, (uint64_t)INT64_MIN, 10, (uint64_t)INT64_MIN, -9223372036854775808.0},
    {10, 1, 1, 11, 1, 1},
    {14, 2, 0x3f80, 13, 0x3f80, 1},
    {14, 2, 0x0001, 13, 0x0001, 9.183549615799121e-41},
    {14, 2, 0xff80, 13, 0xff80, -INFINITY},
    {17, 2, 0xffff, 7, 65535, 65535},
    {19, 2, 0x7bff, 13, 0x7bff, 65504},
    {19, 2, 0x8001, 13, 0x8001, -5.960464477539063e-08},
    {19, 2, 0x7c00, 13, 0x7c00, INFINITY},
    {22, 4, 0xffffffff, 16, 0xffffffff, 4294967295.0},
    {23, 8, UINT64_MAX, 17, UINT64_MAX, 18446744073709551616.0},
    {25, 1, 0x7e, 18, 0x7e, 448},
};

static void test_every_dtype_as_content(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        struct bytes tensor = {0};
        double value;
        put_int(&tensor, 1, (uint64_t)dtypes[k].dtype);
        put_bytes(&tensor, 2, "", 0);
        put_bytes(&tensor, 4, &dtypes[k].bits, dtypes[k].size);
        assert_int_equal(tensor_value(&tensor, &value), 1);
        assert_true(value == dtypes[k].value);
        assert_int_equal(last_dtype, dtypes[k].dtype);
        put_bytes(&tensor, 4, &dtypes[k].bits, dtypes[k].size + 1); /* a byte too much */
        assert_int_equal(tensor_value(&tensor, &value), 0);
    }
}

/* The values before the type, packed or not. */
static void put_values(struct bytes *to, int field, uint64_t number, size_t n, bool packed)
{
    struct bytes values = {0};
    for (size_t k = 0; k < n; k++) {
        bool fixed = field == 5 || field == 6;
        size_t width = field == 5 ? 4 : 8;
        if (field == 18)
            put_raw(&values, &number, 1);
        else if (packed && fixed)
            put_raw(&values, &number, width);
        else if (packed)
            put_varint(&values, number);
        else if (fixed) {
            put_varint(to,
                       (uint32_t)field << 3 | (field == 5 ? KJI_WIRE_FIXED32 : KJI_WIRE_FIXED64));
            put_raw(to, &number, width);
        } else {
            put_int(to, (uint32_t)field, number);
        }
    }
    if (packed || field == 18)
        put_message(to, (uint32_t)field, &values);
}

static void test_every_dtype_as_values(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        for (int packed = 0; packed < 2; packed++) {
            for (size_t n = 0; n < 3; n++) {
                struct bytes tensor = {0};
                double value;
                put_values(&tensor, dtypes[k].field, dtypes[k].number, n, packed);
                put_int(&tensor, 1, (uint64_t)dtypes[k].dtype);
                assert_int_equal(tensor_value(&tensor, &value), n == 1);
                if (n != 1)
                    continue;
                assert_true(value == dtypes[k].value);
                assert_int_equal(last_dtype, dtypes[k].dtype);
            }
        }
    }
}

/* All 256 values of each kind, by the checksum of what ml_dtypes 0.5 makes of them. */
static void test_8_bit_floats(void **state)
{
    (void)state;
    static const uint32_t expected[] = {0x3c580c71, 0x6f4b892b, 0xef3046f8, 0xa6b8be5d, 0x29ac2351};
    for (uint32_t kind = 0; kind < 5; kind++) {
        double values[256];
        for (unsigned byte = 0; byte < 256; byte++) {
            struct bytes tensor = {0};
            unsigned char content = (unsigned char)byte;
            put_int(&tensor, 1, 24 + kind);
            put_bytes(&tensor, 4, &content, 1);
            assert_int_equal(tensor_value(&tensor, &values[byte]), 1);
            if (isnan(values[byte]))
                values[byte] = (double)NAN;
        }
        assert_int_equal(kji_crc32c(values, sizeof values), expected[kind]);
    }
}

static void test_values_outside_of_their_type(void **state)
{
    (void)state;
    static const struct {
        uint64_t dtype, number;
        int field;
    } cases[] = {{14, 0x3f800000, 13}, {19, 0x3f800000, 13}, {19, (uint64_t)-1, 13},  {4, 256, 7},
                 {4, (uint64_t)-1, 7}, {6, 128, 7},          {5, (uint64_t)-32769, 7}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct bytes tensor = {0};
        double value;
        put_values(&tensor, cases[k].field, cases[k].number, 1, true);
        put_int(&tensor, 1, cases[k].dtype);
        assert_int_equal(tensor_value(&tensor, &value), 0);
    }
}

static void test_types_that_are_no_numbers(void **state)
{
    (void)state;
    static const uint64_t others[] = {0, 7, 8, 11, 18, 20, 21, 29, 99, 101, UINT64_MAX};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        struct bytes tensor = {0};
        double value;
        put_int(&tensor, 1, others[k]);
        put_bytes(&tensor, 4, "\0\0\0\0", 4);
        assert_int_equal(tensor_value(&tensor, &value), 0);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[2];
        int scalar;
    } cases[] = {{{1, 1}, 1},
                 {{1, 3}, 0},
                 {{0, 1}, 0},
                 {{(uint64_t)-1, (uint64_t)-1}, 0},
                 {{1ull << 32, 1ull << 32}, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct bytes tensor = {0}, shape = {0};
        double value;
        for (int j = 0; j < 2; j++) {
            struct bytes dim = {0};
            put_int(&dim, 1, cases[k].dims[j]);
            put_message(&shape, 2, &dim);
        }
        put_message(&tensor, 2, &shape);
        put_int(&tensor, 1, 1);
        put_values(&tensor, 5, 0, 1, false);
        assert_int_equal(tensor_value(&tensor, &value), cases[k].scalar);
    }
}

static void test_the_last_member_wins(void **state)
{
    (void)state;
    kji_event event;
    kji_value scalar;
    struct bytes value = {0}, summary = {0}, message = {0};
    put_bytes(&value, 1, "t", 1);
    put_float(&value, 2, 0.5f);
    put_message(&summary, 1, &value);
    put_message(&message, 5, &summary);
    assert_int_equal(scan(&message, &event, &scalar), 1);
    put_message(&message, 5, &summary); /* the same member again: merged */
    assert_int_equal(scan(&message, &event, &scalar), 2);
    put_bytes(&message, 4, "graph", 5);
    assert_int_equal(scan(&message, &event, &scalar), 0);
    put_message(&message, 5, &summary); /* what was before the graph is gone */
    assert_int_equal(scan(&message, &event, &scalar), 1);
    put_bytes(&value, 4, "image", 5);
    struct bytes other = {0};
    summary.size = 0;
    put_message(&summary, 1, &value);
    put_message(&other, 5, &summary);
    assert_int_equal(scan(&other, &event, &scalar), 0);
}

static void test_a_tensor_in_two_parts_is_merged(void **state)
{
    (void)state;
    struct bytes type = {0}, number = {0}, value = {0}, summary = {0}, message = {0};
    kji_event event;
    kji_value scalar;
    put_int(&type, 1, 2);
    put_values(&number, 6, 0x3fd3333333333333, 1, true);
    put_message(&value, 8, &type);
    put_message(&value, 8, &number);
    put_message(&summary, 1, &value);
    put_message(&message, 5, &summary);
    assert_int_equal(scan(&message, &event, &scalar), 1);
    assert_true(scalar.number == 0.3);
    assert_int_equal(scalar.tag_size, 0);
}

static void test_session_start(void **state)
{
    (void)state;
    kji_event event;
    kji_value scalar;
    struct bytes start = {0}, stop = {0}, message = {0};
    put_int(&start, 1, 1);
    put_int(&stop, 1, 2);
    put_int(&message, 2, (uint64_t)-3);
    put_message(&message, 7, &start);
    assert_int_equal(scan(&message, &event, &scalar), 0);
    assert_true(event.starts);
    assert_int_equal(event.kind, KJ_EVENT_SESSION);
    assert_true(event.step == -3);
    put_message(&message, 7, &stop);
    assert_int_equal(scan(&message, &event, &scalar), 0);
    assert_false(event.starts);
}

static void test_every_cut_of_a_message(void **state)
{
    (void)state;
    struct bytes tensor = {0};
    put_int(&tensor, 1, 1);
    put_bytes(&tensor, 2, "", 0);
    put_bytes(&tensor, 4, "\0\0\0\x3f", 4);
    struct bytes whole = event_with_tensor(&tensor);
    for (size_t size = 0; size < whole.size; size++) {
        kji_event event;
        kji_value scalar;
        struct bytes cut = whole;
        cut.size = size;
        int n = scan(&cut, &event, &scalar);
        assert_int_equal(n, size == 0 || size == 9 || size == 11 ? 0 : -1);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } cases[] = {{"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, /* varint of 11 bytes */
                 {"\x02\x00", 2},                                          /* field 0 */
                 {"\x0f\x01", 2},                                          /* wire type 7 */
                 {"\x0c", 1},                                              /* end without start */
                 {"\x0b\x10\x01", 3},                                      /* no end */
                 {"\x0b\x14", 2},                                          /* wrong end */
                 {"\x80\x80\x80\x80\x10\x00", 6},                          /* key above 32 bits */
                 {"\x2a\x03\x0a\x05\x61", 5}};                             /* value overruns */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kji_event event;
        kji_value scalar;
        struct bytes message = {0};
        put_raw(&message, cases[k].bytes, cases[k].size);
        assert_int_equal(scan(&message, &event, &scalar), -1);
    }
    struct bytes deep = {0};
    memset(deep.data, 0x0b, 101);
    memset(deep.data + 101, 0x0c, 101);
    deep.size = 202;
    kji_event event;
    assert_false(kji_event_parse(deep.data, deep.size, &event));
    assert_true(kji_event_parse(deep.data + 1, 200, &event));
}

static void test_known_fields_of_another_wire_type(void **state)
{
    (void)state;
    struct bytes message = {0};
    kji_event event;
    put_int(&message, 1, 5);
    put_bytes(&message, 2, "xx", 2);
    put_float(&message, 5, 1);
    assert_true(kji_event_parse(message.data, message.size, &event));
    assert_true(event.wall_time == 0 && event.step == 0 && event.kind == KJ_EVENT_NO_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype_as_content),
        cmocka_unit_test(test_every_dtype_as_values),
        cmocka_unit_test(test_8_bit_floats),
        cmocka_unit_test(test_values_outside_of_their_type),
        cmocka_unit_test(test_types_that_are_no_numbers),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_the_last_member_wins),
        cmocka_unit_test(test_a_tensor_in_two_parts_is_merged),
        cmocka_unit_test(test_session_start),
        cmocka_unit_test(test_every_cut_of_a_message),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_known_fields_of_another_wire_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
