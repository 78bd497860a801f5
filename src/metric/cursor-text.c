/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor of many files is saved often, so its numbers are written without printf and without a
 * tree in between. Names in it never need an escape of JSON: what would need one has become %XX.
 */
#include "cursor-text.h"

#include "utf8.h"

#include <string.h>

const char kji_cursor_no_memory[] = "out of memory";

static const char digits[] = "0123456789abcdef";

static void separate(kji_strbuf *to)
{
    char last = to->size ? to->text[to->size - 1] : '[';
    if (last != '[' && last != ':')
        kji_strbuf_putc(to, ',');
}

static void put_digits(kji_strbuf *to, uint64_t value)
{
    char text[20], *at = text + sizeof text;
    do {
        *--at = digits[value % 10];
        value /= 10;
    } while (value);
    kji_strbuf_add(to, at, (size_t)(text + sizeof text - at));
}

void kji_cursor_put_uint(kji_strbuf *to, uint64_t value)
{
    separate(to);
    put_digits(to, value);
}

void kji_cursor_open_numbers(kji_strbuf *to)
{
    separate(to);
    kji_strbuf_putc(to, '"');
}

static void separate_number(kji_strbuf *to)
{
    if (to->size && to->text[to->size - 1] != '"')
        kji_strbuf_putc(to, ' ');
}

void kji_cursor_add_uint(kji_strbuf *to, uint64_t value)
{
    separate_number(to);
    put_digits(to, value);
}

