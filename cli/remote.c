/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line is gone through once more, to take the host out of it and leave the rest as it
 * was given. Then ssh has all there is to do: who may, which keys, which way.
 */
#include "remote.h"

#include "sending.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct journey {
    const cli_command *command;
    const struct poptOption *table;
    const char *host;     /* NULL: here */
    char *url_host;       /* what host points into when it came from ssh:// */
    const char *port;     /* likewise */
    const char *schedule; /* file that goes out as standard input */
    bool says_by;
    const char **words; /* what is said there */
    char **made;        /* those of them that are for free */
    int n_words, n_made;
} journey;

static const char scheme[] = "ssh://";

static const struct poptOption *find_option(const struct poptOption *table, const char *name,
                                            size_t size, char letter)
{
    for (; table->longName || table->shortName || table->arg; table++) {
        const struct poptOption *found = NULL;
        if ((table->argInfo & POPT_ARG_MASK) == POPT_ARG_INCLUDE_TABLE)
            found = find_option(table->arg, name, size, letter);
        else if (letter ? table->shortName == letter
                        : table->longName && strlen(table->longName) == size &&
                              strncmp(table->longName, name, size) == 0)
            found = table;
        if (found)
            return found;
    }
    return NULL;
}

static bool takes_value(const struct poptOption *option)
{
    return option && (option->argInfo & POPT_ARG_MASK) != POPT_ARG_NONE;
}

static void say(journey *j, const char *word)
{
    j->words[j->n_words++] = word;
}

static void say_option(journey *j, const char *name, const char *value)
{
    char *word = malloc(strlen(name) + strlen(value) + 4);
    if (!word) {
        cli_error("out of memory");
        exit(CLI_FAILED);
    }
    sprintf(word, "--%s=%s", name, value);
    j->made[j->n_made++] = word;
    say(j, word);
}

static bool is_url(const char *word)
{
    return strncmp(word, scheme, sizeof scheme - 1) == 0;
}

/* [USER@][ADDRESS]: ssh wants it without the brackets. */
static void drop_brackets(char *host)
{
    char *open = strchr(host, '['), *close = open ? strchr(open, ']') : NULL;
    if (!close || close[1])
        return;
    *close = 0;
    memmove(open, open + 1, strlen(open));
}

/* ssh://[USER@]HOST[:PORT][/RUN]: the run in it, "" when there is none. */
static const char *take_url(journey *j, const char *url)
{
    free(j->url_host);
    j->url_host = strdup(url + sizeof scheme - 1);
    if (!j->url_host)
        return "";
    char *slash = strchr(j->url_host, '/'), *colon;
    if (slash)
        *slash = 0;
    colon = strrchr(j->url_host, ':');
    if (colon && !strchr(colon, ']')) {
        *colon = 0;
        j->port = colon + 1;
    }
    drop_brackets(j->url_host);
    j->host = j->url_host;
    return slash ? slash + 1 : "";
}

/* An option with its value. */
static void pass_option(journey *j, const struct poptOption *option, const char *value)
{
    const char *name = option->longName;
    if (strcmp(name, "host") == 0) {
        j->host = value;
    } else if (strcmp(name, "run") == 0 && (j->command->flags & CLI_TAKES_RUN) && is_url(value)) {
        const char *run = take_url(j, value);
        if (*run)
            say_option(j, name, run);
    } else if (strcmp(name, "schedule") == 0 && strcmp(value, "-") != 0) {
        j->schedule = value;
        say_option(j, name, "-");
    } else {
        j->says_by = j->says_by || strcmp(name, "by") == 0;
        say_option(j, name, value);
    }
}

/* argv[k], which begins with a dash, and its value; the index of the last one used. */
static int pass_dashed(journey *j, int k, const char *const *argv)
{
    const char *word = argv[k];
    bool is_long = word[1] == '-';
    size_t size = is_long ? strcspn(word + 2, "=") : 0;
    const struct poptOption *option = is_long ? find_option(j->table, word + 2, size, 0) : NULL;
    if (is_long && takes_value(option)) {
        bool beside = word[2 + size] == '=';
        pass_option(j, option, beside ? word + 3 + size : argv[k + 1]);
        return beside ? k : k + 1;
    }
    for (size_t at = 1; !is_long && word[at]; at++) {
        option = find_option(j->table, NULL, 0, word[at]);
        if (!takes_value(option))
            continue;
        char *flags = strndup(word, at); /* "-qr RUN": the letters before */
        if (flags && at > 1)
            say(j, j->made[j->n_made++] = flags);
        else
            free(flags);
        const char *value = word + at + 1;
        pass_option(j, option, *value ? value + (*value == '=') : argv[k + 1]);
        return *value ? k : k + 1;
    }
    say(j, word);
    return k;
}

