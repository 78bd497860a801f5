/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass from left to right. Tokens are copied, decoded and NUL-terminated, into the line's own
 * storage: each token needs at most its source bytes and a NUL, and tokens are separated by at
 * least one byte, except key and value, which are separated by "=".
 */
#include "text-line.h"

#include "errors.h"
#include "utf8.h"

#include <string.h>

typedef struct scanner {
    const char *at;
    const char *end;
    char *to;
    kj_error *err;
} scanner;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_name_char(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

bool kji_name_valid(const char *name)
{
    if (!is_letter(*name))
        return false;
    size_t size = 0;
    while (is_name_char(name[size]))
        size++;
    return name[size] == 0 && size <= KJI_NAME_MAX;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->end && is_blank(*s->at))
        s->at++;
}

/* What stands behind a backslash in quotes, 0 when it is not one of ours. */
static char escaped(char c)
{
    switch (c) {
    case '"':
    case '\\':
        return c;
    case 'n':
        return '\n';
    case 't':
        return '\t';
    }
    return 0;
}

/* The opening quote is passed already. */
static int scan_quoted(scanner *s)
{
    for (; s->at < s->end; s->at++) {
        char c = *s->at;
        if (c == '"') {
            s->at++;
            if (s->at < s->end && !is_blank(*s->at))
                return kji_fail(s->err, KJ_EDATA, "text right behind a closing quote");
            *s->to++ = 0;
            return 0;
        }
        if (c == '\\') {
            c = ++s->at < s->end ? escaped(*s->at) : 0;
            if (!c)
                return kji_fail(s->err, KJ_EDATA,
                                "unknown escape in quotes; there are \\\" \\\\ \\n \\t");
        }
        *s->to++ = c;
    }
    return kji_fail(s->err, KJ_EDATA, "a quote is not closed");
}

/* A bare word or a quoted text, NUL-terminated at *ret_text. */
static int scan_value(scanner *s, const char **ret_text)
{
    *ret_text = s->to;
    if (s->at < s->end && *s->at == '"') {
        s->at++;
        return scan_quoted(s);
    }
    for (; s->at < s->end && !is_blank(*s->at); s->at++) {
        if (*s->at == '"')
            return kji_fail(s->err, KJ_EDATA,
                            "a quote inside a word; put the whole value in quotes");
        *s->to++ = *s->at;
    }
    *s->to++ = 0;
    return 0;
}

/* Length of the name in front of a "=" that `text` begins with, 0 when it does not. */
static size_t key_size(const char *text, const char *end)
{
    const char *at = text;
    while (at < end && is_name_char(*at))
        at++;
    return at < end && *at == '=' ? (size_t)(at - text) : 0;
}

static int scan_arg(scanner *s, size_t size, kji_text_line *line)
{
    if (line->n_args == KJI_WORDS_MAX)
        return kji_fail(s->err, KJ_EDATA, "more than %d keys", KJI_WORDS_MAX);
    kji_text_arg *arg = &line->args[line->n_args];
    arg->key = s->to;
    memcpy(s->to, s->at, size);
    s->to += size;
    *s->to++ = 0;
    s->at += size + 1;
    if (!kji_name_valid(arg->key))
        return kji_fail(s->err, KJ_EDATA, "%.80s is no name of a key", arg->key);
    for (size_t k = 0; k < line->n_args; k++)
        if (strcmp(line->args[k].key, arg->key) == 0)
            return kji_fail(s->err, KJ_EDATA, "%s is given twice", arg->key);
    line->n_args++;
    return scan_value(s, &arg->value);
}

static int scan_word(scanner *s, kji_text_line *line)
{
    if (line->n_words == KJI_WORDS_MAX)
        return kji_fail(s->err, KJ_EDATA, "more than %d words", KJI_WORDS_MAX);
    if (*s->at == '=')
        return kji_fail(s->err, KJ_EDATA, "\"=\" without a key; write key=value without blanks");
    return scan_value(s, &line->words[line->n_words++]);
}

static int scan_verb(scanner *s, kji_text_line *line)
{
    char *verb = s->to;
    int r = scan_value(s, &line->verb);
    if (r < 0)
        return r;
    if (!kji_name_valid(verb))
        return kji_fail(s->err, KJ_EDATA, "a line begins with a verb, not with \"%.80s\"", verb);
    for (; *verb; verb++)
        if (*verb >= 'A' && *verb <= 'Z')
            *verb += 'a' - 'A';
    return 0;
}

static int check_bytes(const char *text, size_t size, kj_error *err)
{
    if (size > KJI_LINE_MAX)
        return kji_fail(err, KJ_EDATA, "line of more than %d bytes", KJI_LINE_MAX);
    if (!kji_utf8_valid(text, size))
        return kji_fail(err, KJ_EDATA, "line is not UTF-8");
    for (size_t k = 0; k < size; k++)
        if ((unsigned char)text[k] < 0x20 && text[k] != '\t')
            return kji_fail(err, KJ_EDATA, "control byte 0x%02x in the line",
                            (unsigned)(unsigned char)text[k]);
    return 0;
}

int kji_text_line_parse(const char *text, size_t size, kji_text_line *ret_line, kj_error *err)
{
    if (size && text[size - 1] == '\r')
        size--;
    int r = check_bytes(text, size, err);
    if (r < 0)
        return r;
    scanner s = {text, text + size, ret_line->storage, err};
    ret_line->verb = NULL;
    ret_line->n_words = ret_line->n_args = 0;
    for (;;) {
        skip_blanks(&s);
        if (s.at == s.end || *s.at == '#')
            return ret_line->verb != NULL;
        size_t key = key_size(s.at, s.end);
        if (!ret_line->verb)
            r = scan_verb(&s, ret_line);
        else if (key)
            r = scan_arg(&s, key, ret_line);
        else
            r = scan_word(&s, ret_line);
        if (r < 0)
            return r;
    }
}
