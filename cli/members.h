/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON that came from a run, and may be of any type, or no object at all. Borrowed. */
#ifndef CLI_MEMBERS_H
#define CLI_MEMBERS_H

#include <json-c/json.h>
#include <stdint.h>

/* NULL when there is none. */
struct json_object *cli_member_of(struct json_object *object, const char *key);
/* The same of one that is a text. */
const char *cli_text_of(struct json_object *object, const char *key);
/* `otherwise` when there is none that is a whole number. */
int64_t cli_int_of(struct json_object *object, const char *key, int64_t otherwise);

#endif
