/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values into an event file, from a shell. All words are read before anything is written, and what
 * one call (or one line of standard input) says goes to the file in one write.
 */
#include "output.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *events_dir, *step_text, *wall_time_text;
static const char **texts, **hparam_words;
static int as_double;
static const struct poptOption options[] = {
    {"events", 'e', POPT_ARG_STRING, &events_dir, 0,
     "folder of the event file; it is made where it is missing", "DIR"},
    {"step", 's', POPT_ARG_STRING, &step_text, 0, "step of the values (default 0)", "N"},
    {"wall-time", 0, POPT_ARG_STRING, &wall_time_text, 0,
     "their time, in seconds since 1970 (default: now)", "T"},
    {"double", 0, POPT_ARG_NONE, &as_double, 0,
     "write 64 bits of each value, which TensorBoard shows only with --load_fast=false", NULL},
    {"text", 0, POPT_ARG_ARGV, &texts, 0, "a text (Markdown); may be given several times",
     "TAG=TEXT"},
    {"hparam", 0, POPT_ARG_ARGV, &hparam_words, 0,
     "a hyperparameter: a number, true, false, or text; may be given several times", "NAME=VALUE"},
    POPT_TABLEEND,
};

enum { LINE_MAX_BYTES = 65536, TAG_MAX_BYTES = 4096 };

static const char not_writable[] = "a name has 1 to 4096 bytes, and all is UTF-8";

typedef struct emitting {
    kj_event_writer *writer;
    int64_t step;
    double wall_time; /* NaN: now */
} emitting;

static bool parse_value(const char *text, double *ret_value)
{
    char *end;
    if (isspace((unsigned char)*text) || strpbrk(text, "xX("))
        return false;
    *ret_value = strtod(text, &end);
    return end != text && !*end;
}

static bool parse_step(const char *text, int64_t *ret_step)
{
    char *end;
    if (isspace((unsigned char)*text))
        return false;
    errno = 0;
    *ret_step = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0;
}

static bool is_step(const char *word)
{
    return strncmp(word, "step=", 5) == 0;
}

/* Whether the writer takes a word with a name of so many bytes. */
static bool is_writable(const char *word, size_t name_size)
{
    unsigned code;
    for (size_t left = strlen(word), length; left > 0; word += length, left -= length)
        if ((length = cli_decode(word, left, &code)) == 0)
            return false;
    return name_size <= TAG_MAX_BYTES;
}

/* TAG=VALUE, where TAG may hold a "=", too. Its size, or 0. */
static size_t split_value(const char *word, double *ret_value)
{
    const char *equals = strrchr(word, '=');
    return equals && parse_value(equals + 1, ret_value) ? (size_t)(equals - word) : 0;
}

static int add_value(const emitting *to, const char *word, kj_error *err)
{
    double value = 0;
    size_t size = split_value(word, &value);
    char *tag = cli_check_memory(strndup(word, size));
    int r = kj_event_writer_add_scalar(to->writer, tag, to->step, to->wall_time, value, err);
    free(tag);
    return r;
}

static int add_text(const emitting *to, const char *word, kj_error *err)
{
    const char *equals = strchr(word, '=');
    char *tag = cli_check_memory(strndup(word, (size_t)(equals - word)));
    int r = kj_event_writer_add_text(to->writer, tag, to->step, to->wall_time, equals + 1, err);
    free(tag);
    return r;
}

/* As it looks: true, false, a number, or else text. */
static kj_value guess_value(const char *text)
{
    kj_value value = {.type = KJ_TYPE_STRING, .s = text};
    bool is_true = strcmp(text, "true") == 0;
    if (is_true || strcmp(text, "false") == 0)
        value = (kj_value){.type = KJ_TYPE_BOOL, .i = is_true};
    else if (parse_step(text, &value.i))
        value.type = KJ_TYPE_INT;
    else if (parse_value(text, &value.f))
        value.type = KJ_TYPE_FLOAT;
    return value;
}

