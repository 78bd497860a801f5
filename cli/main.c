/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kajitori VERB [OPTIONS] [WORDS]: finds the verb in the table, reads its options and the common
 * ones with popt, and runs it. Results go to standard output, everything else to standard error.
 */
#include "cli.h"

#include "group.h"
#include "output.h"
#include "remote.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const cli_command *const cli_commands[] = {
    &cli_ps,         &cli_status,   &cli_watch,   &cli_stop,    &cli_abort, &cli_pause, &cli_resume,
    &cli_checkpoint, &cli_evaluate, &cli_extend,  &cli_prune,   &cli_set,   &cli_get,   &cli_params,
    &cli_note_verb,  &cli_ping,     &cli_recover, &cli_send,    &cli_log,   &cli_tune,  &cli_events,
    &cli_emit,       &cli_gc,       &cli_help,    &cli_version, NULL,
};

cli_settings cli = {.format = CLI_TABLE};

const cli_command *cli_find_command(const char *name)
{
    for (size_t k = 0; cli_commands[k]; k++)
        if (strcmp(cli_commands[k]->name, name) == 0)
            return cli_commands[k];
    return NULL;
}

static void complain(const char *prefix, const char *format, va_list args)
{
    char message[1200];
    vsnprintf(message, sizeof message, format, args);
    char *clean = cli_clean(message, strlen(message));
    fflush(stdout);
    fprintf(stderr, "kajitori: %s%s\n", prefix, clean);
    free(clean);
}

void cli_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain("", format, args);
    va_end(args);
}

void *cli_check_memory(void *pointer)
{
    if (!pointer) {
        cli_error("out of memory");
        exit(CLI_FAILED);
    }
    return pointer;
}

void cli_note(const char *format, ...)
{
    if (cli.quiet)
        return;
    va_list args;
    va_start(args, format);
    complain("", format, args);
    va_end(args);
}

static const cli_command *running;

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain("", format, args);
    va_end(args);
    if (running)
        fprintf(stderr, "Usage: kajitori %s %s (more: kajitori help %s)\n", running->name,
                running->usage, running->name);
    else
        fputs("Usage: kajitori VERB [OPTIONS] (more: kajitori help)\n", stderr);
    return CLI_USAGE;
}

int cli_status_of(int code)
{
    switch (code) {
    case KJ_EARG:
    case KJ_EAMBIGUOUS:
        return CLI_USAGE;
    case KJ_ENORUN:
        return CLI_NO_RUN;
    case KJ_ETIMEOUT:
        return CLI_TIMEOUT;
    case KJ_EREJECTED:
        return CLI_REJECTED;
    case KJ_EENDED:
        return CLI_ENDED;
    default:
        return CLI_FAILED;
    }
}

int cli_fail(const kj_error *err)
{
    cli_error("%s", err->message);
    return cli_status_of(err->code);
}

static void show_warning(void *userdata, int level, const char *message)
{
    (void)userdata;
    if (level <= KJ_LOG_WARNING || cli.verbose)
        cli_note("%s", message);
}

int cli_find_run(const char *name, kj_run_list **ret_list, const kj_run_info **ret_info)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    if (!name)
        name = cli.run;
    if (name && !*name) /* "$RUN", but nothing is in it: not the only one that happens to live */
        return cli_usage("the name of the run is empty");
    if (kj_run_list_load(cli.runtime_dir, &list, &err) < 0)
        return cli_fail(&err);
    if (kj_run_list_find(list, name, ret_info, &err) < 0) {
        kj_run_list_free(list);
        return cli_fail(&err);
    }
    *ret_list = list;
    return CLI_DONE;
}

int cli_open_run(const char *name, int timeout_ms, kj_client **ret_client, char **ret_id)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_list *list;
    const kj_run_info *info;
    int status = cli_find_run(name, &list, &info);
    if (status != CLI_DONE)
        return status;
    char *id = strdup(info->id);
    if (!id || kj_client_open_within(info->dir, timeout_ms, ret_client, &err) < 0) {
        if (id)
            status = cli_fail(&err);
        else
            cli_error("out of memory");
        free(id);
        kj_run_list_free(list);
        return status != CLI_DONE ? status : CLI_FAILED;
    }
    if (cli.verbose)
        cli_note("run %s, pid %d, in %s", info->id, info->pid, info->dir);
    cli_compare_versions(*ret_client, id);
    kj_run_list_free(list);
    *ret_id = id;
    return CLI_DONE;
}

