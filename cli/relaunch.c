/* SPDX-License-Identifier: Apache-2.0 */
#include "relaunch.h"

#include "members.h"
#include "output.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static const char mask[] = "***";

enum { VARIABLE = 300 };

/* What the journal says about how the run went on and ended. */
typedef struct past {
    char *id;
    struct json_object *run; /* its run.json */
    bool has_ended;          /* it said so itself */
    char ending[16];         /* "" when it came to its own end */
    char *checkpoint;        /* newest one, NULL for none */
} past;

/* One argument of the recorded command line. */
typedef struct argument {
    const char *text;        /* as recorded */
    char whole[VARIABLE];    /* variable that may hold all of it, "" when it is not masked */
    char variable[VARIABLE]; /* variable that may hold what the mask hides, "" for none */
    size_t prefix;           /* bytes before the mask */
} argument;

static void keep_checkpoint(past *run, const char *path)
{
    if (!path)
        return;
    free(run->checkpoint);
    run->checkpoint = cli_check_memory(strdup(path));
}

/* `line` is the journal's. */
static void look_at(past *run, struct json_object *line)
{
    const char *event = cli_text_of(line, "event"), *verb = cli_text_of(line, "verb");
    if (event && strcmp(event, "run_started") == 0) {
        struct json_object *started = cli_member_of(line, "run");
        free(run->checkpoint);
        run->checkpoint = NULL;
        run->has_ended = false;
        keep_checkpoint(run, cli_text_of(started, "checkpoint"));
    } else if (event && strcmp(event, "run_ended") == 0) {
        const char *ending = cli_text_of(line, "ending");
        run->has_ended = true;
        snprintf(run->ending, sizeof run->ending, "%s", ending ? ending : "");
        keep_checkpoint(run, cli_text_of(cli_member_of(line, "checkpoint"), "path"));
    } else if (verb && strcmp(verb, "checkpoint") == 0) {
        keep_checkpoint(run, cli_text_of(cli_member_of(line, "result"), "path"));
    }
}

static int on_line(void *userdata, const char *text)
{
    struct json_object *line = json_tokener_parse(text);
    look_at(userdata, line);
    json_object_put(line);
    return 0;
}

static void past_done(past *run)
{
    json_object_put(run->run);
    free(run->checkpoint);
    kj_free(run->id);
}

static int load(const char *name, past *run)
{
    kj_error err = KJ_ERROR_INIT;
    char *json, *again;
    if (kj_past_run_load(cli.state_dir, name, &json, &run->id, &err) < 0)
        return cli_fail(&err);
    run->run = json_tokener_parse(json);
    kj_free(json);
    if (kj_journal_read(cli.state_dir, run->id, on_line, run, &again, &err) < 0)
        return cli_fail(&err);
    kj_free(again);
    return CLI_DONE;
}

static bool lives(const char *id)
{
    kj_run_list *list;
    bool found = false;
    if (kj_run_list_load(cli.runtime_dir, &list, NULL) < 0)
        return false;
    for (uint64_t k = 0; k < kj_run_list_size(list); k++)
        found = found || strcmp(kj_run_list_get(list, k)->id, id) == 0;
    kj_run_list_free(list);
    return found;
}

/* STATE/runs/RUN-ID/FILE; for free. */
static char *state_path(const char *id, const char *file)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"KAJITORI_STATE_DIR", ""},
                  {"XDG_STATE_HOME", "/kajitori"},
                  {"HOME", "/.local/state/kajitori"}};
    const char *root = cli.state_dir, *below = "";
    for (size_t k = 0; !root && k < sizeof places / sizeof *places; k++) {
        root = getenv(places[k].variable);
        root = root && *root ? root : NULL;
        below = places[k].below;
    }
    root = root ? root : "/";
    char *path =
        cli_check_memory(malloc(strlen(root) + strlen(below) + strlen(id) + strlen(file) + 32));
    sprintf(path, "%s%s/runs/%s/%s", root, below, id, file);
    return path;
}

/*
 * Two that start the same run at once: the second one is refused until the first one's program has
 * opened its run, which replaces run.json. The program has the lock meanwhile, so it goes with it.
 */
static bool is_being_started(const past *run)
{
    char *path = state_path(run->id, "run.json");
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK); /* is inherited */
    free(path);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Whether it may be started: CLI_DONE, or the status with the reason printed. */
