/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rewriter is a recursive-descent reader that copies what it accepts, token by token: no tree,
 * so nothing is lost that a tree could not hold (integers above 64 bits, lone surrogates).
 */
#include "optuna-json.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "number.h"
#include "utf8.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_DEPTH = 200, REPLACEMENT = 0xfffd };

static void put_unit(kji_strbuf *out, unsigned unit)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *found = unit && unit < 0x80 ? strchr(plain, (int)unit) : NULL;
    if (found) {
        kji_strbuf_putc(out, '\\');
        kji_strbuf_putc(out, letter[found - plain]);
    } else if (unit >= 0x20 && unit < 0x7f) {
        kji_strbuf_putc(out, (char)unit);
    } else {
        kji_strbuf_printf(out, "\\u%04x", unit);
    }
}

static void put_code_point(kji_strbuf *out, uint32_t code)
{
    if (code < 0x10000) {
        put_unit(out, code);
        return;
    }
    put_unit(out, 0xd800 + ((code - 0x10000) >> 10));
    put_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
}

void kji_optuna_json_string(kji_strbuf *out, const char *utf8)
{
    const char *end = utf8 + strlen(utf8);
    kji_strbuf_putc(out, '"');
    while (utf8 < end) {
        uint32_t code = REPLACEMENT;
        size_t n = kji_utf8_decode(utf8, (size_t)(end - utf8), &code);
        put_code_point(out, code);
        utf8 += n ? n : 1;
    }
    kji_strbuf_putc(out, '"');
}

void kji_optuna_json_double(kji_strbuf *out, double value)
{
    char text[KJI_DOUBLE_TEXT];
    if (isnan(value))
        kji_strbuf_puts(out, "NaN");
    else if (isinf(value))
        kji_strbuf_puts(out, value < 0 ? "-Infinity" : "Infinity");
    else
        kji_strbuf_puts(out, kji_double_text(value, text));
}

void kji_optuna_json_value(kji_strbuf *out, const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_BOOL:
        kji_strbuf_puts(out, value->i ? "true" : "false");
        break;
    case KJ_TYPE_INT:
        kji_strbuf_printf(out, "%lld", (long long)value->i);
        break;
    case KJ_TYPE_FLOAT:
        kji_optuna_json_double(out, value->f);
        break;
    case KJ_TYPE_STRING:
        kji_optuna_json_string(out, value->s ? value->s : "");
        break;
    default:
        kji_strbuf_puts(out, "null");
    }
}

typedef struct reader {
    const char *start;
    const char *at;
    const char *end;
    kji_strbuf *out;
} reader;

static bool read_value(reader *r, int depth);

static void skip_blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool next_is(reader *r, char c)
{
    skip_blanks(r);
    if (r->at >= r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    kji_strbuf_add(r->out, r->at, n);
    r->at += n;
    return true;
}

static bool read_hex4(reader *r, unsigned *ret_unit)
{
    static const char digits[] = "0123456789abcdef";
    unsigned unit = 0;
    if (r->end - r->at < 4)
        return false;
    for (int k = 0; k < 4; k++) {
        char c = *r->at >= 'A' && *r->at <= 'F' ? (char)(*r->at + 32) : *r->at;
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit)
            return false;
        unit = unit << 4 | (unsigned)(digit - digits);
        r->at++;
    }
    *ret_unit = unit;
    return true;
}

static bool read_escape(reader *r)
{
    static const char letters[] = "\"\\/bfnrtu", units[] = "\"\\/\b\f\n\r\t";
    const char *found = r->at < r->end && *r->at ? strchr(letters, *r->at) : NULL;
    if (!found)
        return false;
    r->at++;
    unsigned unit;
    if (*found != 'u')
        unit = (unsigned char)units[found - letters];
    else if (!read_hex4(r, &unit))
        return false;
    put_unit(r->out, unit);
    return true;
}

static bool read_string(reader *r)
{
    if (!next_is(r, '"'))
        return false;
    kji_strbuf_putc(r->out, '"');
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 0x20)
            return false;
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r))
                return false;
            continue;
        }
        uint32_t code;
        size_t n = kji_utf8_decode(r->at, (size_t)(r->end - r->at), &code);
        if (n == 0)
            return false;
        put_code_point(r->out, code);
        r->at += n;
    }
    if (r->at >= r->end)
        return false;
    r->at++;
    kji_strbuf_putc(r->out, '"');
    return true;
}

