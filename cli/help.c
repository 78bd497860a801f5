/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help texts and man pages from the table of commands. A man page is the same text with roff's
 * requests around it; whatever could be taken for a request is escaped.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* When the texts of the pages were last gone over: a fixed date keeps builds reproducible. */
#define PAGES_DATE "2026-11-30"

static const struct poptOption format_option[] = {
    {"format", 0, POPT_ARG_STRING, NULL, 0, "how results are printed", "FORMAT"}, POPT_TABLEEND};
static const struct poptOption run_option[] = {
    {"run", 'r', POPT_ARG_STRING, NULL, 0,
     "the run, by any unique beginning of its id (default: the first word, else the only live one)",
     "RUN"},
    POPT_TABLEEND};
static const struct poptOption past_run_option[] = {
    {"run", 'r', POPT_ARG_STRING, NULL, 0,
     "the run, by any unique beginning of its id (default: the first word, else the one that "
     "started last)",
     "RUN"},
    POPT_TABLEEND};
static const struct poptOption runtime_options[] = {
    {"runtime-dir", 0, POPT_ARG_STRING, NULL, 0,
     "folder of the live runs (default: $KAJITORI_RUNTIME_DIR, else $XDG_RUNTIME_DIR/kajitori, "
     "/run/user/UID/kajitori and /tmp/kajitori-UID)",
     "DIR"},
    POPT_TABLEEND};
static const struct poptOption state_options[] = {
    {"state-dir", 0, POPT_ARG_STRING, NULL, 0,
     "folder of the journals (default: $KAJITORI_STATE_DIR, else $XDG_STATE_HOME/kajitori, else "
     "~/.local/state/kajitori)",
     "DIR"},
    POPT_TABLEEND};
static const struct poptOption group_options[] = {
    {"study", 0, POPT_ARG_STRING, NULL, 0, "all live runs of this study", "STUDY"},
    {"match", 0, POPT_ARG_ARGV, NULL, 0,
     "all live runs for which this holds, for example lr>0.1, val_loss>=2, epoch<3, state=paused "
     "or "
     "name~digits; may be given several times",
     "EXPR"},
    {"all", 0, POPT_ARG_NONE, NULL, 0, "all live runs", NULL},
    POPT_TABLEEND};
static const struct poptOption host_options[] = {
    {"host", 0, POPT_ARG_STRING, NULL, 0,
     "run this command there, by $KAJITORI_SSH (default: ssh); the command is there as "
     "$KAJITORI_REMOTE (default: kajitori)",
     "HOST"},
    POPT_TABLEEND};
static const struct poptOption common_options[] = {
    {"quiet", 'q', POPT_ARG_NONE, NULL, 0, "no notes on standard error", NULL},
    {"verbose", 'v', POPT_ARG_NONE, NULL, 0, "more notes on standard error", NULL},
    {"help", 'h', POPT_ARG_NONE, NULL, 0, "print this help", NULL},
    POPT_TABLEEND};

static const char *const exit_texts[] = {"done",
                                         "failed",
                                         "wrong usage; also a name that fits several runs",
                                         "no such run or study",
                                         "timed out",
                                         "rejected by the run",
                                         "the run ended first"};

typedef void (*option_fn)(const cli_command *command, const struct poptOption *option);

static void each_in(const cli_command *command, const struct poptOption *options, option_fn fn)
{
    for (; options && (options->longName || options->shortName || options->arg); options++) {
        if ((options->argInfo & POPT_ARG_MASK) == POPT_ARG_INCLUDE_TABLE)
            each_in(command, options->arg, fn);
        else if (options->longName && !(options->argInfo & POPT_ARGFLAG_DOC_HIDDEN))
            fn(command, options);
    }
}

static void each_option(const cli_command *command, option_fn fn)
{
    each_in(command, command->options, fn);
    if (command->formats)
        each_in(command, format_option, fn);
    if (command->flags & CLI_TAKES_RUN)
        each_in(command,
                (command->flags & (CLI_TAKES_STATE | CLI_TAKES_GROUP)) == CLI_TAKES_STATE
                    ? past_run_option
                    : run_option,
                fn);
    if (command->flags & CLI_TAKES_RUNTIME)
        each_in(command, runtime_options, fn);
    if (command->flags & CLI_TAKES_STATE)
        each_in(command, state_options, fn);
    if (command->flags & CLI_TAKES_GROUP)
        each_in(command, group_options, fn);
    if (!(command->flags & CLI_STAYS_HERE))
        each_in(command, host_options, fn);
    each_in(command, common_options, fn);
}

