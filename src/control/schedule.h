/* SPDX-License-Identifier: Apache-2.0 */
/* When a command is to be carried out. "At or after", never equality. */
#ifndef KJI_SCHEDULE_H
#define KJI_SCHEDULE_H

#include <kajitori/error.h>

#include <stdbool.h>

enum kji_at_kind {
    KJI_AT_NOW,          /* the next safe point */
    KJI_AT_STEP,         /* before the first step >= n */
    KJI_AT_EPOCH,        /* the end of the first epoch >= n */
    KJI_AT_CURRENT_EPOCH /* the end of the epoch that runs; n is put in when it is accepted */
};

typedef struct kji_at {
    int kind; /* enum kji_at_kind */
    int64_t n;
} kji_at;

enum { KJI_AT_TEXT = 32, KJI_DURATION_DAYS_MAX = 365 };

/* "now", "step:N", "epoch", "epoch:N". KJ_EREJECTED. */
int kji_at_parse(const char *text, kji_at *ret_at, kj_error *err);
const char *kji_at_text(const kji_at *at, char text[KJI_AT_TEXT]);

/* "90", "90s", "15m", "1.5h", "1d": more than 0, at most a year. KJ_EREJECTED. */
int kji_duration_parse(const char *text, int64_t *ret_ms, kj_error *err);

/* Where the training is when it looks for what is due. */
enum kji_place_kind { KJI_PLACE_POLL, KJI_PLACE_STEP_BEGIN, KJI_PLACE_EPOCH_END };

typedef struct kji_place {
    int kind; /* enum kji_place_kind */
    int64_t n;
} kji_place;

const char *kji_place_name(int kind); /* "poll", "step", "epoch" */

bool kji_at_is_due(const kji_at *at, const kji_place *place);

/* True when `a` surely acts before `b`: false also where that cannot be known (a step and an
 * epoch). */
bool kji_at_is_earlier(const kji_at *a, const kji_at *b);

#endif