void cli_compare_versions(const kj_client *client, const char *id)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *theirs = kj_client_get_version(client);
    if (*theirs && strcmp(theirs, kj_version()) != 0 && !atomic_flag_test_and_set(&said))
        cli_note("%s is steered by kajitori %s, this command is %s", id, theirs, kj_version());
}

bool cli_names_run(const char *word)
{
    kj_run_list *list;
    bool found = false;
    if (kj_run_list_load(cli.runtime_dir, &list, NULL) < 0)
        return false;
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        found = found || strncmp(kj_run_list_get(list, k)->id, word, strlen(word)) == 0;
    kj_run_list_free(list);
    return found;
}

const char *cli_take_run(int *n_words, const char *const **words)
{
    if (cli.run || cli_group_given() || *n_words == 0 || strchr(**words, '=')) /* no run has "=" */
        return NULL;
    (*n_words)--;
    return *(*words)++;
}

const char *cli_take_live_run(int *n_words, const char *const **words)
{
    return *n_words > 1 && cli_names_run(**words) ? cli_take_run(n_words, words) : NULL;
}

int cli_too_many(const char *word)
{
    return cli_usage("'%s' is one argument too many", word);
}

bool cli_parse_seconds(const char *text, int *ret_ms)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0 && seconds <= 2e6))
        return false;
    *ret_ms = (int)(seconds * 1000 + 0.5);
    return true;
}

int cli_distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    int n = (int)strlen(a), m = (int)strlen(b), row[MAX + 1];
    if (n > MAX || m > MAX)
        return 8;
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

static const struct {
    const char *name;
    int format;
} format_names[] = {
    {"table", CLI_TABLE}, {"json", CLI_JSON},   {"jsonl", CLI_JSONL}, {"csv", CLI_CSV},
    {"yaml", CLI_YAML},   {"value", CLI_VALUE}, {"npz", CLI_NPZ},
};

char *cli_format_list(unsigned formats, char text[CLI_FORMAT_LIST])
{
    char *to = text;
    *to = 0;
    for (size_t k = 0; k < sizeof format_names / sizeof *format_names; k++)
        if (formats & (unsigned)format_names[k].format)
            to += sprintf(to, "%s%s", to == text ? "" : ", ", format_names[k].name);
    return text;
}

static int choose_format(const cli_command *command, const char *name)
{
    for (size_t k = 0; k < sizeof format_names / sizeof *format_names; k++) {
        if (strcmp(format_names[k].name, name) == 0 &&
            (command->formats & (unsigned)format_names[k].format)) {
            cli.format = format_names[k].format;
            return CLI_DONE;
        }
    }
    char known[CLI_FORMAT_LIST];
    return cli_usage("--format %s: %s has the formats %s", name, command->name,
                     cli_format_list(command->formats, known));
}

enum { OPTION_HELP = 1000 };

static const char *format_name;
static struct poptOption no_options[] = {POPT_TABLEEND};

/* All options of a verb as one popt table: its own and the common ones it has. */
static void fill_options(const cli_command *command, struct poptOption *table)
{
    const struct poptOption own = {.argInfo = POPT_ARG_INCLUDE_TABLE,
                                   .arg =
                                       (void *)(command->options ? command->options : no_options)};
    *table++ = own;
    if (command->formats)
        *table++ = (struct poptOption){"format", 0, POPT_ARG_STRING, &format_name, 0, NULL, NULL};
    if (command->flags & CLI_TAKES_RUN)
        *table++ = (struct poptOption){"run", 'r', POPT_ARG_STRING, &cli.run, 0, NULL, NULL};
    if (command->flags & CLI_TAKES_RUNTIME)
        *table++ =
            (struct poptOption){"runtime-dir", 0, POPT_ARG_STRING, &cli.runtime_dir, 0, NULL, NULL};
    if (command->flags & CLI_TAKES_STATE)
        *table++ =
            (struct poptOption){"state-dir", 0, POPT_ARG_STRING, &cli.state_dir, 0, NULL, NULL};
    if (command->flags & CLI_TAKES_GROUP) {
        *table++ = (struct poptOption){"study", 0, POPT_ARG_STRING, &cli.study, 0, NULL, NULL};
        *table++ = (struct poptOption){"match", 0, POPT_ARG_ARGV, &cli.match, 0, NULL, NULL};
        *table++ = (struct poptOption){"all", 0, POPT_ARG_NONE, &cli.all, 0, NULL, NULL};
    }
    if (!(command->flags & CLI_STAYS_HERE))
        *table++ = (struct poptOption){"host", 0, POPT_ARG_STRING, &cli.host, 0, NULL, NULL};
    *table++ = (struct poptOption){"quiet", 'q', POPT_ARG_NONE, &cli.quiet, 0, NULL, NULL};
    *table++ = (struct poptOption){"verbose", 'v', POPT_ARG_NONE, &cli.verbose, 0, NULL, NULL};
    *table++ = (struct poptOption){"help", 'h', POPT_ARG_NONE, NULL, OPTION_HELP, NULL, NULL};
    *table = (struct poptOption)POPT_TABLEEND;
}

