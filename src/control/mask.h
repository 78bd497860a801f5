/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets do not go into what is kept or shown: journal, run.json, events, answers. The program
 * itself gets the real values. Which names are secret, and where a text holds one, is decided here
 * and nowhere else (docs/protocol.md, section 5).
 */
#ifndef KJI_MASK_H
#define KJI_MASK_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

#define KJI_MASK "***"

/*
 * Whether what has this name (a parameter, a key, a flag, a variable) is secret. A name is read as
 * words, which end at signs, digits and where capitals begin:
 * - secret, password, passwd, passphrase, passcode, credential in any of them, and pwd, auth,
 *   authorization, bearer, cookie, creds as one of them;
 * - key or token as the last: api_key and hfToken are, key_dim, max_tokens, monkey and keys are
 *   not. The tokens of a vocabulary (pad_token) and public keys are not either;
 * - keys, tokens and pass behind a word like api, access, db: api_keys, dbpass.
 */
bool kji_names_secret(const char *name, size_t size);

/*
 * `text` with the mask for every value of a secret name (name=value, "name": value, --name
 * value; name: value where that is no prose) and for the password of every URL. For free; NULL when
 * memory is gone.
 */
char *kji_mask_text(const char *text, size_t size);

/*
 * The same value, or a copy of it in which the secrets are masked; a new reference either way. What
 * has a secret name is masked whatever it is, but for booleans and null. `name` is the value's own,
 * or NULL. The mask alone when memory is gone.
 */
struct json_object *kji_mask_json(const char *name, struct json_object *json);

/* The same for a list of words, such as a command line, where a flag names the word behind it. */
struct json_object *kji_mask_words(struct json_object *words);

/* `text` with the mask for every string value of a secret name among `args` (an object) that it
 * quotes. For free; NULL when memory is gone. */
char *kji_mask_quoted(const char *text, struct json_object *args);

/* Whether `json` is the mask itself: a value that was not written down, and is no value. */
bool kji_is_mask(struct json_object *json);

#endif
