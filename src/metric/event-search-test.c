/* SPDX-License-Identifier: Apache-2.0 */
#include "event-make.h"
#include "event-search.h"

#include "kji-test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct place {
    int fd;
    uint64_t size;
    kji_window window;
    uint64_t budget;
};

static struct place begin(void)
{
    struct place place = {.fd = memfd_create("search", MFD_CLOEXEC), .budget = 1 << 20};
    assert_true(place.fd >= 0);
    assert_true(kji_window_init(&place.window));
    return place;
}

static void end(struct place *place)
{
    kji_window_done(&place->window);
    close(place->fd);
}

static void put(struct place *place, uint64_t offset, const void *bytes, size_t size)
{
    assert_int_equal(pwrite(place->fd, bytes, size, (off_t)offset), size);
    place->size = offset + size > place->size ? offset + size : place->size;
}

/* A record with a payload of so many bytes; returns the size of the record. */
static size_t put_record(struct place *place, uint64_t offset, size_t size)
{
    unsigned char head[KJI_FRAME_HEAD], tail[4];
    char *payload = calloc(1, size + 1);
    kji_frame_seal(payload, size, head, tail);
    put(place, offset, head, sizeof head);
    put(place, offset + sizeof head, payload, size);
    put(place, offset + sizeof head + size, tail, sizeof tail);
    free(payload);
    return size + KJI_FRAME_EXTRA;
}

static enum kji_search_end search_on(struct place *place, kji_event_search *search, uint64_t most)
{
    kji_window_open(&place->window, place->fd);
    return kji_event_search_on(search, &place->window, place->size, most, &place->budget);
}

/* A search that reads `most` bytes at a time comes to the record at this offset. */
static void expect(struct place *place, uint64_t from, uint64_t most, uint64_t offset)
{
    kji_event_search search = {.at = from};
    enum kji_search_end end = KJI_SEARCH_LATER;
    while (end == KJI_SEARCH_LATER)
        end = search_on(place, &search, most);
    assert_int_equal(end, KJI_SEARCH_FOUND);
    assert_int_equal(search.at, offset);
    assert_false(search.running);
}

/* The low bytes of a length are zeros, too. */
static void test_behind_zeros(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 256, 65536, 1 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (uint64_t zeros = 1; zeros < 40; zeros++) {
            struct place place = begin();
            put(&place, 0, "x", 1);
            put_record(&place, 1 + zeros, sizes[k]);
            expect(&place, 1, UINT64_MAX, 1 + zeros);
            end(&place);
        }
    }
}

/* What has no blocks on the disk is not read: else this would take an hour. */
static void test_behind_a_hole_of_terabytes(void **state)
{
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct place place = begin();
        uint64_t offset = (UINT64_C(1) << 42) + 4095 * k;
        put(&place, 0, "x", 1);
        put_record(&place, offset, 65536);
        expect(&place, 1, UINT64_MAX, offset);
        expect(&place, 1, 1, offset);
        end(&place);
    }
}

static void test_a_hole_up_to_the_end(void **state)
{
    (void)state;
    struct place place = begin();
    kji_event_search search = {.at = 1};
    place.size = UINT64_C(1) << 42;
    assert_int_equal(ftruncate(place.fd, (off_t)place.size), 0);
    assert_int_equal(search_on(&place, &search, UINT64_MAX), KJI_SEARCH_NONE);
    assert_in_range(search.at, place.size - KJI_FRAME_HEAD, place.size);
    uint64_t offset = place.size;
    put_record(&place, offset, 10);
    assert_int_equal(search_on(&place, &search, UINT64_MAX), KJI_SEARCH_FOUND);
    assert_int_equal(search.at, offset);
    end(&place);
}

/* In pieces as at once, with claims of records on the way that are none. */
static void test_in_pieces(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    struct place place = begin();
    unsigned char *noise = malloc(SIZE), head[KJI_FRAME_HEAD];
    uint32_t word = 1;
    for (size_t k = 0; k < SIZE; k++)
        noise[k] = (unsigned char)((word = word * 1664525 + 1013904223) >> 24);
    put(&place, 0, noise, SIZE);
    kji_make_head(head, 100);
    put(&place, 500000, head, sizeof head);
    kji_make_head(head, SIZE); /* beyond the end */
    put(&place, 600000, head, sizeof head);
    put_record(&place, SIZE + 5, 300);
    expect(&place, 1, UINT64_MAX, SIZE + 5);
    expect(&place, 1, 1, SIZE + 5);
    free(noise);
    end(&place);
}

/* A head whose payload is not there yet is where the search goes on, in how many pieces ever. */
static void test_unfinished(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, AT = 1000 };
    struct place place = begin();
    unsigned char *noise = malloc(SIZE), head[KJI_FRAME_HEAD];
    memset(noise, 0x55, SIZE);
    put(&place, 0, noise, SIZE);
    kji_make_head(head, SIZE);
    put(&place, AT, head, sizeof head);
    kji_event_search search = {.at = 1};
    size_t n_calls = 1;
    while (search_on(&place, &search, 1) == KJI_SEARCH_LATER)
        n_calls++;
    assert_true(n_calls > 1);
    assert_int_equal(search.at, AT);
    put_record(&place, AT, SIZE);
    assert_int_equal(search_on(&place, &search, UINT64_MAX), KJI_SEARCH_FOUND);
    assert_int_equal(search.at, AT);
    free(noise);
    end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_zeros),
        cmocka_unit_test(test_behind_a_hole_of_terabytes),
        cmocka_unit_test(test_a_hole_up_to_the_end),
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_unfinished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