/* "-r, --run=RUN" */
static void spell_option(const struct poptOption *option, char *text, size_t size)
{
    int n = 0;
    if (option->shortName)
        n = snprintf(text, size, "-%c, ", option->shortName);
    snprintf(text + n, size - (size_t)n, "--%s%s%s", option->longName,
             option->argDescrip ? "=" : "", option->argDescrip ? option->argDescrip : "");
}

static void option_text(const cli_command *command, const struct poptOption *option, char *text,
                        size_t size)
{
    const char *words = option->descrip ? option->descrip : "";
    char formats[CLI_FORMAT_LIST];
    if (strcmp(option->longName, "format") == 0)
        snprintf(text, size, "%s: %s", words, cli_format_list(command->formats, formats));
    else
        snprintf(text, size, "%s", words);
}

/* `text` in lines of at most `width` bytes where it has blanks, each with `indent` blanks. */
static void put_wrapped(const char *text, int indent, int width, bool indent_first)
{
    int column = 0;
    if (indent_first)
        printf("%*s", indent, "");
    while (*text) {
        int word = (int)strcspn(text, " \n");
        if (column > 0 && column + 1 + word > width) {
            printf("\n%*s", indent, "");
            column = 0;
        }
        column += printf("%s%.*s", column ? " " : "", word, text);
        text += word;
        if (strncmp(text, "\n\n", 2) == 0) {
            printf("\n\n%*s", indent, "");
            column = 0;
        }
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static void put_help_option(const cli_command *command, const struct poptOption *option)
{
    enum { INDENT = 30, WIDTH = 66 };
    char spelled[100], text[400];
    spell_option(option, spelled, sizeof spelled);
    printf("  %-*s", INDENT - 2, spelled);
    if (strlen(spelled) > INDENT - 4)
        printf("\n%*s", INDENT, "");
    option_text(command, option, text, sizeof text);
    put_wrapped(text, INDENT, WIDTH, false);
}

static void print_overview(void)
{
    puts(
        "kajitori VERB [OPTIONS] [WORDS]\n\nSteer, stop and prune training runs while they run.\n");
    for (size_t k = 0; cli_commands[k]; k++)
        printf("  %-10s %s\n", cli_commands[k]->name, cli_commands[k]->summary);
    puts(
        "\nA run is named by any unique beginning of its id, or not at all when only one is live.\n"
        "More: kajitori help VERB, kajitori VERB --help.\n\nExit status:");
    for (size_t k = 0; k < sizeof exit_texts / sizeof *exit_texts; k++)
        printf("  %zu  %s\n", k, exit_texts[k]);
}

void cli_print_help(const cli_command *command)
{
    if (!command) {
        print_overview();
        return;
    }
    printf("Usage: kajitori %s %s\n\n", command->name, command->usage);
    put_wrapped(command->description, 0, 96, false);
    puts("\nOptions:");
    each_option(command, put_help_option);
    if (!command->examples)
        return;
    puts("\nExamples:");
    for (const cli_example *example = command->examples; example->command; example++)
        printf("  %s\n      %s\n", example->command, example->what);
}

/* Text with what roff could read as its own escaped. */
static void put_roff(const char *text)
{
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        at_start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\'')
            fputs("\\(aq", stdout);
        else if (*text == '^')
            fputs("\\(ha", stdout);
        else if (*text == '~')
            fputs("\\(ti", stdout);
        else if (*text == '`')
            fputs("\\(ga", stdout);
        else
            putchar(*text);
    }
}

/* Paragraphs: .PP between two, and the words are wrapped so that no source line is long. */
static void put_roff_paragraphs(const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t size = end ? (size_t)(end - text) : strlen(text);
        int column = 0;
        for (size_t k = 0; k < size;) {
            char word[200];
            size_t n = strcspn(text + k, " \n");
            if (n > size - k)
                n = size - k;
            if (column + (int)n > 68 && column) {
                putchar('\n');
                column = 0;
            }
            snprintf(word, sizeof word, "%s%.*s", column ? " " : "", (int)n, text + k);
            put_roff(word);
            column += (int)n + 1;
            k += n;
            k += strspn(text + k, " \n") < size - k ? strspn(text + k, " \n") : size - k;
        }
        puts(end ? "\n.PP" : "");
        text += size + (end ? 2 : 0);
    }
}

static void put_man_option(const cli_command *command, const struct poptOption *option)
{
    char spelled[100], text[400];
    spell_option(option, spelled, sizeof spelled);
    fputs(".TP\n.B ", stdout);
    put_roff(spelled);
    putchar('\n');
    option_text(command, option, text, sizeof text);
    put_roff_paragraphs(text);
}