static int add_hparams(const emitting *to, kj_error *err)
{
    kj_hparams hparams = KJ_HPARAMS_INIT;
    while (hparam_words && hparam_words[hparams.n_params])
        hparams.n_params++;
    if (hparams.n_params == 0)
        return 0;
    kj_hparam *params = cli_check_memory(calloc(hparams.n_params, sizeof *params));
    for (uint64_t k = 0; k < hparams.n_params; k++) {
        const char *equals = strchr(hparam_words[k], '=');
        params[k].name =
            cli_check_memory(strndup(hparam_words[k], (size_t)(equals - hparam_words[k])));
        params[k].value = guess_value(equals + 1);
    }
    hparams.params = params;
    int r = kj_event_writer_add_hparams(to->writer, &hparams, err);
    for (uint64_t k = 0; k < hparams.n_params; k++)
        free((char *)params[k].name);
    free(params);
    return r;
}

/* One line: TAG=VALUE words, and step=N where it has a step of its own. `message` says what is
 * wrong with it. */
static bool read_line(char *line, const char **words, size_t *n_words, int64_t *step,
                      const char **ret_message)
{
    double value;
    char *rest = NULL;
    *n_words = 0;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (is_step(word)) {
            *ret_message = "step=N takes a whole number";
            if (!parse_step(word + 5, step))
                return false;
        } else {
            *ret_message = "a line has words TAG=VALUE, and step=N";
            size_t size = split_value(word, &value);
            if (size == 0)
                return false;
            *ret_message = not_writable;
            if (!is_writable(word, size))
                return false;
            words[(*n_words)++] = word;
        }
    }
    return true;
}

/* What a line says, in one write. Its step is that of the line before and one, unless it says so.
 */
static int emit_line(emitting *to, const char *const *words, size_t n_words, kj_error *err)
{
    int r = 0;
    for (size_t k = 0; r >= 0 && k < n_words; k++)
        r = add_value(to, words[k], err);
    return r < 0 ? r : kj_event_writer_flush(to->writer, err);
}

/* The next line, without its end, if there is one. `ret_message` says why it cannot be used, NULL
 * when it can. */
static bool next_line(char line[LINE_MAX_BYTES], const char **ret_message)
{
    size_t size = 0;
    int c;
    *ret_message = NULL;
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        if (c == 0)
            *ret_message = "there is a NUL byte in it";
        else if (size == LINE_MAX_BYTES - 2)
            *ret_message = "the line is longer than 65534 bytes";
        else
            line[size++] = (char)c;
    }
    line[size] = 0;
    return c != EOF || (!ferror(stdin) && (size > 0 || *ret_message));
}

static int emit_lines(emitting *to)
{
    static char line[LINE_MAX_BYTES];
    static const char *words[LINE_MAX_BYTES / 2];
    kj_error err = KJ_ERROR_INIT;
    int status = CLI_DONE;
    const char *message;
    for (long number = 1; next_line(line, &message); number++) {
        int64_t step = to->step;
        size_t n_words = 0;
        if (message || !read_line(line, words, &n_words, &step, &message)) {
            cli_error("line %ld: %s", number, message);
            status = CLI_FAILED;
        } else if (n_words > 0) {
            to->step = step;
            if (emit_line(to, words, n_words, &err) < 0)
                return cli_fail(&err);
            to->step += to->step < INT64_MAX;
        }
    }
    if (ferror(stdin)) {
        cli_error("cannot read standard input: %s", strerror(errno));
        status = CLI_FAILED;
    }
    return status;
}

static int emit_words(const emitting *to, const char *const *words)
{
    kj_error err = KJ_ERROR_INIT;
    int r = add_hparams(to, &err);
    for (size_t k = 0; r >= 0 && words[k]; k++)
        if (!is_step(words[k]))
            r = add_value(to, words[k], &err);
    for (size_t k = 0; r >= 0 && texts && texts[k]; k++)
        r = add_text(to, texts[k], &err);
    if (r >= 0)
        r = kj_event_writer_flush(to->writer, &err);
    return r < 0 ? cli_fail(&err) : CLI_DONE;
}

static int check_pairs(const char *const *words, const char *option, const char *what)
{
    for (size_t k = 0; words && words[k]; k++) {
        const char *equals = strchr(words[k], '=');
        if (!equals || equals == words[k])
            return cli_usage("%s %s: it is %s", option, words[k], what);
        if (!is_writable(words[k], (size_t)(equals - words[k])))
            return cli_usage("%s %.60s: %s", option, words[k], not_writable);
    }
    return CLI_DONE;
}

