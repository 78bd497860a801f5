/* SPDX-License-Identifier: Apache-2.0 */
/* A run with a few parameters and verbs, in a folder of its own, for the tests of this layer. The
 * test is the training thread, and talks to the run through its doors. */
#ifndef KJI_RUN_FIXTURE_H
#define KJI_RUN_FIXTURE_H

#include "run-impl.h"

#include "kji-test.h"

typedef struct fixture {
    char root[64];
    char runtime[80];
    char state[80];
    char fifo[80];
    kj_run *run;
    double lr;
    int64_t units;
    char mode[64];
    bool fail_units; /* the setter of units fails */
    int n_ticks;
    int64_t tick_sum;
    pthread_t training; /* the only thread in which callbacks may run */
    char log[4000];     /* warnings, one a line */
    int n_warnings;
} fixture;

extern fixture fix;

/* cmocka set-up and tear-down: a folder, no run yet; warnings are kept. */
int fix_set_up(void **state);
int fix_tear_down(void **state);

/* Opens fix.run; `fifo` NULL: no FIFO of the user's. */
void fix_open(const char *fifo, uint32_t flags);
/* Registers what the tests set and call. */
void fix_add_all(kj_run *run);
kj_run *fix_open_other(const char *fifo, uint32_t flags, const char *run_id);
void fix_close(void);

/* Opens a FIFO for writing, writes, closes. */
void fix_write(const char *fifo_path, const char *text);
const char *fix_ctl(void);
/* Waits until the run has numbered `seq` commands. */
void fix_wait_seq(int64_t seq);

int fix_connect(void);
void fix_connect_as(int fd);
/* The same to another socket of the run's folder. */
void fix_connect_to(int fd, const char *name);
/* The next line, parsed. Fails the test after 20 s. NULL at the end of the stream. */
struct json_object *fix_receive(int fd);
void fix_send(int fd, const char *line);
/* Sends a request with `params` (JSON text) and returns its "result" or "error"; notifications in
 * between are dropped. */
struct json_object *fix_call(int fd, const char *method, const char *params);
/* Sends a line as a command; its record, or the error. */
struct json_object *fix_command(int fd, const char *line);
void fix_expect_state(int fd, const char *line, const char *state);
void fix_expect_rejected(int fd, const char *line, const char *part_of_message);
/* The next notification of `event` in `state` ("" = any). */
struct json_object *fix_wait_event(int fd, const char *event, const char *state);

/* The journal's lines. */
struct json_object *fix_journal(void);
/* The last line with this seq. */
struct json_object *fix_last_record(struct json_object *journal, int64_t seq);
struct json_object *fix_find_event(struct json_object *journal, const char *event);

const char *fix_text(struct json_object *object, const char *key);
int64_t fix_int(struct json_object *object, const char *key);

#endif
