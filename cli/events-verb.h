/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of `kajitori events`. Each result has a file of its own (events-list.c, -values.c,
 * -verify.c, -repair.c, -plot.c); they share what is read, what is chosen of it, where the result
 * goes, and the points in memory.
 */
#ifndef CLI_EVENTS_VERB_H
#define CLI_EVENTS_VERB_H

#include "output.h"

/* The command line of this call. */
typedef struct cli_events_options {
    const char *place; /* DIR, FILE or SPEC as it was given */
    const char **tags; /* names and globs, ended by NULL; NULL: all */
    const char **runs;
    const char *output; /* --output, NULL: standard output */
    const char *cursor; /* --cursor */
    const char *repair; /* --repair */
    const char *merge_name;
    int merge; /* enum kj_merge */
    int follow, finished, log_scale;
} cli_events_options;
extern cli_events_options cli_events_given;

/* events-place.c. Opens what was given, with `flags` (enum kj_events_flag) and, unless NULL, where
 * to go on. Returns enum cli_status, with the error printed. */
int cli_events_open(uint32_t flags, const char *cursor, kj_events **ret_events);
/* Whether it is a SPEC with - for FILE. */
bool cli_events_read_input(void);
/* How long kj_events_step may wait: for ever with --follow, and for the end of standard input. */
int cli_events_wait_ms(void);
/* Reads all that is there now, for what it tells about itself. */
int cli_events_read_all(kj_events *events);
/* Notes on what was skipped, what is waited for, and what ends unfinished. */
void cli_events_note_damage(kj_events *events);

/* events-select.c. Whether --run and --tag choose this; what they matched is remembered. */
bool cli_events_wants(const char *run, const char *tag, uint64_t tag_size);
bool cli_events_wants_run(const char *run);
/* CLI_DONE when there is something to read, and each of them has matched something; else says what
 * there is, the nearest first. */
int cli_events_check_found(kj_events *events);
/* The same as a note, before --follow waits: also of points that an earlier call printed. */
void cli_events_note_missing(kj_events *events);

/* events-output.c. From now on, standard output is --output: a new file that takes its place when
 * it is complete, or, with --follow and --cursor, the file itself, at its end. */
int cli_events_output_begin(void);
/* Ends it: the file is put into its place, or removed when `status` is not CLI_DONE. */
int cli_events_output_end(int status);

/* cursor-file.c. Reads --cursor, and locks it: *ret_cursor is for free, NULL when there is no file
 * yet. */
int cli_events_cursor_begin(char **ret_cursor);
/* What an earlier call printed behind the cursor is cut off standard output. *ret_goes_on: there is
 * output before it. */
int cli_events_cursor_cut(bool *ret_goes_on);
/* Writes it, if it was asked for: before anything is printed, and after standard output was
 * flushed; then, unless `at_once`, only now and again where the output can be cut off. */
int cli_events_cursor_save(const kj_events *events, bool at_once);

/* events-rows.c. Points in the format of --format. */
void cli_rows_begin(bool with_header);
void cli_rows_put(const kj_point *point);
void cli_rows_end(void);
/* As the listings have it: quotes around, what is not ASCII as \uXXXX, a byte that is not UTF-8 as
 * \udcXX, as Python's surrogateescape has it. */
void cli_put_json_bytes(const char *bytes, uint64_t size);

/* events-points.c. Calls fn for each chosen point that is there now, merged as --merge says, until
 * it returns nonzero. Returns enum cli_status. */
int cli_events_each_point(kj_events *events, kj_point_fn fn, void *userdata);

/* Points of one run and tag. */
typedef struct cli_series {
    char *run, *tag;
    uint64_t tag_size;
} cli_series;

/* The chosen points in memory, in the order in which they came. */
typedef struct cli_points {
    uint64_t n, capacity;
    int64_t *step;
    double *wall_time, *value;
    uint32_t *series; /* index into all_series, which is in the order of first points */
    cli_series *all_series;
    uint32_t n_series, series_capacity;
    uint32_t *index_of; /* by the reader's number of a series: index + 1, 0 for none */
    uint32_t index_capacity;
} cli_points;

/* Opens what was given, reads, and closes it. */
int cli_points_read(cli_points *points);
void cli_points_done(cli_points *points);

/* What each kind of result prints; returns enum cli_status. */
int cli_events_print_values(void);
int cli_events_print_npz(void); /* an archive for numpy.load */
int cli_events_print_list(void);
int cli_events_print_runs(void);
int cli_events_print_stats(void);
int cli_events_print_verify(void);
int cli_events_repair(void);
int cli_events_print_plot(void);

#endif
