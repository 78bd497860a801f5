/* SPDX-License-Identifier: Apache-2.0 */
/* One command and its life (docs/protocol.md, section 5). The run's lock is held around everything
 * here. */
#ifndef KJI_COMMAND_H
#define KJI_COMMAND_H

#include "flood.h"
#include "schedule.h"
#include "text-line.h"

#include <kajitori/value.h>

#include <json-c/json.h>
#include <sys/types.h>

enum kji_state {
    KJI_ACCEPTED,
    KJI_SCHEDULED,
    KJI_REJECTED,
    KJI_APPLIED,
    KJI_DONE,
    KJI_FAILED,
    KJI_EXPIRED
};

const char *kji_state_name(int state);

enum {
    KJI_BY_MAX = 128,
    KJI_REASON_MAX = 1024,
    KJI_COMMAND_ID_MAX = 128,
    KJI_LINE_SHOWN = 200 /* bytes of a line that could not be read */
};

/* Where a command came from. */
typedef struct kji_sender {
    const char
        *door;   /* "ctl", "fifo", "socket", "monitor", "mailbox", "signal", "schedule", "run" */
    int64_t uid; /* -1: not known */
    int64_t pid;
    bool only_looks;  /* its questions arm nothing at the training */
    kji_flood *flood; /* of a FIFO; NULL where the sender waits for each answer, as at the socket */
} kji_sender;

typedef struct kji_command {
    struct kji_command *next; /* in the run's queue */
    int64_t seq;
    int state; /* enum kji_state */
    char verb_name[KJI_NAME_MAX + 1];
    const struct kji_verb *verb; /* NULL while, and when, there is none of this name */
    struct json_object *words;   /* array of strings, NULL for none */
    struct json_object *args;    /* object; values checked and of their types once accepted */
    kji_at at;
    char *by;
    char *reason;
    char *command_id;
    bool dry_run;
    bool save; /* a checkpoint is saved first */
    kji_sender sender;
    int64_t recovered; /* number of the command of a run before that it repeats; 0: of none */
    int64_t step;      /* where it was carried out */
    int64_t epoch;
    bool has_place;    /* step and epoch are set */
    char *phase;       /* what the program was doing then, NULL when it has not said */
    const char *place; /* kind of the safe point at which it was carried out; NULL: at none */
    struct json_object *old_values;
    struct json_object *new_values;
    struct json_object *result;
    bool hide_result; /* asked by the sender only, not for the journal */
    char *error;
    char *line;  /* the beginning of a line that could not be read */
    size_t size; /* bytes of its newest record */
} kji_command;

/*
 * What a sender wrote, brought into one form from both languages: {"verb", "words", "args", "at",
 * "by", "reason", "command_id", "dry_run", "save"}, each checked by itself but not yet against the
 * verbs. KJ_EREJECTED with the reason; *ret_command is filled even then, as far as it was
 * understood. KJ_EMEM leaves it NULL.
 */
int kji_command_from_text(const kji_text_line *line, kji_command **ret_command, kj_error *err);
int kji_command_from_json(struct json_object *params, kji_command **ret_command, kj_error *err);

/* A key that means the same for every verb. */
bool kji_is_reserved_key(const char *name);

/* An empty one, for a line that could not be read. */
kji_command *kji_command_new(void);
void kji_command_free(kji_command *command);

/* Keeps the beginning of a line that could not be read, secrets masked. */
void kji_command_keep_line(kji_command *command, const char *text, size_t size);

/* An argument; false when it was not given. A string is borrowed. */
bool kji_command_get_arg(const kji_command *command, const char *name, kj_value *ret_value);

/* Its record, without "n" and "time", with secrets masked. */
struct json_object *kji_command_record(const kji_command *command);

/* Whether more will be told about the command of a record; its number in *ret_seq then. */
bool kji_record_goes_on(struct json_object *record, int64_t *ret_seq);

#endif
