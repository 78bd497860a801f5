/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox as a door (docs/protocol.md, section 7): requests are files, and so are their
 * answers. All work on files is done without the run's lock.
 */
#ifndef KJI_DOOR_MAILBOX_H
#define KJI_DOOR_MAILBOX_H

#include "feed.h"
#include "mailbox.h"

#include <kajitori/run.h>

enum {
    KJI_MAIL_ANSWERS_MAX = 1000,
    KJI_MAIL_FOLLOWED_MAX = 10000,     /* commands whose further states are written */
    KJI_MAIL_FOLLOWED_BYTES = 16 << 20 /* of the answers that these are in */
};

typedef struct kji_mail_answer {
    char name[KJI_MAIL_NAME_MAX + 1]; /* "": no longer ours */
    struct json_object *json;         /* while commands of it are under way */
    size_t size;                      /* bytes of its text then, as it was first */
    size_t n_followed;
    bool is_changed; /* since it was written */
} kji_mail_answer;

typedef struct kji_mail_follow {
    int64_t seq;
    size_t answer; /* whose command it is */
    size_t item;   /* which of its list */
    bool is_over;  /* it has had its last word */
} kji_mail_follow;

typedef struct kji_mailbox {
    char *dir; /* NULL: there is none */
    int dir_fd;
    int lock_fd;
    int in_fd; /* while it is looked into */
    int out_fd;
    int mail_fd;     /* the file that is being read */
    int watch;       /* inotify's number; -1: it is looked into, every 2 s when idle */
    bool is_begun;   /* clients may see it */
    bool is_gone;    /* it was deleted, and this was said */
    bool has_failed; /* an answer could not be written, and this was said */
    int n_refused;   /* files, so far */
    int64_t look_ms; /* when to look into it, INT64_MAX: when inotify says so */
    int rest_ms;     /* between two looks without a watch */
    int64_t beat_ms; /* when to renew `alive` */
    bool is_reader;  /* counted in the feed: commands are followed */
    kji_feed_cursor cursor;
    int64_t n_noted;         /* of the journal's lines, so many are in the answers */
    bool has_lost;           /* events: their records are read from the journal */
    kji_mail_answer *answer; /* KJI_MAIL_ANSWERS_MAX of them; number n is at n % that */
    size_t n_answers;        /* so far */
    kji_mail_follow *follow;
    size_t n_follow, follow_capacity;
    size_t followed_bytes;
} kji_mailbox;

void kji_mailbox_init(kji_mailbox *box);

/* Makes the folder `dir` with what belongs into it. KJ_EBUSY while another run has it. */
int kji_mailbox_open(kji_mailbox *box, const char *dir, kj_error *err);
/* What lies there is answered as stale, then it is shown. Before the helper runs. */
int kji_mailbox_begin(kji_mailbox *box, kj_run *run, kj_error *err);
/* Without inotify, and where a writer on another host raises no event, it is looked into. */
void kji_mailbox_watch(kji_mailbox *box, int inotify_fd);

/* Helper thread, or when it has ended; the run's lock is not held: */

/* What inotify says of the watch. */
void kji_mailbox_notice(kji_mailbox *box, kj_run *run, uint32_t mask);
/* Does what is due; when to come again, INT64_MAX for never. */
int64_t kji_mailbox_attend(kji_mailbox *box, kj_run *run, int64_t now_ms);
/* Takes everything that lies there. */
void kji_mailbox_take_rest(kji_mailbox *box, kj_run *run);
/* Writes what has become of commands. */
void kji_mailbox_push(kji_mailbox *box, kj_run *run);

/* Pushes, says that the run has ended, and closes. Answers that were not removed by who asked stay;
 * a mailbox without any is removed. */
void kji_mailbox_done(kji_mailbox *box, kj_run *run);
void kji_mailbox_close_fds(kji_mailbox *box);

#endif
