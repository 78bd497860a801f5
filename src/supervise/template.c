/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One scanner for both calls: checking is expanding into nowhere.
 */
#include "template.h"

#include "errors.h"
#include "mem.h"
#include "strbuf.h"

#include <string.h>

static int refuse_name(const char *text, const char *name, size_t size, const kji_binding *bindings,
                       size_t n_bindings, kj_error *err)
{
    kji_strbuf known = KJI_STRBUF_INIT;
    for (size_t k = 0; k < n_bindings; k++)
        kji_strbuf_printf(&known, "%s{%s}", k ? ", " : "", bindings[k].name);
    int r = kji_fail(err, KJ_EARG,
                     "unknown name {%.*s} in \"%s\"; known: %s; {{ and }} stand for braces",
                     (int)(size < 64 ? size : 64), name, text, known.text);
    kji_strbuf_done(&known);
    return r;
}

static const kji_binding *find(const char *name, size_t size, const kji_binding *bindings,
                               size_t n_bindings)
{
    for (size_t k = 0; k < n_bindings; k++)
        if (strlen(bindings[k].name) == size && memcmp(bindings[k].name, name, size) == 0)
            return &bindings[k];
    return NULL;
}

static int scan(const char *text, const kji_binding *bindings, size_t n_bindings, bool *used,
                kji_strbuf *out, kj_error *err)
{
    for (const char *at = text; *at;) {
        size_t plain = strcspn(at, "{}");
        if (out)
            kji_strbuf_add(out, at, plain);
        at += plain;
        if (*at == 0)
            break;
        if (at[1] == *at) {
            if (out)
                kji_strbuf_putc(out, *at);
            at += 2;
            continue;
        }
        size_t size = *at == '{' ? strcspn(at + 1, "{}") : 0;
        if (*at == '}' || at[1 + size] != '}')
            return kji_fail(err, KJ_EARG, "single \"%c\" at byte %td of \"%s\"; write %c%c for one",
                            *at, at - text, text, *at, *at);
        const kji_binding *binding = find(at + 1, size, bindings, n_bindings);
        if (!binding)
            return refuse_name(text, at + 1, size, bindings, n_bindings, err);
        if (used)
            used[binding - bindings] = true;
        if (out)
            kji_strbuf_puts(out, binding->value);
        at += size + 2;
    }
    return 0;
}

int kji_template_check(const char *text, const kji_binding *bindings, size_t n_bindings, bool *used,
                       kj_error *err)
{
    return scan(text, bindings, n_bindings, used, NULL, err);
}

int kji_template_expand(const char *text, const kji_binding *bindings, size_t n_bindings,
                        char **ret_text, kj_error *err)
{
    kji_strbuf out = KJI_STRBUF_INIT;
    int r = scan(text, bindings, n_bindings, NULL, &out, err);
    if (r < 0) {
        kji_strbuf_done(&out);
        return r;
    }
    char *expanded = kji_strbuf_take(&out);
    if (!expanded)
        return kji_fail_memory(err);
    *ret_text = expanded;
    return 0;
}
