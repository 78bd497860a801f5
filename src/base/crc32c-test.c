/* SPDX-License-Identifier: Apache-2.0 */
#include "crc32c.h"

#include "kji-test.h"

#include <isa-l.h>
#include <string.h>

static void test_known_values(void **state)
{
    (void)state;
    static const unsigned char zeros[32];
    assert_int_equal(kji_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(kji_crc32c(zeros, 32), 0x8a9136aau); /* RFC 3720, B.4 */
    assert_int_equal(kji_crc32c("", 0), 0);
    assert_int_equal(kji_crc32c_mask(kji_crc32c(zeros, 8)), 0x07980329u);
}

static void fill(unsigned char *bytes, size_t size)
{
    uint32_t x = 1;
    for (size_t k = 0; k < size; k++) {
        x = x * 1664525u + 1013904223u;
        bytes[k] = (unsigned char)(x >> 24);
    }
}

static void test_every_length_and_offset_as_isal(void **state)
{
    (void)state;
    static unsigned char bytes[700];
    fill(bytes, sizeof bytes);
    for (size_t size = 0; size <= 600; size++) {
        for (size_t offset = 0; offset < 9; offset++) {
            uint32_t expected = ~crc32_iscsi(bytes + offset, (int)size, 0xffffffffu);
            assert_int_equal(kji_crc32c(bytes + offset, size), expected);
        }
    }
}

static void test_extend_joins_pieces(void **state)
{
    (void)state;
    static unsigned char bytes[1000];
    fill(bytes, sizeof bytes);
    uint32_t whole = kji_crc32c(bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t first = kji_crc32c(bytes, cut);
        assert_int_equal(kji_crc32c_extend(first, bytes + cut, sizeof bytes - cut), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_every_length_and_offset_as_isal),
        cmocka_unit_test(test_extend_joins_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