static int check_ending(const past *run, unsigned flags)
{
    if (!(flags & CLI_RELAUNCH_PRINT) && is_being_started(run)) {
        cli_error("%s is being started again already", run->id);
        return CLI_FAILED;
    }
    if (lives(run->id)) {
        cli_error("%s is live", run->id);
        return CLI_FAILED;
    }
    bool left = run->has_ended && strcmp(run->ending, "leave") == 0;
    if (!left && !(flags & CLI_RELAUNCH_ANY)) {
        const char *how = !run->has_ended ? "died" : *run->ending ? run->ending : "came to its end";
        bool is_verb = run->has_ended && *run->ending;
        cli_error("%s did not leave, it %s%s; with --again it is started again all the same",
                  run->id, is_verb ? "was ended by " : "", how);
        return CLI_FAILED;
    }
    if (!run->checkpoint)
        cli_note("%s has saved no checkpoint: it begins anew", run->id);
    return CLI_DONE;
}

/* "--wandb-token" is WANDB_TOKEN; "" when that is no name of a variable. */
static void name_variable(const char *flag, size_t size, char variable[VARIABLE])
{
    size_t n = 0;
    variable[0] = 0;
    for (size_t k = strspn(flag, "-"); k < size && n < VARIABLE - 1; k++)
        variable[n++] =
            isalnum((unsigned char)flag[k]) ? (char)toupper((unsigned char)flag[k]) : '_';
    variable[n] = 0;
    if (isdigit((unsigned char)variable[0]))
        variable[0] = 0;
}

static argument describe(struct json_object *argv, size_t k)
{
    argument arg = {.text = json_object_get_string(json_object_array_get_idx(argv, k))};
    const char *before =
        k > 0 ? json_object_get_string(json_object_array_get_idx(argv, k - 1)) : "";
    const char *hidden = strstr(arg.text, mask);
    if (!hidden)
        return arg;
    snprintf(arg.whole, sizeof arg.whole, "KAJITORI_ARG_%zu", k);
    arg.prefix = (size_t)(hidden - arg.text);
    if (arg.prefix == 0 && !hidden[3] && *before == '-')
        name_variable(before, strlen(before), arg.variable);
    else if (arg.prefix > 0 && !hidden[3] && hidden[-1] == '=' &&
             !memchr(arg.text, '=', arg.prefix - 1))
        name_variable(arg.text, arg.prefix - 1, arg.variable);
    return arg;
}

/* The argument as it is to be given; for free. NULL with the reason printed. */
static char *reveal(const argument *arg, size_t k)
{
    const char *whole = *arg->whole ? getenv(arg->whole) : arg->text;
    const char *value = *arg->variable ? getenv(arg->variable) : NULL;
    if (whole)
        return cli_check_memory(strdup(whole));
    if (value) {
        char *text;
        int size = asprintf(&text, "%.*s%s", (int)arg->prefix, arg->text, value);
        return cli_check_memory(size < 0 ? NULL : text);
    }
    cli_error("argument %zu is masked (%s): set %s%s%s", k, arg->text, arg->variable,
              *arg->variable ? " to the value, or " : "", arg->whole);
    cli_note("%s is the whole argument", arg->whole);
    return NULL;
}

static void put_shell_word(const char *text)
{
    static const char bare[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:+,@%=-";
    if (*text && !text[strspn(text, bare)]) {
        fputs(text, stdout);
        return;
    }
    putchar('\'');
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, 0}, stdout);
    putchar('\'');
}

/* A masked argument is shown as the variable that it is taken from. */
static void put_argument(const argument *arg)
{
    if (!*arg->whole) {
        put_shell_word(arg->text);
    } else if (getenv(arg->whole) || !*arg->variable) {
        printf("\"$%s\"", arg->whole);
    } else {
        if (arg->prefix > 0)
            printf("%.*s", (int)arg->prefix, arg->text);
        printf("\"$%s\"", arg->variable);
    }
}

static void print_command(const past *run, const char *cwd, struct json_object *argv)
{
    fputs("cd ", stdout);
    put_shell_word(cwd);
    fputs(" && KAJITORI_RUN_ID=", stdout);
    put_shell_word(run->id);
    if (run->checkpoint) {
        fputs(" KAJITORI_CHECKPOINT=", stdout);
        put_shell_word(run->checkpoint);
    }
    for (size_t k = 0; k < json_object_array_length(argv); k++) {
        argument arg = describe(argv, k);
        putchar(' ');
        put_argument(&arg);
    }
    putchar('\n');
}