void kji_cursor_add_int(kji_strbuf *to, int64_t value)
{
    separate_number(to);
    if (value < 0)
        kji_strbuf_putc(to, '-');
    put_digits(to, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void kji_cursor_add_double(kji_strbuf *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    kji_cursor_add_uint(to, bits);
}

void kji_cursor_close_numbers(kji_strbuf *to)
{
    kji_strbuf_putc(to, '"');
}

static void put_escaped(kji_strbuf *to, unsigned char byte)
{
    const char text[] = {'%', digits[byte >> 4], digits[byte & 15]};
    kji_strbuf_add(to, text, sizeof text);
}

static bool is_plain(char c)
{
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%';
}

void kji_cursor_put_name(kji_strbuf *to, const char *name, size_t size)
{
    separate(to);
    kji_strbuf_putc(to, '"');
    for (size_t k = 0; k < size;) {
        size_t n = 0;
        while (k + n < size && is_plain(name[k + n]))
            n++;
        uint32_t code;
        if (n == 0 && (unsigned char)name[k] >= 0x80)
            n = kji_utf8_decode(name + k, size - k, &code);
        if (n)
            kji_strbuf_add(to, name + k, n);
        else
            put_escaped(to, (unsigned char)name[k]);
        k += n ? n : 1;
    }
    kji_strbuf_putc(to, '"');
}

void kji_cursor_put_hex(kji_strbuf *to, const void *bytes, size_t size)
{
    separate(to);
    kji_strbuf_putc(to, '"');
    for (const unsigned char *from = bytes, *end = from + size; from < end;) {
        char text[64];
        size_t n = 0;
        for (; n < sizeof text && from < end; from++) {
            text[n++] = digits[*from >> 4];
            text[n++] = digits[*from & 15];
        }
        kji_strbuf_add(to, text, n);
    }
    kji_strbuf_putc(to, '"');
}

void kji_cursor_open(kji_strbuf *to)
{
    separate(to);
    kji_strbuf_putc(to, '[');
}

void kji_cursor_close(kji_strbuf *to)
{
    kji_strbuf_putc(to, ']');
}

kji_cursor_items kji_cursor_items_of(struct json_object *array)
{
    bool is_array = json_object_is_type(array, json_type_array);
    return (kji_cursor_items){is_array ? array : NULL, 0, is_array ? NULL : "no array"};
}

void kji_cursor_expect(kji_cursor_items *items, bool right, const char *wrong)
{
    if (!right && !items->wrong)
        items->wrong = wrong;
}

void kji_cursor_expect_end(kji_cursor_items *items)
{
    kji_cursor_expect(items, !kji_cursor_more(items), "too many values");
}

bool kji_cursor_more(const kji_cursor_items *items)
{
    return !items->wrong && items->next < json_object_array_length(items->array);
}

/* NULL after a failure. */
static struct json_object *take(kji_cursor_items *items, enum json_type type, const char *wrong)
{
    kji_cursor_expect(items, kji_cursor_more(items), "too few values");
    if (items->wrong)
        return NULL;
    struct json_object *item = json_object_array_get_idx(items->array, items->next++);
    kji_cursor_expect(items, json_object_is_type(item, type), wrong);
    return items->wrong ? NULL : item;
}

uint64_t kji_cursor_take_uint(kji_cursor_items *items, uint64_t limit)
{
    struct json_object *item = take(items, json_type_int, "no whole number");
    if (!item)
        return 0;
    uint64_t value = json_object_get_uint64(item);
    kji_cursor_expect(items, json_object_get_int64(item) >= 0 && value <= limit,
                      "a number out of range");
    return items->wrong ? 0 : value;
}

kji_cursor_numbers kji_cursor_take_numbers(kji_cursor_items *items)
{
    struct json_object *item = take(items, json_type_string, "no text");
    return (kji_cursor_numbers){items, item ? json_object_get_string(item) : ""};
}

bool kji_cursor_more_numbers(const kji_cursor_numbers *numbers)
{
    return !numbers->items->wrong && *numbers->at;
}

void kji_cursor_expect_last(const kji_cursor_numbers *numbers)
{
    kji_cursor_expect(numbers->items, !kji_cursor_more_numbers(numbers), "too many numbers");
}

/* Digits up to a blank, which is taken too, or to the end. */
static uint64_t next_digits(kji_cursor_numbers *numbers)
{
    uint64_t value = 0;
    const char *at = numbers->at;
    kji_cursor_expect(numbers->items, *at, "too few numbers");
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            kji_cursor_expect(numbers->items, false, "a number out of range");
    kji_cursor_expect(numbers->items, at > numbers->at && (*at == ' ' || !*at), "no whole number");
    numbers->at = at + (*at == ' ');
    return value;
}

uint64_t kji_cursor_next_uint(kji_cursor_numbers *numbers, uint64_t limit)
{
    if (numbers->items->wrong)
        return 0;
    uint64_t value = next_digits(numbers);
    kji_cursor_expect(numbers->items, value <= limit, "a number out of range");
    return numbers->items->wrong ? 0 : value;
}

int64_t kji_cursor_next_int(kji_cursor_numbers *numbers)
{
    bool negative = !numbers->items->wrong && *numbers->at == '-';
    numbers->at += negative;
    uint64_t value = kji_cursor_next_uint(numbers, (uint64_t)INT64_MAX + negative);
    return negative ? (int64_t)-value : (int64_t)value;
}

double kji_cursor_next_double(kji_cursor_numbers *numbers)
{
    uint64_t bits = kji_cursor_next_uint(numbers, UINT64_MAX);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int hex_digit(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* -1: these are not two digits. */
static int hex_byte(const char *text)
{
    int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
    return low < 0 ? -1 : high << 4 | low;
}

char *kji_cursor_take_name(kji_cursor_items *items, size_t *ret_size)
{
    struct json_object *item = take(items, json_type_string, "no text");
    if (!item)
        return NULL;
    const char *from = json_object_get_string(item);
    size_t n = (size_t)json_object_get_string_len(item), size = 0;
    char *name = malloc(n + 1);
    kji_cursor_expect(items, name != NULL, kji_cursor_no_memory);
    for (size_t k = 0; k < n && !items->wrong; k++) {
        int byte = (unsigned char)from[k];
        if (byte == '%') {
            byte = k + 2 < n ? hex_byte(from + k + 1) : -1;
            k += 2;
        }
        kji_cursor_expect(items, byte > 0 || (byte == 0 && ret_size), "a malformed name");
        if (!items->wrong)
            name[size++] = (char)byte;
    }
    if (items->wrong) {
        free(name);
        return NULL;
    }
    name[size] = 0;
    if (ret_size)
        *ret_size = size;
    return name;
}

void kji_cursor_take_hex(kji_cursor_items *items, void *bytes, size_t size, size_t *ret_size)
{
    struct json_object *item = take(items, json_type_string, "no text");
    if (!item)
        return;
    const char *from = json_object_get_string(item);
    size_t n = (size_t)json_object_get_string_len(item);
    bool fits = n % 2 == 0 && (ret_size ? n / 2 <= size : n / 2 == size);
    kji_cursor_expect(items, fits, "a malformed fingerprint");
    for (size_t k = 0; k < n / 2 && !items->wrong; k++) {
        int byte = hex_byte(from + 2 * k);
        kji_cursor_expect(items, byte >= 0, "a malformed fingerprint");
        ((unsigned char *)bytes)[k] = (unsigned char)byte;
    }
    if (ret_size)
        *ret_size = n / 2;
}

kji_cursor_items kji_cursor_take_array(kji_cursor_items *items)
{
    struct json_object *item = take(items, json_type_array, "no array");
    return (kji_cursor_items){item, 0, items->wrong};
}
