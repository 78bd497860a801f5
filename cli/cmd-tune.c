/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hyperparameter search over an unchanged program. The library does the work; here are its options,
 * what is shown while it goes on (standard error), and the table at the end (standard output).
 */
#include "output.h"

#include <kajitori/engine.h>

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EXIT_INTERRUPTED = 130 };

static char **params;
static const char *metric, *sampler, *pruner, *storage_url, *study_name, *trials_dir, *grace_text;
static int minimize, maximize, jobs = 1;
static long long n_trials, seed = -1;
static const struct poptOption options[] = {
    {"param", 'p', POPT_ARG_ARGV, &params, 0,
     "a parameter of the search: NAME=LO..HI[:int][:log][:step=S] or NAME=a|b|c; once for each",
     "SPEC"},
    {"metric", 'm', POPT_ARG_STRING, &metric, 0,
     "where its values are: events:DIR:TAG, stdout:/PATTERN/, jsonl:FILE:FIELD, csv:FILE:COLUMN, "
     "trainer:DIR:KEY",
     "SPEC"},
    {"minimize", 0, POPT_ARG_NONE, &minimize, 0, "smaller is better (the default)", NULL},
    {"maximize", 0, POPT_ARG_NONE, &maximize, 0, "greater is better", NULL},
    {"trials", 'n', POPT_ARG_LONGLONG, &n_trials, 0,
     "end when the study has this many finished trials, earlier calls counted (0: no end)", "N"},
    {"jobs", 'j', POPT_ARG_INT, &jobs, 0, "at most this many trials at once (1)", "N"},
    {"sampler", 0, POPT_ARG_STRING, &sampler, 0, "NAME[:key=value,...]; 'help' lists them (random)",
     "SAMPLER"},
    {"pruner", 0, POPT_ARG_STRING, &pruner, 0, "NAME[:key=value,...]; 'help' lists them (median)",
     "PRUNER"},
    {"seed", 0, POPT_ARG_LONGLONG, &seed, 0, "for the sampler; 0 to 4294967295", "N"},
    {"study", 's', POPT_ARG_STRING, &study_name, 0,
     "name of the study (the script's file name without its ending)", "NAME"},
    {"storage", 0, POPT_ARG_STRING, &storage_url, 0,
     "its database (KAJITORI_STORAGE, else sqlite:///kajitori.db)", "URL"},
    {"trials-dir", 0, POPT_ARG_STRING, &trials_dir, 0,
     "folder for output and exit status of each trial (kajitori-trials/STUDY)", "DIR"},
    {"grace", 0, POPT_ARG_STRING, &grace_text, 0,
     "time between asking a trial to stop, SIGTERM and SIGKILL (10)", "SECONDS"},
    POPT_TABLEEND,
};

typedef struct progress {
    bool terminal;
    bool line_is_open; /* the updating line is on the screen */
    bool has_best;
    double best;
    int direction;
    uint64_t n_pruned, n_failed;
    uint64_t n_started; /* or taken over, by this call */
    char last_cut[160];
} progress;

static kj_tune *running_tune;

static void on_signal(int signal_number)
{
    if (running_tune)
        kj_tune_interrupt(running_tune);
    if (running_tune && signal_number == SIGTERM)
        kj_tune_interrupt(running_tune); /* stop, do not wait for trainings to end */
}