/* The recorded command line; NULL with the reason printed. */
static struct json_object *recorded_argv(const past *run)
{
    struct json_object *argv = cli_member_of(run->run, "argv");
    size_t n = json_object_is_type(argv, json_type_array) ? json_object_array_length(argv) : 0;
    for (size_t k = 0; k < n; k++)
        if (!json_object_is_type(json_object_array_get_idx(argv, k), json_type_string))
            n = 0;
    bool is_cut = json_object_get_boolean(cli_member_of(run->run, "argv_cut"));
    if (n > 0 && !is_cut)
        return argv;
    cli_error("the command line of %s was not recorded%s", run->id,
              is_cut ? " whole: it has too many arguments, or a long one, or one that is no UTF-8"
                     : "");
    if (is_cut)
        cli_note("start it yourself, with KAJITORI_RUN_ID=%s%s%s", run->id,
                 run->checkpoint ? " KAJITORI_CHECKPOINT=" : "",
                 run->checkpoint ? run->checkpoint : "");
    return NULL;
}

static void free_words(char **words)
{
    for (size_t k = 0; words[k]; k++)
        free(words[k]);
    free(words);
}

/* The command line with what was masked; NULL with the reason printed. */
static char **reveal_all(struct json_object *argv)
{
    size_t n = json_object_array_length(argv);
    char **words = cli_check_memory(calloc(n + 1, sizeof *words));
    for (size_t k = 0; k < n; k++) {
        argument arg = describe(argv, k);
        words[k] = reveal(&arg, k);
        if (!words[k]) {
            free_words(words);
            return NULL;
        }
    }
    return words;
}

static void set_environment(const past *run)
{
    setenv("KAJITORI_RUN_ID", run->id, 1);
    if (run->checkpoint)
        setenv("KAJITORI_CHECKPOINT", run->checkpoint, 1);
    else
        unsetenv("KAJITORI_CHECKPOINT");
    if (cli.runtime_dir)
        setenv("KAJITORI_RUNTIME_DIR", cli.runtime_dir, 1);
    if (cli.state_dir)
        setenv("KAJITORI_STATE_DIR", cli.state_dir, 1);
}

static int fail_to_start(const char *program, int number)
{
    cli_error("cannot start %s: %s", program, strerror(number));
    return CLI_FAILED;
}

static int start_detached(const past *run, char **words, const char *output)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return fail_to_start(words[0], r);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output,
                                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    r = posix_spawnp(&pid, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0)
        return fail_to_start(words[0], r);
    printf("%s: started again, pid %ld, output in %s\n", run->id, (long)pid, output);
    return CLI_DONE;
}

static int start(const past *run, const char *cwd, char **words, unsigned flags)
{
    char *output = state_path(run->id, "output.log");
    char *absolute = *output == '/' ? NULL : realpath(output, NULL);
    int status;
    if (chdir(cwd) != 0) {
        cli_error("the folder of %s, %s: %s", run->id, cwd, strerror(errno));
        status = CLI_FAILED;
    } else if (flags & CLI_RELAUNCH_DETACH) {
        set_environment(run);
        status = start_detached(run, words, absolute ? absolute : output);
    } else {
        set_environment(run);
        fflush(stdout);
        execvp(words[0], words);
        status = fail_to_start(words[0], errno);
    }
    free(absolute);
    free(output);
    return status;
}

static int relaunch(const past *run, unsigned flags)
{
    const char *cwd = cli_text_of(run->run, "cwd");
    struct json_object *argv = recorded_argv(run);
    int status = argv ? check_ending(run, flags) : CLI_FAILED;
    if (status == CLI_DONE && !cwd) {
        cli_error("the folder of %s was not recorded: it was gone when the run began", run->id);
        status = CLI_FAILED;
    }
    if (status != CLI_DONE)
        return status;
    if (flags & CLI_RELAUNCH_PRINT) {
        print_command(run, cwd, argv);
        return CLI_DONE;
    }
    char **words = reveal_all(argv);
    if (!words)
        return CLI_FAILED;
    status = start(run, cwd, words, flags);
    free_words(words);
    return status;
}

int cli_relaunch(const char *name, unsigned flags)
{
    past run = {.has_ended = false};
    int status = load(name, &run);
    if (status == CLI_DONE)
        status = relaunch(&run, flags);
    past_done(&run);
    return status;
}
