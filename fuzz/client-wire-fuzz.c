/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says to a client, whoever the run is: each line is an answer, an event that is kept,
 * or the end of the connection with a reason. */
#include "client-wire.h"
#include "json.h"

#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LAST_ID = 2, SIZE_MAX_HERE = 65536 /* fits into a socket's buffer */ };

static kj_client *new_client(const uint8_t *bytes, size_t size)
{
    int pair[2];
    kj_client *client = calloc(1, sizeof *client);
    check(client && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    check(send(pair[0], bytes, size, MSG_DONTWAIT) == (ssize_t)size);
    close(pair[0]);
    client->transport = &kji_transport_socket;
    client->fd = pair[1];
    client->in = (kji_strbuf)KJI_STRBUF_INIT;
    client->last_id = LAST_ID;
    return client;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0 || size > SIZE_MAX_HERE)
        return 0;
    kj_client *client = new_client(bytes, size);
    int r;
    do {
        kj_error err = KJ_ERROR_INIT;
        struct json_object *message = NULL, *answer = NULL;
        r = kji_wire_read(client, INT64_MAX, &message, &err);
        check(r == 1 || (r < 0 && *err.message));
        check((r == 1) == (message != NULL));
        if (r == 1)
            r = kji_wire_sort(client, message, LAST_ID, &answer, &err);
        int64_t id;
        check(!answer || (r == 1 && kji_json_int(answer, "id", &id) && id == LAST_ID));
        json_object_put(answer);
        check(kji_wire_count_events(client) <= KJI_WIRE_EVENT_LIMIT);
        check((r == KJ_EPROTO) == (kji_wire_check(client, NULL) < 0));
    } while (r >= 0);
    check(r == KJ_EPROTO || r == KJ_EENDED);
    kj_client_close(client);
    return 0;
}