static void pass_all(journey *j, int argc, const char *const *argv)
{
    bool first = true;
    for (int k = 1; k < argc; k++) {
        const char *word = argv[k];
        if (strcmp(word, "--") == 0) {
            while (k < argc)
                say(j, argv[k++]);
        } else if (word[0] == '-' && word[1]) {
            k = pass_dashed(j, k, argv);
        } else {
            const char *run = word;
            if (first && (j->command->flags & CLI_TAKES_RUN) && is_url(word))
                run = take_url(j, word);
            if (run == word || *run)
                say(j, run);
            first = false;
        }
    }
}

/* In single quotes, which no shell looks into, but for fish, which knows a backslash in them: that
 * and the quote stand outside. */
static size_t quote(char *to, const char *word)
{
    char *begin = to;
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'' || *word == '\\') {
            memcpy(to, "'\\x'", 4);
            to[2] = *word;
            to += 4;
        } else {
            *to++ = *word;
        }
    }
    *to++ = '\'';
    *to = 0;
    return (size_t)(to - begin);
}

/* The line for the shell there; for free. */
static char *remote_line(const journey *j)
{
    const char *program = getenv("KAJITORI_REMOTE");
    if (!program || !*program)
        program = "kajitori";
    const char *who = cli_who();
    bool add_by = !j->says_by && find_option(j->table, "by", 2, 0);
    size_t size = strlen(program) + strlen(j->command->name) + 4 * strlen(who) + 32;
    for (int k = 0; k < j->n_words; k++)
        size += 4 * strlen(j->words[k]) + 3;
    char *line = malloc(size), *to = line;
    if (!line)
        return NULL;
    to += sprintf(to, "%s %s", program, j->command->name);
    if (add_by) { /* who says so is we, not the account there */
        to += sprintf(to, " --by ");
        to += quote(to, who);
    }
    for (int k = 0; k < j->n_words; k++) {
        *to++ = ' ';
        to += quote(to, j->words[k]);
    }
    return line;
}

/* $KAJITORI_SSH [-p PORT] HOST LINE, started; 0 or an errno. */
static int start_ssh(const journey *j, char *line, pid_t *ret_pid)
{
    const char *text = getenv("KAJITORI_SSH");
    const char **words;
    int n;
    if (poptParseArgvString(text && *text ? text : "ssh", &n, &words) != 0)
        return EINVAL;
    const char **argv = calloc((size_t)n + 5, sizeof *argv);
    posix_spawn_file_actions_t actions;
    int r = argv ? posix_spawn_file_actions_init(&actions) : ENOMEM;
    if (r == 0) {
        memcpy(argv, words, (size_t)n * sizeof *argv);
        if (j->port) {
            argv[n++] = "-p";
            argv[n++] = j->port;
        }
        argv[n++] = j->host;
        argv[n++] = line;
        if (j->schedule)
            r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, j->schedule, O_RDONLY, 0);
        if (r == 0)
            r = posix_spawnp(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(argv);
    free(words);
    return r;
}

static int travel(const journey *j)
{
    pid_t pid;
    int status;
    char *line = remote_line(j);
    int r = line ? start_ssh(j, line, &pid) : ENOMEM;
    free(line);
    if (r != 0) {
        const char *ssh = getenv("KAJITORI_SSH");
        cli_error("cannot run %s: %s", ssh && *ssh ? ssh : "ssh", strerror(r));
        return CLI_FAILED;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        return 128 + WTERMSIG(status);
    if (WEXITSTATUS(status) == 255) {
        cli_error("cannot reach %s", j->host);
        return CLI_FAILED;
    }
    if (WEXITSTATUS(status) == 127)
        cli_error("there is no kajitori on %s; say where it is in KAJITORI_REMOTE", j->host);
    return WEXITSTATUS(status);
}

/* What ssh could take for an option, or a shell for more than a word, is no host. */
static int check_host(const journey *j)
{
    if (!*j->host || *j->host == '-' || j->host[strcspn(j->host, " \t\n'\"\\;&|<>$`")])
        return cli_usage("'%s' is no name of a host", j->host);
    if (j->port && (!*j->port || j->port[strspn(j->port, "0123456789")]))
        return cli_usage("'%s' is no number of a port", j->port);
    if (j->schedule && access(j->schedule, R_OK) != 0) {
        cli_error("%s: %s", j->schedule, strerror(errno));
        return CLI_FAILED;
    }
    return CLI_DONE;
}

int cli_run_elsewhere(const cli_command *command, int argc, const char *const *argv,
                      const struct poptOption *table)
{
    journey j = {.command = command, .table = table};
    j.words = calloc((size_t)argc * 2 + 1, sizeof *j.words);
    j.made = calloc((size_t)argc * 2 + 1, sizeof *j.made);
    if (!j.words || !j.made) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    pass_all(&j, argc, argv);
    int status = CLI_HERE;
    if (j.host && (status = check_host(&j)) == CLI_DONE)
        status = travel(&j);
    while (j.n_made > 0)
        free(j.made[--j.n_made]);
    free(j.made);
    free(j.words);
    free(j.url_host);
    return status;
}
