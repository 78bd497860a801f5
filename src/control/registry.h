/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of runs below a runtime or state folder; the public part is in <kajitori/client.h>.
 */
#ifndef KJI_REGISTRY_H
#define KJI_REGISTRY_H

#include <kajitori/error.h>

#include <stddef.h>

/*
 * Picks a run by the beginning of its id. `ids` are n_ids ids, `what` names them in the messages
 * ("live run", "journal"). Returns the index; KJ_ENORUN or KJ_EAMBIGUOUS with the candidates. An
 * empty or NULL prefix fits all.
 */
int kji_pick_run(const char *const *ids, size_t n_ids, const char *prefix, const char *what,
                 kj_error *err);

#endif
