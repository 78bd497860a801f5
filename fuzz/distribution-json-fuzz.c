/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text is read as a distribution and as any JSON. What is accepted as a distribution is written
 * and read again: the same kind, whose first value lies in it, and which writes the same text (but
 * for a float range with a step, whose upper end the rounding to a double may move). What the JSON
 * rewriter accepts it leaves alone the second time.
 */
#include "distribution.h"
#include "mem.h"
#include "optuna-json.h"

#include "fuzz.h"

#include <math.h>
#include <string.h>

static void check_distribution(const char *text)
{
    kji_distribution *first = NULL, *second = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = kji_distribution_parse(text, &first, &err);
    check(r == 0 || err.message[0] != 0);
    if (r < 0)
        return;
    KJI_CLEANUP(kji_freep) char *once = kji_distribution_text(first);
    check(once && kji_distribution_parse(once, &second, &err) == 0);
    KJI_CLEANUP(kji_freep) char *twice = kji_distribution_text(second);
    const kj_distribution *d = &first->is;
    check(d->kind == second->is.kind);
    check(d->step != 0 || strcmp(once, twice) == 0);
    double internal = kji_distribution_first(first);
    kj_value value;
    if (!isnan(d->low) && !isnan(d->high) && isfinite(d->low))
        check(kji_distribution_contains(first, internal));
    if (kji_distribution_to_external(first, internal, &value, NULL) == 0 &&
        kji_distribution_to_internal(first, &value, &internal, NULL) == 0)
        (void)kji_distribution_contains(first, internal);
    (void)kji_distribution_is_single(first);
    check(kji_distribution_check_compatible("x", first, second, NULL) == 0);
    kji_distribution_unref(first);
    kji_distribution_unref(second);
}

static int count_member(void *userdata, const char *key, const char *json, kj_error *err)
{
    kji_strbuf again = KJI_STRBUF_INIT;
    (void)key;
    check(kji_optuna_json_rewrite(json, strlen(json), &again, err) == 0);
    check(strcmp(again.text, json) == 0);
    kji_strbuf_done(&again);
    ++*(size_t *)userdata;
    return 0;
}

/* Of what the rewriter accepts, each member is what the rewriter makes of it. */
static void check_members(const char *text)
{
    kji_strbuf whole = KJI_STRBUF_INIT;
    size_t n = 0;
    int good = kji_optuna_json_rewrite(text, strlen(text), &whole, NULL);
    int r = kji_optuna_json_members(text, count_member, &n, NULL);
    check(good == 0 ? r == 0 || r == KJ_EARG : r == good);
    check(r != 0 || (n > 0) == (strcmp(whole.text, "{}") != 0));
    kji_strbuf_done(&whole);
}

static void check_rewriting(const char *text, size_t size)
{
    kji_strbuf once = KJI_STRBUF_INIT, twice = KJI_STRBUF_INIT;
    if (kji_optuna_json_rewrite(text, size, &once, NULL) == 0) {
        for (size_t k = 0; k < once.size; k++)
            check(once.text[k] >= 0x20 && once.text[k] < 0x7f);
        check(kji_optuna_json_rewrite(once.text, once.size, &twice, NULL) == 0);
        check(strcmp(once.text, twice.text) == 0);
    }
    kji_strbuf_done(&once);
    kji_strbuf_done(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    check_rewriting((const char *)data, size);
    check_members(text);
    check_distribution(text);
    free(text);
    return 0;
}
