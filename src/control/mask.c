/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rather one mask too many than a secret in a file that is copied into bug reports: in doubt a name
 * is secret, and a value reaches to the next blank. What would hide the numbers of a training for
 * nothing (max_tokens, key_dim) is let through by reading names as words.
 */
#include "mask.h"

#include "mem.h"
#include "strbuf.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum {
    PART_MAX = 31,
    QUOTED_MIN = 4 /* a shorter value would be found in words that are no secret */
};

typedef struct part {
    char text[PART_MAX + 1]; /* in small letters; the end of one that is longer */
    size_t size;
} part;

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(text, *list) == 0)
            return true;
    return false;
}

/* Words behind which keys, tokens or a pass are secret. */
static bool is_owner(const char *text)
{
    static const char *const owners[] = {
        "access",  "account", "admin", "api",  "auth",   "aws",     "bot",     "client", "db",
        "deploy",  "github",  "hf",    "host", "login",  "master",  "mysql",   "openai", "pg",
        "private", "proxy",   "redis", "root", "secret", "service", "session", "shared", "sign",
        "signing", "smtp",    "ssh",   "user", "wandb",  NULL};
    return is_one_of(text, owners);
}

/* Words that make a token one of a vocabulary, or a key one that everybody may see. */
static bool is_harmless_owner(const char *text)
{
    static const char *const owners[] = {"bos",     "cls",    "eos", "foreign", "mask", "pad",
                                         "primary", "public", "sep", "sub",     "unk",  NULL};
    return is_one_of(text, owners);
}

static bool is_secret_anywhere(const char *text)
{
    static const char *const inside[] = {"secret",     "password", "passwd",
                                         "passphrase", "passcode", "credential"};
    static const char *const whole[] = {"auth",  "authorization", "bearer", "cookie",
                                        "creds", "pwd",           NULL};
    for (size_t k = 0; k < sizeof inside / sizeof *inside; k++)
        if (strstr(text, inside[k]))
            return true;
    return is_one_of(text, whole);
}

/* "apikey": two words written as one. */
static bool is_owner_and_noun(const part *last)
{
    static const char *const nouns[] = {"key", "keys", "token", "tokens", "pass", "pwd"};
    for (size_t k = 0; k < sizeof nouns / sizeof *nouns; k++) {
        size_t size = strlen(nouns[k]);
        if (last->size <= size || strcmp(last->text + last->size - size, nouns[k]) != 0)
            continue;
        part owner = *last;
        owner.text[last->size - size] = 0;
        if (is_owner(owner.text))
            return true;
    }
    return false;
}

/* What the last word says together with the one before it. */
static bool is_secret_noun(const part *before, const part *last)
{
    static const char *const nouns[] = {"key", "token", NULL};
    static const char *const owned[] = {"keys", "tokens", "pass", NULL};
    if (is_one_of(last->text, nouns))
        return !is_harmless_owner(before->text);
    if (is_one_of(last->text, owned))
        return is_owner(before->text);
    return is_owner_and_noun(last);
}

/* What is said of the form of a value, not of what it is: api_key_hex, token_value. */
static bool is_form(const char *text)
{
    static const char *const forms[] = {"b",      "base", "hex", "plain", "raw", "str",
                                        "string", "text", "val", "value", NULL};
    return is_one_of(text, forms);
}

/* Whether a word ends before text[at]: behind small letters, or before the last of many capitals
 * (APIKey). */
static bool begins_word(const char *text, size_t size, size_t at)
{
    if (at == 0 || !isupper((unsigned char)text[at]))
        return false;
    return islower((unsigned char)text[at - 1]) ||
           (at + 1 < size && islower((unsigned char)text[at + 1]));
}

