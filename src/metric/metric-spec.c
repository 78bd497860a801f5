/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.h"
#include "mem.h"
#include "source-kind.h"
#include "strbuf.h"

#include <string.h>

const kji_source_kind *const kji_source_kinds[] = {
#define KJI_SOURCE_ROW(name) &kji_source_##name,
    KJI_SOURCE_MAP(KJI_SOURCE_ROW)
#undef KJI_SOURCE_ROW
        NULL,
};

const char *kj_events_source_name(uint32_t index)
{
    return index < sizeof kji_source_kinds / sizeof *kji_source_kinds - 1
               ? kji_source_kinds[index]->name
               : NULL;
}

static int unknown_kind(const char *text, size_t size, kj_error *err)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf known = KJI_STRBUF_INIT;
    for (size_t k = 0; kji_source_kinds[k]; k++)
        kji_strbuf_printf(&known, "%s%s", k ? ", " : "", kji_source_kinds[k]->syntax);
    return kji_fail(err, KJ_EARG, "unknown metric source \"%.*s\"; known: %s",
                    (int)(size < 40 ? size : 40), text, known.text);
}

int kji_spec_parse(const char *text, kji_spec *ret_spec, kj_error *err)
{
    size_t size = strcspn(text, ":");
    const kji_source_kind *kind = NULL;
    for (size_t k = 0; kji_source_kinds[k] && !kind; k++)
        if (strlen(kji_source_kinds[k]->name) == size &&
            memcmp(kji_source_kinds[k]->name, text, size) == 0)
            kind = kji_source_kinds[k];
    if (!kind)
        return unknown_kind(text, size, err);
    if (text[size] == 0)
        return kji_fail(err, KJ_EARG, "metric \"%s\" is incomplete; expected %s", text,
                        kind->syntax);
    kji_spec spec = {.kind = kind};
    int r = kind->split(text + size + 1, &spec.where, &spec.tag, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "metric \"%.200s\"", text);
    *ret_spec = spec;
    return 0;
}

int kji_spec_split_where(const char *text, const char *what, const char *syntax, char **ret_where,
                         const char **ret_rest, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *where = malloc(strlen(text) + 1);
    if (!where)
        return kji_fail_memory(err);
    size_t size = 0;
    for (; *text && *text != ':'; text++) {
        if (text[0] == '\\' && (text[1] == ':' || text[1] == '\\'))
            text++;
        where[size++] = *text;
    }
    where[size] = 0;
    if (size == 0)
        return kji_fail(err, KJ_EARG, "no %s given; expected %s", what, syntax);
    *ret_where = kji_take(&where);
    *ret_rest = *text ? text + 1 : NULL;
    return 0;
}

int kji_spec_split_tag(const char *text, const char *what, const char *syntax, const char *field,
                       char **ret_where, char **ret_tag, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *where = NULL;
    const char *tag;
    int r = kji_spec_split_where(text, what, syntax, &where, &tag, err);
    if (r < 0)
        return r;
    if (tag && !*tag)
        return kji_fail(err, KJ_EARG,
                        "empty %s; leave the last colon out, or write * for all of them", field);
    char *copy = NULL;
    if (tag && strcmp(tag, "*") != 0 && !(copy = strdup(tag)))
        return kji_fail_memory(err);
    *ret_tag = copy;
    *ret_where = kji_take(&where);
    return 0;
}

void kji_spec_trim_slashes(char *where)
{
    size_t size = strlen(where);
    while (size > 1 && where[size - 1] == '/')
        where[--size] = 0;
}

void kji_spec_done(kji_spec *spec)
{
    free(spec->where);
    free(spec->tag);
    *spec = (kji_spec){0};
}
