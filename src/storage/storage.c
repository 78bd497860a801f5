/* SPDX-License-Identifier: Apache-2.0 */
#include "storage.h"

#include "errors.h"
#include "mem.h"
#include "strbuf.h"

#include <assert.h>
#include <string.h>

static const kji_storage_ops *const registry[] = {
#define KJI_STORAGE_ROW(name) &kji_storage_##name,
    KJI_STORAGE_MAP(KJI_STORAGE_ROW)
#undef KJI_STORAGE_ROW
};

enum { N_STORAGES = sizeof registry / sizeof *registry };

const kji_storage_ops *kji_storage_at(size_t index)
{
    return index < N_STORAGES ? registry[index] : NULL;
}

int kji_storage_refuse_param(const char *name, kj_error *err)
{
    return kji_fail(err, KJ_EEXIST, "the trial has parameter \"%s\" already", name);
}

int kji_storage_refuse_state(int64_t number, int state, bool was_to_end, kj_error *err)
{
    return kji_fail(
        err, KJ_ESTATE, "trial %lld is %s: %s", (long long)number, kj_trial_state_name(state),
        was_to_end ? "only a RUNNING trial can be ended" : "a finished trial cannot be changed");
}

static int unknown_url(const char *url, kj_error *err)
{
    kji_strbuf list = KJI_STRBUF_INIT;
    for (size_t k = 0; k < N_STORAGES; k++)
        kji_strbuf_printf(&list, "%s%s", k ? " or " : "", registry[k]->help);
    kji_fail(err, KJ_EARG, "\"%s\" is not a storage: it must be %s", url, list.text);
    kji_strbuf_done(&list);
    return KJ_EARG;
}

static const kji_storage_ops *find_scheme(const char *url, const char **ret_where)
{
    const char *colon = strchr(url, ':');
    for (size_t k = 0; colon && k < N_STORAGES; k++) {
        size_t n = strlen(registry[k]->scheme);
        if ((size_t)(colon - url) == n && memcmp(url, registry[k]->scheme, n) == 0) {
            *ret_where = colon + 1;
            return registry[k];
        }
    }
    return NULL;
}

int kj_storage_open(const char *url, kj_storage **ret_storage, kj_error *err)
{
    const char *where = "";
    const kji_storage_ops *ops = url ? find_scheme(url, &where) : NULL;
    if (!ops)
        return unknown_url(url ? url : "", err);
    assert(ops->size == sizeof *ops && ops->open && ops->close && ops->create_study &&
           ops->find_study && ops->list_studies && ops->get_fact && ops->set_fact &&
           ops->add_fact && ops->claim_trial && ops->queue_trial && ops->change_trial &&
           ops->find_param && ops->read_trial && ops->refresh);
    kj_storage *storage = calloc(1, sizeof *storage);
    if (!storage)
        return kji_fail_memory(err);
    storage->ops = ops;
    storage->url = strdup(url);
    storage->self = calloc(1, ops->instance_size);
    int r =
        storage->url && storage->self ? ops->open(storage->self, where, err) : kji_fail_memory(err);
    if (r < 0)
        kj_storage_close(storage);
    else
        *ret_storage = storage;
    return r;
}

void kj_storage_close(kj_storage *storage)
{
    if (!storage)
        return;
    if (storage->self)
        storage->ops->close(storage->self);
    free(storage->self);
    free(storage->url);
    free(storage);
}
