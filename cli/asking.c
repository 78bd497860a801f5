/* SPDX-License-Identifier: Apache-2.0 */
#include "asking.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 32 };

typedef struct work {
    void (*fn)(void *userdata, size_t k);
    void *userdata;
    size_t n;
    atomic_size_t next;
} work;

static void *do_some(void *userdata)
{
    work *all = userdata;
    for (size_t k; (k = atomic_fetch_add(&all->next, 1)) < all->n;)
        all->fn(all->userdata, k);
    return NULL;
}

void cli_in_parallel(size_t n, void (*fn)(void *userdata, size_t k), void *userdata)
{
    work all = {.fn = fn, .userdata = userdata, .n = n};
    pthread_t threads[THREADS];
    size_t n_threads = 0;
    while (n_threads < THREADS && n_threads + 1 < n &&
           pthread_create(&threads[n_threads], NULL, do_some, &all) == 0)
        n_threads++;
    do_some(&all);
    while (n_threads > 0)
        pthread_join(threads[--n_threads], NULL);
}

int cli_ask_status(const kj_run_info *info, struct json_object **ret_status)
{
    kj_client *client;
    char *json;
    int r = kj_client_open_within(info->dir, CLI_MANY_ANSWER_MS, &client, NULL);
    if (r < 0)
        return r;
    r = kj_client_call(client, "status", NULL, CLI_MANY_ANSWER_MS, &json, NULL);
    if (r >= 0) {
        *ret_status = json_tokener_parse(json);
        kj_free(json);
    }
    kj_client_close(client);
    return r < 0 ? r : 0;
}