static void watch_signals(bool on)
{
    struct sigaction action = {.sa_handler = on ? on_signal : SIG_DFL, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void close_line(progress *p)
{
    if (p->line_is_open)
        fputs("\r\033[K", stderr);
    p->line_is_open = false;
}

static size_t terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* One line that is never wider than the terminal, since it could not be drawn anew then. */
static void draw_line(progress *p, const kj_tune_event *event)
{
    if (!p->terminal || cli.quiet)
        return;
    char line[400], total[24] = "", best[CLI_NUMBER_TEXT + 8] = "";
    if (n_trials > 0)
        snprintf(total, sizeof total, "/%lld", n_trials);
    if (p->has_best)
        snprintf(best, sizeof best, ", best %.6g", p->best);
    int n = snprintf(line, sizeof line,
                     "%" PRIu64 "%s trials, %" PRIu64 " running, %" PRIu64 " pruned, %" PRIu64
                     " failed%s%s%s",
                     event->n_finished, total, event->n_running, p->n_pruned, p->n_failed, best,
                     *p->last_cut ? "; " : "", p->last_cut);
    size_t size = n > 0 ? strnlen(line, sizeof line) : 0, room = terminal_width() - 1;
    char *clean = cli_clean(line, size < room ? size : room);
    fprintf(stderr, "\r\033[K%s", clean);
    free(clean);
    fflush(stderr);
    p->line_is_open = true;
}

static void count_end(progress *p, int state, double value)
{
    p->n_pruned += state == KJ_TRIAL_PRUNED;
    p->n_failed += state == KJ_TRIAL_FAIL;
    bool better = p->direction == KJ_DIRECTION_MAXIMIZE ? value > p->best : value < p->best;
    if (state == KJ_TRIAL_COMPLETE && (!p->has_best || better)) {
        p->has_best = true;
        p->best = value;
    }
}

/* What earlier calls of the study left. */
static void count_earlier(progress *p, kj_study *study)
{
    kj_trial_list *list;
    if (kj_study_list_trials(study, &list, NULL) < 0)
        return; /* the line then counts from here; a database that fails says so in kj_tune_run */
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        const kj_trial_info *trial = kj_trial_list_get(list, k);
        count_end(p, trial->state, trial->value);
    }
    kj_trial_list_free(list);
}

static void note_end(const kj_tune_event *event)
{
    const char *state = kj_trial_state_name(event->state);
    if (event->state == KJ_TRIAL_COMPLETE)
        cli_note("trial %" PRId64 " COMPLETE, value %.6g%s%s", event->trial, event->value,
                 *event->text ? ", " : "", event->text);
    else
        cli_note("trial %" PRId64 " %s: %s", event->trial, state ? state : "?", event->text);
}

static void note_event(progress *p, const kj_tune_event *event)
{
    switch (event->kind) {
    case KJ_TUNE_STUDY_OPENED:
        cli_note("study %s %s%s", kj_study_get_name(kj_tune_get_study(running_tune)), event->text,
                 n_trials == 0 ? "; without --trials it goes on until Ctrl-C" : "");
        break;
    case KJ_TUNE_TRIAL_STARTED:
        p->n_started++;
        if (!p->terminal)
            cli_note("trial %" PRId64 " started%s%s", event->trial, *event->text ? ": " : "",
                     event->text);
        break;
    case KJ_TUNE_TRIAL_ADOPTED:
        p->n_started++;
        cli_note("trial %" PRId64 " was found running and is followed on", event->trial);
        break;
    case KJ_TUNE_CUT:
        snprintf(p->last_cut, sizeof p->last_cut, "cut %" PRId64 ": %s", event->trial, event->text);
        if (!p->terminal)
            cli_note("trial %" PRId64 " cut at step %" PRId64 ": %s", event->trial, event->step,
                     event->text);
        break;
    case KJ_TUNE_STOPPING:
        if (!p->terminal || cli.verbose)
            cli_note("trial %" PRId64 " is being stopped: %s", event->trial, event->text);
        break;
    case KJ_TUNE_TRIAL_ENDED:
        count_end(p, event->state, event->value);
        if (!p->terminal || event->state == KJ_TRIAL_FAIL)
            note_end(event);
        break;
    case KJ_TUNE_WARNING:
        if (event->trial >= 0)
            cli_note("trial %" PRId64 ": %s", event->trial, event->text);
        else
            cli_note("%s", event->text);
        break;
    case KJ_TUNE_INTERRUPTED:
        cli_note("%s", event->text);
        break;
    case KJ_TUNE_REPORT:
        if (cli.verbose)
            cli_note("trial %" PRId64 " step %" PRId64 " value %.6g", event->trial, event->step,
                     event->value);
        break;
    }
}

static void on_event(void *userdata, const kj_tune_event *event)
{
    progress *p = userdata;
    close_line(p);
    note_event(p, event);
    if (event->kind != KJ_TUNE_FINISHED && event->kind != KJ_TUNE_STUDY_OPENED)
        draw_line(p, event);
}

enum { NUMBER, STATE, VALUE, PARAMS, STEPS, REASON, N_COLUMNS };
static const char *const columns[] = {"number", "state",  "value", "params",
                                      "steps",  "reason", NULL};

static struct json_object *value_json(const kj_value *value)
{
    switch (value->type) {
    case KJ_TYPE_BOOL:
        return json_object_new_boolean(value->i != 0);
    case KJ_TYPE_INT:
        return json_object_new_int64(value->i);
    case KJ_TYPE_FLOAT:
        return cli_json_double(value->f);
    case KJ_TYPE_STRING:
        return json_object_new_string(value->s);
    default:
        return NULL;
    }
}

static struct json_object *params_json(const kj_trial_info *trial)
{
    struct json_object *object = json_object_new_object();
    for (uint64_t k = 0; k < trial->n_params; k++)
        json_object_object_add(object, trial->params[k].name, value_json(&trial->params[k].value));
    return object;
}

/* "lr=0.00312 units=32", rounded for people. */
static void params_text(const kj_trial_info *trial, char *text, size_t room)
{
    size_t used = 0;
    *text = 0;
    for (uint64_t k = 0; k < trial->n_params && used < room; k++) {
        const kj_value *value = &trial->params[k].value;
        const char *name = trial->params[k].name, *gap = k ? " " : "";
        int n;
        if (value->type == KJ_TYPE_FLOAT)
            n = snprintf(text + used, room - used, "%s%s=%.4g", gap, name, value->f);
        else if (value->type == KJ_TYPE_STRING)
            n = snprintf(text + used, room - used, "%s%s=%s", gap, name, value->s);
        else
            n = snprintf(text + used, room - used, "%s%s=%" PRId64, gap, name, value->i);
        used += (size_t)n;
    }
}

static struct json_object *attribute_reason(const kj_trial_info *trial)
{
    if (!trial->attributes_json)
        return NULL;
    struct json_object *attributes = json_tokener_parse(trial->attributes_json);
    struct json_object *value = NULL;
    char *text = NULL;
    if (json_object_object_get_ex(attributes, "kajitori:error", &value))
        text = strdup(json_object_get_string(value));
    else if (json_object_object_get_ex(attributes, "kajitori:stopped_by", &value) &&
             (text = malloc(strlen(json_object_get_string(value)) + 16)))
        sprintf(text, "%s by %s", trial->state == KJ_TRIAL_PRUNED ? "pruned" : "stopped",
                json_object_get_string(value));
    struct json_object *reason = text ? json_object_new_string(text) : NULL;
    free(text);
    json_object_put(attributes);
    return reason;
}

static struct json_object *reason_json(const kj_trial_info *trial)
{
    if (trial->cut && trial->cut->reason && *trial->cut->reason)
        return json_object_new_string(trial->cut->reason);
    return attribute_reason(trial);
}

static struct json_object *cell_value(const kj_trial_info *trial)
{
    if (!trial->has_value)
        return NULL;
    char text[CLI_NUMBER_TEXT];
    if (cli.format != CLI_TABLE)
        return cli_json_double(trial->value);
    snprintf(text, sizeof text, "%.6g", trial->value);
    return json_object_new_string(text);
}

static struct json_object *cell_params(const kj_trial_info *trial)
{
    char text[300];
    if (cli.format != CLI_TABLE)
        return params_json(trial);
    params_text(trial, text, sizeof text);
    return json_object_new_string(text);
}

static void make_cells(const kj_trial_info *trial, struct json_object *cells[N_COLUMNS])
{
    const char *state = kj_trial_state_name(trial->state);
    cells[NUMBER] = json_object_new_int64(trial->number);
    cells[STATE] = json_object_new_string(state ? state : "?");
    cells[VALUE] = cell_value(trial);
    cells[PARAMS] = cell_params(trial);
    cells[STEPS] = json_object_new_int64((int64_t)trial->n_reports);
    cells[REASON] = reason_json(trial);
}

/* What was run, and what all trials would have cost at the length of the longest complete one. */
typedef struct cost {
    uint64_t n_run, n_longest, n_counted;
} cost;

static cost count_cost(const kj_trial_list *list)
{
    cost c = {0};
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        const kj_trial_info *trial = kj_trial_list_get(list, k);
        if (trial->state != KJ_TRIAL_COMPLETE && trial->state != KJ_TRIAL_PRUNED)
            continue;
        c.n_run += trial->n_reports;
        c.n_counted++;
        if (trial->state == KJ_TRIAL_COMPLETE && trial->n_reports > c.n_longest)
            c.n_longest = trial->n_reports;
    }
    return c;
}

