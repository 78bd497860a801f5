/* SPDX-License-Identifier: Apache-2.0 */
/* Times as studies store them: UTC, in microseconds since 1970; as text without a zone. */
#ifndef KJI_TIME_TEXT_H
#define KJI_TIME_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define KJI_TIME_NONE INT64_MIN

/*
 * "YYYY-MM-DD HH:MM:SS[.ffffff]", also with "T" between, and a date alone, as UTC; a zone behind
 * it is left out of account, as Optuna's readers do. false for anything else.
 */
bool kji_time_parse(const char *text, int64_t *ret_us);
enum { KJI_TIME_TEXT = 48 };
/* With six digits, UTC. */
char *kji_time_text(int64_t us, char text[KJI_TIME_TEXT]);
/* Local time, whole seconds; "" for KJI_TIME_NONE. */
char *kji_time_local_text(int64_t us, char text[KJI_TIME_TEXT]);
int64_t kji_time_now(void);

#endif