static void put_exit_statuses(void)
{
    puts(".SH EXIT STATUS");
    for (size_t k = 0; k < sizeof exit_texts / sizeof *exit_texts; k++)
        printf(".TP\n.B %zu\n%s\n", k, exit_texts[k]);
}

static void put_title(const char *page, const char *summary)
{
    fputs(".TH ", stdout);
    for (const char *c = page; *c; c++)
        if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    printf(" 1 \"" PAGES_DATE "\" \"kajitori %s\" \"User Commands\"\n.SH NAME\n", kj_version());
    put_roff(page);
    fputs(" \\- ", stdout);
    put_roff(summary);
    putchar('\n');
}

/* The same words as in the table, "ps status" as references to their pages. */
static void put_see_also(const char *names)
{
    fputs(".SH SEE ALSO\n.BR kajitori (1)", stdout);
    while (names && *names) {
        size_t n = strcspn(names, " ");
        printf(",\n.BR kajitori\\-%.*s (1)", (int)n, names);
        names += n;
        names += strspn(names, " ");
    }
    putchar('\n');
}

static void print_main_page(void)
{
    put_title("kajitori", "steer, stop and prune training runs while they run");
    puts(".SH SYNOPSIS\n.B kajitori\n.I verb\n[options] [words]\n.SH DESCRIPTION");
    put_roff_paragraphs(
        "Each training run that uses kajitori has doors through which it can be asked and told "
        "things while it goes on. This command finds the runs of the user and talks to them.\n\n"
        "A run is named by any unique beginning of its id, or not at all when only one is live. "
        "Results go to standard output, everything else to standard error. Each verb has a page "
        "of its own.");
    puts(".SH VERBS");
    for (size_t k = 0; cli_commands[k]; k++) {
        printf(".TP\n.BR kajitori\\-%s (1)\n", cli_commands[k]->name);
        put_roff(cli_commands[k]->summary);
        putchar('\n');
    }
    puts(".SH ENVIRONMENT\n.TP\n.B KAJITORI_RUNTIME_DIR\nfolder of the live runs\n"
         ".TP\n.B KAJITORI_STATE_DIR\nfolder of the journals\n"
         ".TP\n.B KAJITORI_STORAGE\ndatabase of studies\n"
         ".TP\n.B KAJITORI_SSH\nwhat reaches another host, with its options (ssh)\n"
         ".TP\n.B KAJITORI_REMOTE\nthe command on another host (kajitori)\n"
         ".TP\n.B NO_COLOR\nwhen set and not empty: no colours");
    put_exit_statuses();
}

void cli_print_man(const cli_command *command)
{
    char page[64];
    if (!command) {
        print_main_page();
        return;
    }
    snprintf(page, sizeof page, "kajitori-%s", command->name);
    put_title(page, command->summary);
    printf(".SH SYNOPSIS\n.B kajitori %s\n", command->name);
    if (*command->usage) {
        put_roff(command->usage);
        putchar('\n');
    }
    puts(".SH DESCRIPTION");
    put_roff_paragraphs(command->description);
    puts(".SH OPTIONS");
    each_option(command, put_man_option);
    put_exit_statuses();
    if (command->examples) {
        puts(".SH EXAMPLES");
        for (const cli_example *example = command->examples; example->command; example++) {
            fputs(".TP\n.B ", stdout);
            put_roff(example->command);
            putchar('\n');
            put_roff(example->what);
            putchar('\n');
        }
    }
    put_see_also(command->see_also);
}

static struct {
    char name[40];
    const char *nearest;
    int least;
} search;

static void compare_option(const cli_command *command, const struct poptOption *option)
{
    (void)command;
    int d = cli_distance(search.name, option->longName);
    if (d < search.least) {
        search.least = d;
        search.nearest = option->longName;
    }
}

const char *cli_nearest_option(const cli_command *command, const char *text)
{
    text += strspn(text, "-");
    snprintf(search.name, sizeof search.name, "%.*s", (int)strcspn(text, "="), text);
    search.nearest = NULL;
    search.least = strlen(search.name) > 3 ? 3 : 1; /* of short names nearly all are near */
    each_option(command, compare_option);
    return search.nearest;
}

static void put_word(const cli_command *command, const struct poptOption *option)
{
    (void)command;
    printf("--%s\n", option->longName);
}

void cli_print_words(const cli_command *command)
{
    each_option(command, put_word);
}