static void print_summary(const kj_trial_info *best, const cost *c)
{
    if (best) {
        char text[300];
        params_text(best, text, sizeof text);
        char *clean = cli_clean(text, strlen(text));
        printf("\nbest: trial %" PRId64 ", value %.6g%s%s\n", best->number, best->value,
               *clean ? ", " : "", clean);
        free(clean);
    } else {
        puts("\nbest: no trial is complete yet");
    }
    uint64_t full = c->n_longest * c->n_counted;
    if (full > 0)
        printf("steps: %" PRIu64 " of %" PRIu64 " reported (%.0f%% saved)\n", c->n_run, full,
               full > c->n_run ? 100.0 * (double)(full - c->n_run) / (double)full : 0.0);
}

static void print_rows(const kj_trial_list *list)
{
    cli_table *table = cli_table_new(columns);
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++) {
        struct json_object *cells[N_COLUMNS];
        make_cells(kj_trial_list_get(list, k), cells);
        cli_table_add_row(table);
        for (int column = 0; column < N_COLUMNS; column++)
            cli_table_set(table, column, cells[column]);
    }
    cli_table_print(table);
    cli_table_free(table);
}

static struct json_object *trial_json(const kj_trial_info *trial)
{
    struct json_object *cells[N_COLUMNS], *object = json_object_new_object();
    make_cells(trial, cells);
    for (int column = 0; column < N_COLUMNS; column++)
        json_object_object_add(object, columns[column], cells[column]);
    return object;
}

