/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "errors.h"
#include "number.h"
#include "strbuf.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_OPTIONS = 64 };

typedef struct slice {
    const char *text;
    size_t size;
} slice;

static slice trim(const char *from, const char *end)
{
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (slice){from, (size_t)(end - from)};
}

static bool slice_is(slice s, const char *text)
{
    return strlen(text) == s.size && memcmp(s.text, text, s.size) == 0;
}

static bool in_range(const kji_option *option, double value)
{
    return !isnan(value) && !((option->flags & KJI_OPTION_MIN) && value < option->min) &&
           !((option->flags & KJI_OPTION_MAX) && value > option->max);
}

/* true when `value` is of the option's type and range, and stored. */
static bool store(const kji_option *option, slice value, void *target)
{
    void *field = (char *)target + option->offset;
    int64_t i;
    double f;
    switch (option->type) {
    case KJ_TYPE_BOOL:
        if (slice_is(value, "true") || slice_is(value, "yes") || slice_is(value, "1"))
            *(int32_t *)field = 1;
        else if (slice_is(value, "false") || slice_is(value, "no") || slice_is(value, "0"))
            *(int32_t *)field = 0;
        else
            return false;
        return true;
    case KJ_TYPE_INT:
        if (!kji_parse_int64(value.text, value.size, &i) || !in_range(option, (double)i))
            return false;
        *(int64_t *)field = i;
        return true;
    default:
        if (!kji_parse_double(value.text, value.size, &f) || !in_range(option, f))
            return false;
        *(double *)field = f;
        return true;
    }
}

/* A whole number has no ".0". */
static const char *limit_text(const kji_option *option, double limit, char text[KJI_DOUBLE_TEXT])
{
    kji_double_text(limit, text);
    if (option->type == KJ_TYPE_INT && fabs(limit) < 1e15)
        text[strcspn(text, ".")] = 0;
    return text;
}

static void describe(const kji_option *option, kji_strbuf *text)
{
    static const char *const names[] = {[KJ_TYPE_BOOL] = "yes or no",
                                        [KJ_TYPE_INT] = "a whole number",
                                        [KJ_TYPE_FLOAT] = "a number"};
    char number[KJI_DOUBLE_TEXT];
    kji_strbuf_puts(text, names[option->type]);
    if (option->flags & KJI_OPTION_MIN)
        kji_strbuf_printf(text, " >= %s", limit_text(option, option->min, number));
    if (option->flags & KJI_OPTION_MAX)
        kji_strbuf_printf(text, "%s <= %s", option->flags & KJI_OPTION_MIN ? " and" : "",
                          limit_text(option, option->max, number));
}

static int refuse_value(const kji_option *option, const char *who, slice value, kj_error *err)
{
    kji_strbuf wanted = KJI_STRBUF_INIT;
    describe(option, &wanted);
    kji_fail(err, KJ_EARG, "%s: %s=%.*s is refused: it must be %s", who, option->key,
             (int)value.size, value.text, wanted.text);
    kji_strbuf_done(&wanted);
    return KJ_EARG;
}

static int refuse_key(const kji_option *options, size_t n_options, const char *who, slice key,
                      kj_error *err)
{
    if (n_options == 0)
        return kji_fail(err, KJ_EARG, "%s has no option \"%.*s\": it has none", who, (int)key.size,
                        key.text);
    const char *known[MAX_OPTIONS];
    kji_strbuf list = KJI_STRBUF_INIT;
    for (size_t k = 0; k < n_options; k++) {
        known[k] = options[k].key;
        kji_strbuf_printf(&list, "%s%s", k ? ", " : "", options[k].key);
    }
    char name[65];
    size_t size = key.size < sizeof name ? key.size : sizeof name - 1;
    memcpy(name, key.text, size);
    name[size] = 0;
    const char *near = kji_nearest(name, known, n_options);
    kji_fail(err, KJ_EARG, "%s has no option \"%s\"%s%s%s; it has %s", who, name,
             near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "", list.text);
    kji_strbuf_done(&list);
    return KJ_EARG;
}

static int parse_pair(const kji_option *options, size_t n_options, const char *who, slice pair,
                      void *target, uint64_t *seen, kj_error *err)
{
    const char *equals = memchr(pair.text, '=', pair.size);
    if (!equals)
        return kji_fail(err, KJ_EARG, "%s: \"%.*s\" is not key=value", who, (int)pair.size,
                        pair.text);
    slice key = trim(pair.text, equals);
    slice value = trim(equals + 1, pair.text + pair.size);
    for (size_t k = 0; k < n_options; k++) {
        if (!slice_is(key, options[k].key))
            continue;
        if (*seen & (UINT64_C(1) << k))
            return kji_fail(err, KJ_EARG, "%s: %s is given twice", who, options[k].key);
        *seen |= UINT64_C(1) << k;
        return store(&options[k], value, target) ? 0 : refuse_value(&options[k], who, value, err);
    }
    return refuse_key(options, n_options, who, key, err);
}

int kji_options_parse(const kji_option *options, size_t n_options, const char *who,
                      const char *text, void *target, kj_error *err)
{
    if (n_options > MAX_OPTIONS)
        return kji_fail(err, KJ_EARG, "%s has too many options", who);
    for (size_t k = 0; k < n_options; k++) {
        slice value = {options[k].default_text, strlen(options[k].default_text)};
        if (!store(&options[k], value, target))
            return refuse_value(&options[k], who, value, err);
    }
    uint64_t seen = 0;
    const char *from = text ? text : "";
    if (*trim(from, from + strlen(from)).text == 0)
        return 0;
    for (;;) {
        const char *end = from + strcspn(from, ",");
        int r = parse_pair(options, n_options, who, trim(from, end), target, &seen, err);
        if (r < 0)
            return r;
        if (*end == 0)
            return 0;
        from = end + 1;
    }
}
