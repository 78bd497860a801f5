/* SPDX-License-Identifier: Apache-2.0 */
#include "members.h"

struct json_object *cli_member_of(struct json_object *object, const char *key)
{
    return json_object_is_type(object, json_type_object) ? json_object_object_get(object, key)
                                                         : NULL;
}

const char *cli_text_of(struct json_object *object, const char *key)
{
    struct json_object *member = cli_member_of(object, key);
    return json_object_is_type(member, json_type_string) ? json_object_get_string(member) : NULL;
}

int64_t cli_int_of(struct json_object *object, const char *key, int64_t otherwise)
{
    struct json_object *member = cli_member_of(object, key);
    return json_object_is_type(member, json_type_int) ? json_object_get_int64(member) : otherwise;
}