/* The next word of a name; empty at its end. */
static part next_part(const char *name, size_t size, size_t *at)
{
    part found = {.size = 0};
    while (*at < size && !isalpha((unsigned char)name[*at]))
        ++*at;
    for (size_t start = *at; *at < size && isalpha((unsigned char)name[*at]); ++*at) {
        if (*at > start && begins_word(name, size, *at))
            break;
        if (found.size == PART_MAX)
            memmove(found.text, found.text + 1, --found.size);
        found.text[found.size++] = (char)tolower((unsigned char)name[*at]);
    }
    found.text[found.size] = 0;
    return found;
}

bool kji_names_secret(const char *name, size_t size)
{
    part before = {.size = 0}, last = {.size = 0}, found;
    for (size_t at = 0; (found = next_part(name, size, &at)).size;) {
        if (is_secret_anywhere(found.text))
            return true;
        if (is_form(found.text) && last.size)
            continue;
        before = last;
        last = found;
    }
    return last.size && is_secret_noun(&before, &last);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_any_of(char c, const char *signs)
{
    return c && strchr(signs, c);
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

/* A quote, with the backslashes that stand before it in a text within a text. NULL: there is none.
 */
static const char *skip_quote(const char *at, const char *end)
{
    while (at < end && *at == '\\')
        at++;
    return at < end && (*at == '"' || *at == '\'') ? at + 1 : NULL;
}

/* The end of a value in quotes whose opening one is text[-1], with n_slashes before it: its closing
 * quote, or the end of all where there is none. */
static const char *end_of_quoted(const char *text, const char *end, size_t n_slashes)
{
    char quote = text[-1];
    size_t before = 0;
    for (const char *at = text; at < end; at++) {
        if (*at == quote && before <= n_slashes)
            return at - before;
        before = *at == '\\' ? before + 1 : 0;
    }
    return end;
}

static const char *end_of_word(const char *at, const char *end)
{
    while (at < end && !is_blank(*at))
        at++;
    return at;
}

/* The end of a list or an object, and of what touches it. */
static const char *end_of_brackets(const char *at, const char *end)
{
    size_t depth = 0;
    for (; at < end; at++) {
        if (is_any_of(*at, "[{("))
            depth++;
        else if (is_any_of(*at, "]})") && --depth == 0)
            return end_of_word(at, end);
    }
    return end;
}

static const char *end_of_line(const char *at, const char *end)
{
    while (at < end && *at != '\n')
        at++;
    return at;
}

static bool ends_with(const char *name, size_t size, const char *tail)
{
    size_t tail_size = strlen(tail);
    return size >= tail_size && strncasecmp(name + size - tail_size, tail, tail_size) == 0;
}

/* Appends the mask for the value at `at`, with its quotes; returns where the text goes on. */
static const char *mask_value(kji_strbuf *to, const char *at, const char *end, bool whole_line)
{
    const char *text = skip_quote(at, end);
    if (text) {
        kji_strbuf_add(to, at, (size_t)(text - at));
        kji_strbuf_puts(to, KJI_MASK);
        return end_of_quoted(text, end, (size_t)(text - at) - 1);
    }
    kji_strbuf_puts(to, KJI_MASK);
    if (whole_line) /* Authorization: Bearer abc */
        return end_of_line(at, end);
    return at < end && is_any_of(*at, "[{(") ? end_of_brackets(at, end) : end_of_word(at, end);
}

/* user:password@host behind scheme:// : what is after the colon is masked. */
static const char *mask_url(kji_strbuf *to, const char *user, const char *end)
{
    const char *stop = user;
    while (stop < end && *stop && !is_any_of(*stop, "/?# \t\r\n\"'\\"))
        stop++;
    const char *host = memrchr(user, '@', (size_t)(stop - user));
    const char *colon = host ? memchr(user, ':', (size_t)(host - user)) : NULL;
    if (!colon)
        return user;
    kji_strbuf_add(to, user, (size_t)(colon + 1 - user));
    kji_strbuf_puts(to, KJI_MASK);
    return host;
}

/* Whether "name: value" is more than prose about the name ("the key: a smaller lr"): what has
 * quotes, what touches the colon, what is alone on the rest of its line. */
static bool is_value(const char *sign, const char *value, const char *end)
{
    if (value == sign || skip_quote(value, end))
        return true;
    const char *rest = skip_blanks(end_of_word(value, end), end_of_line(value, end));
    return rest == end_of_line(value, end);
}

/*
 * What is behind the secret name that ends at `at`: where its value begins, or NULL when the name
 * only happens to be mentioned. `is_flag`: the value may stand behind a blank.
 */
static const char *find_value(const char *at, const char *end, bool is_flag)
{
    const char *quote = skip_quote(at, end);
    const char *sign = quote ? quote : at;
    sign = skip_blanks(sign < end && *sign == ']' ? sign + 1 : sign, end);
    if (sign < end && (*sign == '=' || *sign == ':')) {
        bool is_sure = quote || *sign == '=';
        while (sign < end && (*sign == '=' || *sign == ':' || *sign == '>'))
            is_sure |= *sign++ != ':';
        const char *value = skip_blanks(sign, end);
        if (value == end || (value > sign && *value == '-')) /* empty, and then a flag */
            return NULL;
        return is_sure || is_flag || is_value(sign, value, end) ? value : NULL;
    }
    return is_flag && sign > at && sign < end && *sign != '-' ? sign : NULL;
}

/* One name with what belongs to it. Returns where the text goes on. */
static const char *mask_name(kji_strbuf *to, const char *at, const char *end, bool is_flag)
{
    const char *name = at;
    while (at < end && is_name_char(*at))
        at++;
    size_t size = (size_t)(at - name);
    if (end - at >= 3 && memcmp(at, "://", 3) == 0) {
        kji_strbuf_add(to, name, size + 3);
        return mask_url(to, at + 3, end);
    }
    bool is_header = ends_with(name, size, "authorization");
    is_flag = is_flag || is_header || ends_with(name, size, "bearer");
    const char *value = kji_names_secret(name, size) ? find_value(at, end, is_flag) : NULL;
    if (!value) {
        kji_strbuf_add(to, name, size);
        return at;
    }
    kji_strbuf_add(to, name, (size_t)(value - name));
    return mask_value(to, value, end, is_header);
}

static void add_masked(kji_strbuf *to, const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    while (at < end) {
        const char *name = at;
        while (name < end && !isalnum((unsigned char)*name) && *name != '_')
            name++;
        bool is_flag = name > at && name[-1] == '-';
        kji_strbuf_add(to, at, (size_t)(name - at));
        at = name < end ? mask_name(to, name, end, is_flag) : end;
    }
}

char *kji_mask_text(const char *text, size_t size)
{
    kji_strbuf masked = KJI_STRBUF_INIT;
    add_masked(&masked, text, size);
    return kji_strbuf_take(&masked);
}

static struct json_object *new_mask(void)
{
    return json_object_new_string(KJI_MASK);
}

/* Strings without any of these signs hold nothing to mask. */
static bool may_hold_secret(const char *text)
{
    return strpbrk(text, "=:-") || strcasestr(text, "bearer");
}

static struct json_object *mask_string(struct json_object *json)
{
    const char *text = json_object_get_string(json);
    size_t size = (size_t)json_object_get_string_len(json);
    if (strlen(text) == size && !may_hold_secret(text))
        return json_object_get(json);
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf masked = KJI_STRBUF_INIT;
    add_masked(&masked, text, size);
    if (masked.failed)
        return new_mask();
    if (masked.size == size && memcmp(masked.text, text, size) == 0)
        return json_object_get(json);
    return json_object_new_string_len(masked.text, (int)masked.size);
}

static struct json_object *mask_array(const char *name, struct json_object *list)
{
    size_t n = json_object_array_length(list);
    bool same = true;
    struct json_object *copy = json_object_new_array_ext(n ? (int)n : 1);
    for (size_t k = 0; copy && k < n; k++) {
        struct json_object *item = json_object_array_get_idx(list, k);
        struct json_object *masked = kji_mask_json(name, item);
        same = same && masked == item;
        json_object_array_add(copy, masked);
    }
    if (!same)
        return copy;
    json_object_put(copy);
    return copy ? json_object_get(list) : new_mask();
}

static struct json_object *mask_object(struct json_object *object)
{
    bool same = true;
    struct json_object *copy = json_object_new_object();
    json_object_object_foreach(object, key, value)
    {
        struct json_object *masked = kji_mask_json(key, value);
        same = same && masked == value;
        json_object_object_add(copy, key, masked);
    }
    if (!same)
        return copy;
    json_object_put(copy);
    return json_object_get(object);
}

struct json_object *kji_mask_json(const char *name, struct json_object *json)
{
    enum json_type type = json_object_get_type(json);
    if (type == json_type_null || type == json_type_boolean)
        return json_object_get(json);
    if (name && kji_names_secret(name, strlen(name)))
        return new_mask();
    if (type == json_type_string)
        return mask_string(json);
    if (type == json_type_array)
        return mask_array(NULL, json);
    return type == json_type_object ? mask_object(json) : json_object_get(json);
}

/* One word of a command line. *next_is_secret: the one before was a flag like --token. */
static struct json_object *mask_word(struct json_object *word, bool *next_is_secret)
{
    const char *text = json_object_get_string(word);
    bool hide = *next_is_secret && *text != '-';
    const char *equals = strchr(text, '=');
    size_t name_size = equals ? (size_t)(equals - text) : strlen(text);
    bool is_secret = kji_names_secret(text, name_size);
    *next_is_secret = !equals && *text == '-' && is_secret;
    if (hide)
        return new_mask();
    if (!equals || !is_secret || memchr(text, '/', name_size) || memchr(text, ' ', name_size))
        return mask_string(word);
    KJI_CLEANUP(kji_freep) char *masked = kji_format("%.*s=%s", (int)name_size, text, KJI_MASK);
    return masked ? json_object_new_string(masked) : new_mask();
}

struct json_object *kji_mask_words(struct json_object *words)
{
    size_t n = json_object_array_length(words);
    bool same = true, next_is_secret = false;
    struct json_object *copy = json_object_new_array();
    for (size_t k = 0; k < n; k++) {
        struct json_object *word = json_object_array_get_idx(words, k);
        struct json_object *masked = mask_word(word, &next_is_secret);
        same = same && masked == word;
        json_object_array_add(copy, masked);
    }
    if (!same)
        return copy;
    json_object_put(copy);
    return json_object_get(words);
}

/* `text` with the mask wherever it has `value`. */
static char *without(const char *text, const char *value)
{
    kji_strbuf result = KJI_STRBUF_INIT;
    for (const char *found; (found = strstr(text, value)); text = found + strlen(value)) {
        kji_strbuf_add(&result, text, (size_t)(found - text));
        kji_strbuf_puts(&result, KJI_MASK);
    }
    kji_strbuf_puts(&result, text);
    return kji_strbuf_take(&result);
}

char *kji_mask_quoted(const char *text, struct json_object *args)
{
    char *masked = strdup(text);
    json_object_object_foreach(args, name, json)
    {
        if (!masked || !json_object_is_type(json, json_type_string) ||
            json_object_get_string_len(json) < QUOTED_MIN || !kji_names_secret(name, strlen(name)))
            continue;
        KJI_CLEANUP(kji_freep) char *before = masked;
        masked = without(before, json_object_get_string(json));
    }
    return masked;
}

bool kji_is_mask(struct json_object *json)
{
    return json_object_is_type(json, json_type_string) &&
           strcmp(json_object_get_string(json), KJI_MASK) == 0;
}
