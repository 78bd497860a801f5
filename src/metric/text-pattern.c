/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns come from people and lines from programs, so the work of one match is bounded (PCRE2's
 * match, depth and heap limits), and bytes that are not UTF-8 match nothing instead of being an
 * error.
 */
#include "text-pattern.h"

#include "errors.h"
#include "mem.h"
#include "number.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MATCH_LIMIT = 500000, DEPTH_LIMIT = 10000, HEAP_LIMIT_KIB = 16384 };

struct kji_pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    int value_group;
    int step_group; /* 0: none */
};

void kji_pattern_free(kji_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_match_context_free(pattern->context);
    pcre2_match_data_free(pattern->match);
    pcre2_code_free(pattern->code);
    free(pattern);
}

static void freep(kji_pattern **pattern)
{
    kji_pattern_free(*pattern);
}

/* The number of a named group; 0 when there is none. */
static int named_group(const pcre2_code *code, const char *name, kj_error *err)
{
    int number = pcre2_substring_number_from_name(code, (PCRE2_SPTR)name);
    if (number > 0)
        return number;
    if (number == PCRE2_ERROR_NOUNIQUESUBSTRING)
        return kji_fail(err, KJ_EARG, "the pattern has several groups named %s", name);
    return 0;
}

static int find_groups(kji_pattern *pattern, kj_error *err)
{
    int step = named_group(pattern->code, "step", err);
    int value = step < 0 ? step : named_group(pattern->code, "value", err);
    if (value < 0)
        return value;
    uint32_t n_groups = 0;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
    if (value == 0)
        value = step == 1 ? 2 : 1;
    if ((uint32_t)value > n_groups)
        return kji_fail(err, KJ_EARG,
                        "the pattern captures no value; put it in brackets, as in "
                        "/loss=(\\S+)/");
    pattern->step_group = step;
    pattern->value_group = value;
    return 0;
}

int kji_pattern_new(const char *text, kji_pattern **ret_pattern, kj_error *err)
{
    KJI_CLEANUP(freep) kji_pattern *pattern = calloc(1, sizeof *pattern);
    if (!pattern)
        return kji_fail_memory(err);
    int number;
    PCRE2_SIZE offset;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C,
                                  &number, &offset, NULL);
    if (!pattern->code) {
        PCRE2_UCHAR message[200];
        pcre2_get_error_message(number, message, sizeof message);
        return kji_fail_native(err, KJ_EARG, "pcre2", number,
                               "bad pattern at offset %zu, near \"%.20s\": %s", (size_t)offset,
                               text + offset, (const char *)message);
    }
    pattern->match = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->match || !pattern->context)
        return kji_fail_memory(err);
    pcre2_set_match_limit(pattern->context, MATCH_LIMIT);
    pcre2_set_depth_limit(pattern->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(pattern->context, HEAP_LIMIT_KIB);
    int r = find_groups(pattern, err);
    if (r < 0)
        return r;
    *ret_pattern = kji_take(&pattern);
    return 0;
}

/* What a group captured; false when it took no part in the match. */
static bool group(const kji_pattern *pattern, const char *line, int number, kji_match_result *ret)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->match);
    PCRE2_SIZE from = ends[2 * number], to = ends[2 * number + 1];
    bool set = from != PCRE2_UNSET && to >= from;
    ret->text = set ? line + from : line;
    ret->size = set ? to - from : 0;
    return set;
}

enum kji_match kji_pattern_match(kji_pattern *pattern, const char *line, size_t size,
                                 kji_match_result *ret)
{
    int n =
        pcre2_match(pattern->code, (PCRE2_SPTR)line, size, 0, 0, pattern->match, pattern->context);
    if (n == PCRE2_ERROR_NOMATCH)
        return KJI_MATCH_NONE;
    if (n < 0)
        return KJI_MATCH_TOO_HARD;
    ret->has_step = false;
    if (pattern->step_group && group(pattern, line, pattern->step_group, ret)) {
        if (!kji_parse_int64(ret->text, ret->size, &ret->step))
            return KJI_MATCH_BAD_STEP;
        ret->has_step = true;
    }
    group(pattern, line, pattern->value_group, ret);
    if (!kji_parse_double(ret->text, ret->size, &ret->value))
        return KJI_MATCH_BAD_VALUE;
    return KJI_MATCH_POINT;
}