/* TAG=VALUE, and step=N as in a line. */
static int check_words(const char *const *words, int64_t *step, size_t *n_values)
{
    double value;
    for (size_t k = 0; words[k]; k++) {
        *n_values += !is_step(words[k]);
        if (is_step(words[k]) && !parse_step(words[k] + 5, step))
            return cli_usage("%s: the step is a whole number", words[k]);
        if (!is_step(words[k]) && split_value(words[k], &value) == 0)
            return cli_usage("%s: it is TAG=VALUE, and VALUE a number, nan or inf", words[k]);
        if (!is_step(words[k]) && !is_writable(words[k], split_value(words[k], &value)))
            return cli_usage("%.60s: %s", words[k], not_writable);
    }
    return CLI_DONE;
}

static int read_options(emitting *to)
{
    if (!events_dir || !*events_dir)
        return cli_usage("emit needs --events DIR, the folder of an event file; a run that lives "
                         "reports its metrics itself");
    if (step_text && !parse_step(step_text, &to->step))
        return cli_usage("--step %s: a whole number", step_text);
    if (wall_time_text &&
        (!parse_value(wall_time_text, &to->wall_time) || !isfinite(to->wall_time)))
        return cli_usage("--wall-time %s: seconds since 1970", wall_time_text);
    int status = check_pairs(texts, "--text", "TAG=TEXT");
    return status ? status : check_pairs(hparam_words, "--hparam", "NAME=VALUE");
}

static int open_writer(emitting *to)
{
    kj_error err = KJ_ERROR_INIT;
    kj_event_writer_options with = KJ_EVENT_WRITER_OPTIONS_INIT;
    with.flags = KJ_EVENT_WRITER_APPEND | KJ_EVENT_WRITER_BUFFER;
    with.flags |= as_double ? KJ_EVENT_WRITER_DOUBLE : 0;
    if (kj_event_writer_open(events_dir, &with, &to->writer, &err) < 0)
        return cli_fail(&err);
    if (cli.verbose)
        cli_note("%s", kj_event_writer_path(to->writer));
    return CLI_DONE;
}

static int run_emit(int n_words, const char *const *words)
{
    static const char *const none[] = {NULL};
    emitting to = {.wall_time = NAN};
    size_t n_values = 0;
    bool from_stdin = n_words == 1 && strcmp(words[0], "-") == 0;
    int status = read_options(&to);
    if (status == CLI_DONE && !from_stdin)
        status = check_words(words, &to.step, &n_values);
    if (status == CLI_DONE && n_values == 0 && !from_stdin && !texts && !hparam_words)
        status = cli_usage("nothing to emit");
    if (status == CLI_DONE)
        status = open_writer(&to);
    if (status != CLI_DONE)
        return status;
    status = emit_words(&to, from_stdin ? none : words);
    if (status == CLI_DONE && from_stdin)
        status = emit_lines(&to);
    kj_error err = KJ_ERROR_INIT;
    if (kj_event_writer_close(to.writer, &err) < 0 && status == CLI_DONE)
        status = cli_fail(&err);
    return status;
}

static const cli_example examples[] = {
    {"kajitori emit --events logs/7 --step 100 loss=0.25 acc=0.91", "two values of step 100"},
    {"./train | grep --line-buffered -o 'loss=.*' | kajitori emit --events logs/7 -",
     "values as they come, steps counted from 0"},
    {"kajitori emit --events logs/7 --hparam lr=0.001 --hparam optimizer=adam",
     "hyperparameters of the run logs/7"},
    {"kajitori emit --events logs/7 --text 'notes=**resumed** after the power cut'",
     "a text for TensorBoard's page \"Text\""},
    {NULL, NULL},
};

const cli_command cli_emit = {
    .name = "emit",
    .usage = "--events DIR [OPTIONS] TAG=VALUE... | -",
    .summary = "write values into TensorBoard event files",
    .description =
        "Appends to one file for each folder and host, which any number of such commands may "
        "write at the same time. VALUE is a number, nan or inf. Without --step N, or the word "
        "step=N, it is step 0.\n\n"
        "The word - reads lines of standard input, which have the same words. A line without "
        "step=N has the step after that of the line before; the "
        "first has --step. Each line is in the file before the next one is read. A line that "
        "cannot be read is told and passed over; the exit status is 1 then.\n\n"
        "TensorBoard takes the first --hparam list of a run, so all of a run's are given at once.",
    .options = options,
    .examples = examples,
    .see_also = "events",
    .run = run_emit,
};
