/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs of the command share. A verb is one cli_command in one cmd-NAME.c, entered in the
 * one table of main.c; help texts, man pages and completion are made from that table. One verb runs
 * in a process, so options may lie in static variables of its file.
 */
#ifndef CLI_H
#define CLI_H

#include <kajitori.h>

#include <json-c/json.h>
#include <popt.h>
#include <stdbool.h>

#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* Exit statuses; docs/cli.md. */
enum cli_status {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NO_RUN = 3, /* no such run or study */
    CLI_TIMEOUT = 4,
    CLI_REJECTED = 5,
    CLI_ENDED = 6 /* the run ended first */
};

/* Bits, so that a verb can say which ones it has. */
enum cli_format {
    CLI_TABLE = 1,
    CLI_JSON = 2,
    CLI_CSV = 4,
    CLI_YAML = 8,
    CLI_VALUE = 16,
    CLI_JSONL = 32, /* one JSON object per line */
    CLI_NPZ = 64    /* an archive of NumPy arrays */
};

enum { CLI_FORMAT_LIST = 80 };

/* "table, json", ... of some of enum cli_format. Returns `text`. */
char *cli_format_list(unsigned formats, char text[CLI_FORMAT_LIST]);

typedef struct cli_example {
    const char *command; /* NULL ends the list */
    const char *what;    /* what it does, one phrase */
} cli_example;

enum cli_command_flag {
    CLI_TAKES_RUN = 1,     /* -r/--run */
    CLI_TAKES_RUNTIME = 2, /* --runtime-dir */
    CLI_TAKES_STATE = 4,   /* --state-dir; the run may have ended */
    CLI_TAKES_GROUP = 8,   /* --study, --match, --all */
    CLI_STAYS_HERE = 16    /* no --host */
};

typedef struct cli_command {
    const char *name;
    const char *usage;                /* what follows the name: "[RUN] [NAME...]" */
    const char *summary;              /* one phrase, lower case, no full stop */
    const char *description;          /* paragraphs, an empty line between two */
    const struct poptOption *options; /* its own, ended by POPT_TABLEEND; may be NULL */
    unsigned formats;                 /* enum cli_format; 0 = no --format */
    unsigned flags;                   /* enum cli_command_flag */
    const cli_example *examples;      /* may be NULL */
    const char *see_also;             /* names of other verbs, blanks between */
    /* `words` are the arguments that are no options, ended by NULL. Returns enum cli_status. */
    int (*run)(int n_words, const char *const *words);
} cli_command;

/* One per cmd-NAME.c. */
extern const cli_command cli_abort, cli_checkpoint, cli_emit, cli_evaluate, cli_events, cli_extend,
    cli_gc, cli_get, cli_help, cli_log, cli_note_verb, cli_params, cli_pause, cli_ping, cli_prune,
    cli_recover, cli_ps, cli_resume, cli_send, cli_set, cli_status, cli_stop, cli_tune, cli_version,
    cli_watch;

/* The table, ended by NULL. */
extern const cli_command *const cli_commands[];
const cli_command *cli_find_command(const char *name);

/* Options that every verb has. */
typedef struct cli_settings {
    int format; /* enum cli_format */
    int quiet;  /* no notes */
    int verbose;
    const char *run;         /* --run, NULL when not given */
    const char *runtime_dir; /* NULL: by environment */
    const char *state_dir;
    const char *host;   /* --host, NULL: here */
    const char *study;  /* --study, NULL when not given */
    const char **match; /* --match, ended by NULL; NULL when not given */
    int all;            /* --all */
} cli_settings;
extern cli_settings cli;

void cli_error(const char *format, ...) CLI_PRINTF(1, 2);
/* `pointer`; NULL ends the process: there is no memory. */
void *cli_check_memory(void *pointer);
void cli_note(const char *format, ...) CLI_PRINTF(1, 2); /* not with --quiet */

/* An error of the command line: the line, then where help is. Returns CLI_USAGE. */
int cli_usage(const char *format, ...) CLI_PRINTF(1, 2);

/* Prints err->message and returns the exit status for err->code. */
int cli_fail(const kj_error *err);
int cli_status_of(int code);

/*
 * Finds the live run named by `name` (NULL: --run, else the only live one). CLI_DONE with *ret_list
 * (for kj_run_list_free) and *ret_info (borrowed from it), else the status, with the error printed.
 */
int cli_find_run(const char *name, kj_run_list **ret_list, const kj_run_info **ret_info);

enum { CLI_ANSWER_MS = 5000 }; /* a run whose process is not stopped answers much faster */

/* The same, and a connection to it, made within timeout_ms. *ret_id is for free. */
int cli_open_run(const char *name, int timeout_ms, kj_client **ret_client, char **ret_id);

/* Says once, as a note, that this run's library has another version than this command. Any thread.
 */
void cli_compare_versions(const kj_client *client, const char *id);

/* Whether `word` begins the id of a live run. */
bool cli_names_run(const char *word);

/* Takes the first of the words as RUN unless --run or a group was given: moves *words on and
 * returns it, else NULL. */
const char *cli_take_run(int *n_words, const char *const **words);

/* The same for verbs whose other words are free: only when more words follow, and it begins the id
 * of a live run. */
const char *cli_take_live_run(int *n_words, const char *const **words);

/* One of the words is too many, or names no verb: usage error. */
int cli_too_many(const char *word);
int cli_unknown_verb(const char *name);

/* Edit distance of two words; 8 when one is longer than 32 bytes. */
int cli_distance(const char *a, const char *b);
/* The option that `text` ("--name", "--name=value") may mean, without its dashes, or NULL. */
const char *cli_nearest_option(const cli_command *command, const char *text);

/* A decimal number of seconds >= 0, as milliseconds in *ret_ms; false when it is none. */
bool cli_parse_seconds(const char *text, int *ret_ms);

void cli_print_help(const cli_command *command);
void cli_print_man(const cli_command *command); /* NULL: the page of kajitori itself */
/* The options of a verb as "--name" words, one per line. */
void cli_print_words(const cli_command *command);

#endif