/* What the table and the lines below it say, as one object (docs/tune.md). */
static void print_whole(const char *name, const kj_trial_list *list, const kj_trial_info *best,
                        const cost *c)
{
    struct json_object *whole = json_object_new_object(), *trials = json_object_new_array();
    for (uint64_t k = 0; k < kj_trial_list_size(list); k++)
        json_object_array_add(trials, trial_json(kj_trial_list_get(list, k)));
    json_object_object_add(whole, "study", json_object_new_string(name));
    json_object_object_add(whole, "trials", trials);
    json_object_object_add(whole, "best", best ? trial_json(best) : NULL);
    json_object_object_add(whole, "steps_run", json_object_new_uint64(c->n_run));
    json_object_object_add(whole, "steps_full",
                           json_object_new_uint64(c->n_longest * c->n_counted));
    if (cli.format == CLI_YAML)
        cli_print_yaml(whole);
    else
        cli_print_json(whole);
    json_object_put(whole);
}

static int print_result(kj_study *study)
{
    kj_error err = KJ_ERROR_INIT;
    kj_trial_list *list;
    if (kj_study_list_trials(study, &list, &err) < 0)
        return cli_fail(&err);
    const kj_trial_info *best = kj_trial_list_best(list);
    cost c = count_cost(list);
    if (cli.format == CLI_JSON || cli.format == CLI_YAML)
        print_whole(kj_study_get_name(study), list, best, &c);
    else
        print_rows(list);
    if (cli.format == CLI_TABLE)
        print_summary(best, &c);
    kj_trial_list_free(list);
    return CLI_DONE;
}

typedef int (*info_fn)(uint64_t, const char **, const char **);
typedef int (*option_fn)(uint64_t, uint64_t, kj_option_info *);

static int list_kinds(info_fn get_info, option_fn get_option)
{
    const char *name, *help;
    for (uint64_t k = 0; get_info(k, &name, &help) == 1; k++) {
        printf("%-12s %s\n", name, help);
        kj_option_info info = {.size = sizeof info};
        for (uint64_t j = 0; get_option(k, j, &info) == 1; j++)
            printf("    %s=%s  %s\n", info.key, info.default_text, info.help);
    }
    return CLI_DONE;
}

/* Takes "NAME:options" apart. *ret_name is for free; *ret_options points into `text`. */
static void split_kind(const char *text, char **ret_name, const char **ret_options)
{
    *ret_name = NULL;
    *ret_options = NULL;
    if (!text)
        return;
    size_t size = strcspn(text, ":");
    *ret_name = strndup(text, size);
    if (text[size])
        *ret_options = text + size + 1;
}

static uint64_t count_params(void)
{
    uint64_t n = 0;
    while (params && params[n])
        n++;
    return n;
}

static int check_options(int n_words, int *ret_grace_ms)
{
    if (n_words == 0)
        return cli_usage("say which program to run, behind '--'");
    if (!metric)
        return cli_usage("--metric is missing: where are the values? For example "
                         "'stdout:/val_loss=(\\S+)/'");
    if (minimize && maximize)
        return cli_usage("--minimize and --maximize exclude each other");
    if (n_trials < 0)
        return cli_usage("--trials %lld: must not be negative", n_trials);
    if (jobs < 1)
        return cli_usage("--jobs %d: must be at least 1", jobs);
    if (seed < -1 || seed > UINT32_MAX)
        return cli_usage("--seed %lld: must be from 0 to 4294967295", seed);
    if (grace_text && (!cli_parse_seconds(grace_text, ret_grace_ms) || *ret_grace_ms < 1))
        return cli_usage("--grace %s: expected a number of seconds above 0", grace_text);
    return CLI_DONE;
}