static int no_such_option(const char *option, int argc, const char **argv)
{
    bool has_program = strstr(running->usage, "-- ") != NULL;
    const char *nearest = cli_nearest_option(running, option);
    for (int k = 1; k < argc; k++)
        has_program = has_program && strcmp(argv[k], "--") != 0;
    return cli_usage("no such option: %s%s%s%s%s", option, nearest ? "; did you mean --" : "",
                     nearest ? nearest : "", nearest ? "?" : "",
                     has_program ? "; those of the program stand behind '--'" : "");
}

static int bad_option(poptContext context, int r, int argc, const char **argv)
{
    const char *option = poptBadOption(context, POPT_BADOPTION_NOALIAS);
    if (r == POPT_ERROR_BADNUMBER || r == POPT_ERROR_OVERFLOW) {
        /* popt names "--trials=x" whole, and of "--trials x" the x only. */
        const char *before = "";
        for (int k = 1; k < argc && *option != '-'; k++)
            if (strcmp(argv[k], option) == 0)
                before = argv[k - 1];
        return cli_usage("%s%s%s: %s", before, *before ? " " : "", option,
                         r == POPT_ERROR_OVERFLOW ? "the number is too large"
                                                  : "must be a whole number");
    }
    if (r == POPT_ERROR_BADOPT)
        return no_such_option(option, argc, argv);
    if (r == POPT_ERROR_NOARG)
        return cli_usage("%s needs a value", option);
    return cli_usage("%s: %s", option, poptStrerror(r));
}

static int count_words(const char *const *words)
{
    int n = 0;
    while (words && words[n])
        n++;
    return n;
}

static int run_command(const cli_command *command, int argc, const char **argv)
{
    static const char *const none[] = {NULL};
    struct poptOption table[16];
    running = command;
    fill_options(command, table);
    poptContext context = poptGetContext(NULL, argc, argv, table, 0);
    int r, status;
    while ((r = poptGetNextOpt(context)) > 0) {
        if (r == OPTION_HELP) {
            cli_print_help(command);
            poptFreeContext(context);
            return CLI_DONE;
        }
    }
    if (r < -1) {
        status = bad_option(context, r, argc, argv);
    } else if (format_name && (status = choose_format(command, format_name)) != CLI_DONE) {
        /* said */
    } else if ((status = cli_run_elsewhere(command, argc, argv, table)) != CLI_HERE) {
        /* done there */
    } else if ((status = cli_group_check(command)) != CLI_DONE) {
        /* said */
    } else {
        const char *const *words = (const char *const *)poptGetArgs(context);
        status = command->run(count_words(words), words ? words : none);
    }
    poptFreeContext(context);
    return status;
}

/* "ps, status, …" */
static const char *verb_list(void)
{
    static char text[300];
    size_t used = 0;
    for (size_t k = 0; cli_commands[k] && used < sizeof text; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", k ? ", " : "",
                                 cli_commands[k]->name);
    return text;
}

int cli_unknown_verb(const char *name)
{
    const char *nearest = NULL;
    int least = 3;
    for (size_t k = 0; cli_commands[k]; k++) {
        int d = cli_distance(name, cli_commands[k]->name);
        if (d < least) {
            least = d;
            nearest = cli_commands[k]->name;
        }
    }
    if (nearest)
        return cli_usage("no verb '%s'; did you mean '%s'?", name, nearest);
    return cli_usage("no verb '%s'; there are %s", name, verb_list());
}

static int dispatch(int argc, const char **argv)
{
    if (argc < 2)
        return cli_usage("say what to do: %s", verb_list());
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    const cli_command *command = cli_find_command(name);
    if (!command && name[0] == '-')
        return cli_usage("no such option: %s (options stand behind the verb)", name);
    if (!command)
        return cli_unknown_verb(name);
    return run_command(command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    kj_log_set(show_warning, NULL);
    int status = dispatch(argc, (const char **)argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_error("cannot write the result to standard output");
        return status == CLI_DONE ? CLI_FAILED : status;
    }
    return status;
}