static bool read_digits(reader *r)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > from;
}

static bool read_number(reader *r)
{
    const char *from = r->at;
    if (*r->at == '-')
        r->at++;
    const char *digits = r->at;
    if (!read_digits(r) || (*digits == '0' && r->at - digits > 1))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!read_digits(r))
            return false;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (!read_digits(r))
            return false;
    }
    kji_strbuf_add(r->out, from, (size_t)(r->at - from));
    return true;
}

static bool read_members(reader *r, char close, bool with_keys, int depth)
{
    kji_strbuf_putc(r->out, with_keys ? '{' : '[');
    bool first = true;
    while (!next_is(r, close)) {
        if (!first && !next_is(r, ','))
            return false;
        if (!first)
            kji_strbuf_puts(r->out, ", ");
        first = false;
        if (with_keys) {
            if (!read_string(r) || !next_is(r, ':'))
                return false;
            kji_strbuf_puts(r->out, ": ");
        }
        if (!read_value(r, depth + 1))
            return false;
    }
    kji_strbuf_putc(r->out, close);
    return true;
}

static bool read_value(reader *r, int depth)
{
    skip_blanks(r);
    if (r->at >= r->end || depth > MAX_DEPTH)
        return false;
    switch (*r->at) {
    case '{':
        r->at++;
        return read_members(r, '}', true, depth);
    case '[':
        r->at++;
        return read_members(r, ']', false, depth);
    case '"':
        return read_string(r);
    case 't':
        return read_word(r, "true");
    case 'f':
        return read_word(r, "false");
    case 'n':
        return read_word(r, "null");
    case 'N':
        return read_word(r, "NaN");
    case 'I':
        return read_word(r, "Infinity");
    case '-':
        return read_word(r, "-Infinity") || read_number(r);
    default:
        return read_number(r);
    }
}

static int not_json(const reader *r, kj_error *err)
{
    return kji_fail(err, KJ_EDATA, "not JSON at byte %zu", (size_t)(r->at - r->start));
}

int kji_optuna_json_rewrite(const char *text, size_t size, kji_strbuf *out, kj_error *err)
{
    reader r = {text, text, text + size, out};
    if (read_value(&r, 0)) {
        skip_blanks(&r);
        if (r.at == r.end)
            return out->failed ? kji_fail_memory(err) : 0;
    }
    return not_json(&r, err);
}

/* The text of a key without quotes and escapes, borrowed from *ret_json. */
static int decode_key(const kji_strbuf *quoted, struct json_object **ret_json, const char **ret_key,
                      kj_error *err)
{
    int r = quoted->failed ? kji_fail_memory(err)
                           : kji_json_parse(quoted->text, quoted->size, ret_json, err);
    if (r < 0)
        return r;
    *ret_key = json_object_get_string(*ret_json);
    if (strlen(*ret_key) != (size_t)json_object_get_string_len(*ret_json))
        return kji_fail(err, KJ_EARG, "a key must not contain a NUL character");
    return 0;
}

/* One member; the reader stands at its key. */
static int read_member(reader *r, kji_member_fn fn, void *userdata, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf quoted = KJI_STRBUF_INIT;
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf value = KJI_STRBUF_INIT;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    const char *key;
    r->out = &quoted;
    if (!read_string(r) || !next_is(r, ':'))
        return not_json(r, err);
    r->out = &value;
    if (!read_value(r, 1))
        return not_json(r, err);
    int result = decode_key(&quoted, &json, &key, err);
    if (result >= 0 && value.failed)
        result = kji_fail_memory(err);
    return result < 0 ? result : fn(userdata, key, value.text, err);
}

int kji_optuna_json_members(const char *text, kji_member_fn fn, void *userdata, kj_error *err)
{
    size_t size = strlen(text);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf whole = KJI_STRBUF_INIT;
    int result =
        kji_optuna_json_rewrite(text, size, &whole, err); /* nothing begins on half a text */
    if (result < 0)
        return result;
    reader r = {text, text, text + size, NULL};
    if (!next_is(&r, '{'))
        return kji_fail(err, KJ_EARG, "not a JSON object");
    for (bool first = true; !next_is(&r, '}'); first = false) {
        if (!first && !next_is(&r, ','))
            return not_json(&r, err);
        result = read_member(&r, fn, userdata, err);
        if (result < 0)
            return result;
    }
    return 0;
}