static int run_study(const kj_tune_options *tune_options, progress *p)
{
    kj_error err = KJ_ERROR_INIT;
    kj_tune *tune;
    if (kj_tune_open(tune_options, &tune, &err) < 0)
        return cli_fail(&err);
    running_tune = tune;
    count_earlier(p, kj_tune_get_study(tune));
    watch_signals(true);
    int r = kj_tune_run(tune, &err);
    watch_signals(false);
    close_line(p);
    int status = CLI_DONE;
    if (r < 0 && r != KJ_EINTERRUPTED) {
        status = cli_fail(&err);
    } else {
        if (r >= 0 && p->n_started == 0)
            cli_note("the study has its %lld trials already; a greater --trials goes on with it",
                     n_trials);
        status = print_result(kj_tune_get_study(tune));
        if (r == KJ_EINTERRUPTED) {
            cli_note("%s", err.message);
            status = EXIT_INTERRUPTED;
        }
    }
    running_tune = NULL;
    kj_tune_close(tune);
    return status;
}

static int run_tune(int n_words, const char *const *words)
{
    if (pruner && strcmp(pruner, "help") == 0)
        return list_kinds(kj_pruner_get_info, kj_pruner_get_option);
    if (sampler && strcmp(sampler, "help") == 0)
        return list_kinds(kj_sampler_get_info, kj_sampler_get_option);
    int grace_ms = 0;
    int status = check_options(n_words, &grace_ms);
    if (status != CLI_DONE)
        return status;
    char *pruner_name, *sampler_name;
    progress p = {.terminal = isatty(STDERR_FILENO),
                  .direction = maximize ? KJ_DIRECTION_MAXIMIZE : KJ_DIRECTION_MINIMIZE};
    kj_tune_options tune_options = {
        .size = sizeof tune_options,
        .direction = p.direction,
        .storage = storage_url ? storage_url : getenv("KAJITORI_STORAGE"),
        .study = study_name,
        .params = (const char *const *)params,
        .n_params = count_params(),
        .metric = metric,
        .command = words,
        .n_command = (uint64_t)n_words,
        .n_trials = (uint64_t)n_trials,
        .jobs = (uint32_t)jobs,
        .has_seed = seed >= 0,
        .seed = (uint32_t)seed,
        .grace_ms = (uint32_t)grace_ms,
        .trials_dir = trials_dir,
        .on_event = on_event,
        .userdata = &p,
    };
    split_kind(pruner, &pruner_name, &tune_options.pruner_options);
    split_kind(sampler, &sampler_name, &tune_options.sampler_options);
    tune_options.pruner = pruner_name;
    tune_options.sampler = sampler_name;
    status = run_study(&tune_options, &p);
    free(pruner_name);
    free(sampler_name);
    return status;
}

static const cli_example examples[] = {
    {"kajitori tune -p lr=1e-4..1e-1:log -m 'stdout:/val_loss=(\\S+)/' -n 24 -j 2 -- python "
     "train.py --lr {lr}",
     "24 trials, two at a time, the metric from what the program prints"},
    {"kajitori tune -p units=16..128:int -m events:logs/{trial}:validation/epoch_loss -n 24 -- "
     "python train.py --units {units} --logdir logs/{trial}",
     "the metric from TensorBoard event files"},
    {"kajitori tune --pruner help", "the pruners and their options"},
    {NULL, NULL},
};

const cli_command cli_tune = {
    .name = "tune",
    .usage = "[OPTIONS] -- PROGRAM [ARGUMENT...]",
    .summary = "search hyperparameters with a program, and prune its trials",
    .description =
        "Runs the program again and again with sampled parameters, follows its metric while it "
        "runs, and ends trials that a pruner finds hopeless: over the channel when the program has "
        "one, else with SIGTERM, then SIGKILL; nothing that it started is left. In PROGRAM, in its "
        "arguments and in --metric, {NAME} is the value of a parameter, {trial} the trial's "
        "number, {study} the study's name; {{ and }} are braces.\n\n"
        "The same command line goes on with a study: after Ctrl-C, after a crash, or with a "
        "greater --trials. Ctrl-C once lets the running trials end, twice stops them, three times "
        "kills them; stopped ones are tried again. Trials outlive this command when it is killed; "
        "the next one takes them over.\n\n"
        "Exit status 0 when all trials are finished, 130 after Ctrl-C, 1 when it failed, 2 for "
        "wrong options.",
    .options = options,
    .formats = CLI_TABLE | CLI_JSON | CLI_JSONL | CLI_CSV | CLI_YAML,
    .examples = examples,
    .see_also = "ps stop events",
    .run = run_tune,
};
