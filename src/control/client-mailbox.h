/* SPDX-License-Identifier: Apache-2.0 */
/* A mailbox as a way to a run: client-wire.h's lines as files (docs/protocol.md, section 7). */
#ifndef KJI_CLIENT_MAILBOX_H
#define KJI_CLIENT_MAILBOX_H

#include "client-wire.h"

/* Whether the run's folder `dir` has no socket and a mailbox: it is one, or has one in it. */
bool kji_mailbox_is_way_to(const char *dir);

/*
 * Makes the mailbox of `dir` the transport of `client`, which is new. Nothing is asked: run.json
 * has what hello would say, and `alive` that somebody is there. KJ_ENORUN at once when nobody is,
 * KJ_EPROTO.
 */
int kji_mailbox_connect(kj_client *client, const char *dir, int protocol, kj_error *err);

/* What out/NAME.json holds as the lines that a socket would bring: the answer, when `before`, which
 * was there before it, is NULL; else a record that is another, as an event. false when it is none
 * of these. */
bool kji_mail_add_lines(kji_strbuf *to, struct json_object *before, struct json_object *now);

#endif
