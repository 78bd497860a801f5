/* SPDX-License-Identifier: Apache-2.0 */
/* The chosen points as rows: those that are there, or as they come. */
#include "events-verb.h"

#include <stdlib.h>

/* So many rows, then the cursor is saved. */
enum { ROWS_AT_ONCE = 65536 };

typedef struct printing {
    bool begun; /* not before the first row, so that an error stands alone */
    bool goes_on;
    uint64_t n_rows;
} printing;

static int print_point(void *userdata, const kj_point *point)
{
    printing *state = userdata;
    if (!state->begun)
        cli_rows_begin(!state->goes_on);
    state->begun = true;
    cli_rows_put(point);
    state->n_rows++;
    return ferror(stdout);
}

static int take_point(void *userdata, const kj_point *point)
{
    printing *state = userdata;
    if (point->flags & KJ_POINT_RESTART ||
        !cli_events_wants(point->run, point->tag, point->tag_size))
        return 0;
    return print_point(state, point) || state->n_rows % ROWS_AT_ONCE == 0;
}

static int print_new(kj_events *events, printing *state)
{
    kj_error err = KJ_ERROR_INIT;
    int r, status;
    int wait_ms = cli_events_read_input() ? cli_events_wait_ms() : 0;
    bool more;
    do {
        r = kj_events_step(events, wait_ms, take_point, state, &err);
        if (fflush(stdout) != 0 || ferror(stdout))
            return CLI_FAILED; /* main says so */
        more = r > 0 || (r == 0 && cli_events_given.follow && !kj_events_is_finished(events));
        status = cli_events_cursor_save(events, !more);
        if (r == 0 && more && wait_ms == 0) {
            cli_events_note_missing(events);
            wait_ms = cli_events_wait_ms();
        }
    } while (status == CLI_DONE && more);
    return r < 0 ? cli_fail(&err) : status;
}

static int print_rows(kj_events *events, bool goes_on)
{
    printing state = {.goes_on = goes_on};
    bool in_steps = cli_events_given.follow || cli_events_given.cursor;
    int status =
        in_steps ? print_new(events, &state) : cli_events_each_point(events, print_point, &state);
    int found = CLI_DONE;
    if (status == CLI_DONE && !cli_events_given.cursor)
        found = cli_events_check_found(events);
    if (status == CLI_DONE && found == CLI_DONE && !state.begun)
        cli_rows_begin(!goes_on);
    if (state.begun || found == CLI_DONE)
        cli_rows_end();
    return status != CLI_DONE ? status : found;
}

int cli_events_print_values(void)
{
    kj_events *events;
    char *cursor;
    bool goes_on = false;
    int status = cli_events_cursor_begin(&cursor);
    if (status == CLI_DONE)
        status = cli_events_open(cli_events_given.merge ? KJ_EVENTS_KEEP : 0, cursor, &events);
    free(cursor);
    if (status != CLI_DONE)
        return status;
    status = cli_events_cursor_cut(&goes_on);
    if (status == CLI_DONE) /* so that the length of the output is known */
        status = cli_events_cursor_save(events, true);
    if (status == CLI_DONE)
        status = print_rows(events, goes_on);
    cli_events_note_damage(events);
    kj_events_close(events);
    return status;
}
