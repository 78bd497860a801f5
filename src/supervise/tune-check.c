/* SPDX-License-Identifier: Apache-2.0 */
#include "tune-check.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"
#include "template.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_JOBS = 1024, DEFAULT_GRACE_MS = 10000 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool is_interpreter(const char *program)
{
    static const char *const names[] = {"python",  "pypy", "bash", "sh",   "dash",
                                        "zsh",     "perl", "ruby", "node", "julia",
                                        "Rscript", "lua",  "php",  "uv",   "env"};
    const char *name = base_name(program);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t size = strlen(names[k]);
        if (strncmp(name, names[k], size) == 0 &&
            name[size + strspn(name + size, "0123456789.")] == 0)
            return true;
    }
    return false;
}

/* The last part of a module's name, as if it were a file's. */
static const char *module_name(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* The script of an interpreter: its first word that is no option; `-m NAME` names a module. */
static const char *find_script(const char *const *command, uint64_t n_command)
{
    for (uint64_t k = 1; k < n_command; k++) {
        if (strcmp(command[k], "-m") == 0)
            return k + 1 < n_command ? module_name(command[k + 1]) : NULL;
        if (strcmp(command[k], "-c") == 0 || strcmp(command[k], "-e") == 0)
            return NULL;
        if (command[k][0] != '-' && !strchr(command[k], '='))
            return is_interpreter(command[k]) ? find_script(command + k, n_command - k)
                                              : command[k];
    }
    return NULL;
}

char *kji_tune_default_study(const char *const *command, uint64_t n_command)
{
    const char *script = is_interpreter(command[0]) ? find_script(command, n_command) : NULL;
    const char *name = base_name(script ? script : command[0]);
    const char *dot = strrchr(name, '.');
    size_t size = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    return strndup(name, size);
}

static int check_param_name(const kji_tune_config *config, size_t k, kj_error *err)
{
    const char *name = config->params[k].name;
    if (strcmp(name, "trial") == 0 || strcmp(name, "study") == 0)
        return kji_fail(err, KJ_EARG,
                        "parameter \"%s\": this name is taken, {%s} is the trial's own", name,
                        name);
    for (size_t j = 0; j < k; j++)
        if (strcmp(config->params[j].name, name) == 0)
            return kji_fail(err, KJ_EARG, "parameter \"%s\" is given twice", name);
    return 0;
}

static int parse_params(kji_tune_config *config, const kj_tune_options *options, kj_error *err)
{
    config->params = calloc(options->n_params + 1, sizeof *config->params);
    if (!config->params)
        return kji_fail_memory(err);
    for (uint64_t k = 0; k < options->n_params; k++) {
        int r = kji_param_spec_parse(options->params[k], &config->params[k], err);
        if (r < 0)
            return r;
        config->n_params++;
        r = check_param_name(config, k, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Any value in the range, to try the templates with. */
static char *sample_text(const kji_param_spec *spec)
{
    const kj_distribution *dist = &spec->distribution;
    kj_value value = {.type = KJ_TYPE_FLOAT, .f = dist->low};
    if (dist->kind == KJ_DISTRIBUTION_INT)
        value = (kj_value){.type = KJ_TYPE_INT, .i = dist->int_low};
    else if (dist->kind == KJ_DISTRIBUTION_CATEGORICAL)
        value = dist->choices[0];
    return kji_value_text(&value);
}

typedef struct samples {
    kji_binding *bindings;
    bool *used;
    size_t n;
} samples;

static void samples_done(samples *s)
{
    for (size_t k = 2; s->bindings && k < s->n; k++)
        free((char *)s->bindings[k].value);
    free(s->bindings);
    free(s->used);
}

static int samples_init(samples *s, const kji_tune_config *config, kj_error *err)
{
    s->bindings = calloc(config->n_params + 2, sizeof *s->bindings);
    s->used = calloc(config->n_params + 2, sizeof *s->used);
    if (!s->bindings || !s->used)
        return kji_fail_memory(err);
    s->bindings[s->n++] = (kji_binding){"trial", "0"};
    s->bindings[s->n++] = (kji_binding){"study", config->study_name};
    for (size_t k = 0; k < config->n_params; k++) {
        char *text = sample_text(&config->params[k]);
        if (!text)
            return kji_fail_memory(err);
        s->bindings[s->n++] = (kji_binding){config->params[k].name, text};
    }
    return 0;
}

/* What stands behind WHERE of "SOURCE:WHERE[:TAG]"; NULL: nothing. */
static const char *tag_of(const char *metric)
{
    const char *at = strchr(metric, ':');
    for (at = at ? at + 1 : ""; *at && *at != ':'; at++)
        at += at[0] == '\\' && (at[1] == ':' || at[1] == '\\');
    return *at ? at + 1 : NULL;
}

static bool is_source(const char *metric, const char *name)
{
    size_t size = strlen(name);
    return strncmp(metric, name, size) == 0 && metric[size] == ':';
}

/* Several metrics cannot be one objective, so those that may stand without a tag need it here. */
static int check_has_tag(const char *metric, kj_error *err)
{
    static const struct {
        const char *name, *syntax, *example;
    } sources[] = {
        {"events", "events:DIR:TAG", "validation/epoch_loss"},
        {"jsonl", "jsonl:FILE:FIELD", "val_loss"},
        {"csv", "csv:FILE:COLUMN", "val_loss"},
        {"trainer", "trainer:DIR:KEY", "eval_loss"},
    };
    const char *tag = tag_of(metric);
    for (size_t k = 0; k < sizeof sources / sizeof *sources; k++)
        if (is_source(metric, sources[k].name) && (!tag || strcmp(tag, "*") == 0))
            return kji_fail(err, KJ_EARG,
                            "metric \"%s\" names no tag; expected %s, for example %.*s:%s "
                            "(kajitori events lists what there is)",
                            metric, sources[k].syntax,
                            (int)(tag ? tag - metric - 1 : (ptrdiff_t)strlen(metric)), metric,
                            sources[k].example);
    return 0;
}

/* Our own standard input is no trial's. */
static int check_no_input(const char *metric, kj_error *err)
{
    static const char *const names[] = {"jsonl", "csv", "text"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const char *where = metric + strlen(names[k]) + 1;
        if (is_source(metric, names[k]) && where[0] == '-' && (!where[1] || where[1] == ':'))
            return kji_fail(err, KJ_EARG,
                            "metric \"%s\" reads standard input, which no trial writes to; for "
                            "what the program prints write stdout:/PATTERN/",
                            metric);
    }
    return 0;
}

/* Trials that run side by side must not write their values into one place. */
static int check_own_place(const kji_tune_config *config, const char *metric, const samples *s,
                           kj_error *err)
{
    bool own = strncmp(metric, "stdout:", 7) == 0;
    for (size_t k = 0; k < s->n; k++)
        own = own || (s->used[k] && strcmp(s->bindings[k].name, "study") != 0);
    if (own || config->jobs == 1)
        return 0;
    return kji_fail(err, KJ_EARG,
                    "metric \"%s\" is the same place for all trials, and %u run at once: put "
                    "{trial} into it, and into the command where the program is told to write",
                    metric, config->jobs);
}

static int check_metric(const kji_tune_config *config, samples *s, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *metric = NULL;
    int r = kji_template_check(config->metric, s->bindings, s->n, s->used, err);
    if (r >= 0)
        r = kji_template_expand(config->metric, s->bindings, s->n, &metric, err);
    if (r >= 0)
        r = kj_events_check(metric, err);
    if (r >= 0)
        r = check_has_tag(metric, err);
    if (r >= 0)
        r = check_no_input(metric, err);
    return r < 0 ? r : check_own_place(config, metric, s, err);
}

static int check_templates(const kji_tune_config *config, samples *s, kj_error *err)
{
    int r = check_metric(config, s, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < config->n_command; k++) {
        r = kji_template_check(config->command[k], s->bindings, s->n, s->used, err);
        if (r < 0)
            return kji_fail_prefix(err, r, "command");
    }
    for (size_t k = 2; k < s->n; k++)
        if (!s->used[k])
            return kji_fail(err, KJ_EARG,
                            "parameter %s is not used: put {%s} into the command where its value "
                            "goes",
                            s->bindings[k].name, s->bindings[k].name);
    return 0;
}

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool is_in_path(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/bin:/usr/bin"; *at;) {
        size_t size = strcspn(at, ":");
        KJI_CLEANUP(kji_freep)
        char *candidate = kji_format("%.*s%s%s", (int)size, at, size ? "/" : "./", name);
        if (candidate && is_program(candidate))
            return true;
        at += size + (at[size] == ':');
    }
    return false;
}

static int check_program(const char *program, kj_error *err)
{
    if (!*program)
        return kji_fail(err, KJ_EARG, "the command is empty");
    if (strpbrk(program, "{}"))
        return 0; /* known only for a trial */
    if (strchr(program, '/') ? is_program(program) : is_in_path(program))
        return 0;
    return kji_fail(err, KJ_EARG, "program %s: %s", program,
                    strchr(program, '/') ? "not there, or not executable" : "not found in PATH");
}

/* Looks beside `path` (the command, or our library): as installed, and as in a build tree. */
static char *find_shim_beside(const char *path)
{
    static const char *const places[] = {"kajitori-shim", "../libexec/kajitori/kajitori-shim",
                                         "supervise/kajitori-shim", "src/supervise/kajitori-shim",
                                         "../src/supervise/kajitori-shim"};
    const char *slash = strrchr(path, '/');
    for (size_t k = 0; slash && k < sizeof places / sizeof *places; k++) {
        char *shim = kji_format("%.*s/%s", (int)(slash - path), path, places[k]);
        if (!shim || is_program(shim))
            return shim;
        free(shim);
    }
    return NULL;
}

static char *find_shim(const char *wanted)
{
    const char *named = wanted ? wanted : getenv("KAJITORI_SHIM");
    if (named && *named)
        return strdup(named);
    char self[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    char *shim = NULL;
    if (size > 0) {
        self[size] = 0;
        shim = find_shim_beside(self);
    }
    Dl_info info;
    if (!shim && dladdr((void *)(uintptr_t)find_shim_beside, &info) && info.dli_fname)
        shim = find_shim_beside(info.dli_fname);
    return shim ? shim : strdup(KJI_LIBEXECDIR "/kajitori-shim");
}

static int check_shim(const kji_tune_config *config, kj_error *err)
{
    if (is_program(config->shim))
        return 0;
    return kji_fail(err, KJ_ENOENT,
                    "%s: not there, or not executable; KAJITORI_SHIM may name the kajitori-shim "
                    "that belongs to this installation",
                    config->shim);
}

/* Shortens `path` to the folder that it is in. */
static void to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = 0;
}

/* It may be written into, or made; looked at before the database is. */
static int check_trials_dir(const char *dir, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *path = strdup(dir);
    if (!path)
        return kji_fail_memory(err);
    struct stat st;
    while (stat(path, &st) < 0) {
        if (errno != ENOENT || strcmp(path, ".") == 0)
            return kji_fail_errno(err, KJ_EPERM, errno, "trials folder %s", dir);
        to_parent(path);
    }
    if (!S_ISDIR(st.st_mode))
        return kji_fail(err, KJ_EPERM, "trials folder %s: %s is not a folder", dir, path);
    if (access(path, W_OK | X_OK) < 0)
        return kji_fail_errno(err, KJ_EPERM, errno, "trials folder %s: cannot write into %s", dir,
                              path);
    return 0;
}

/* A trial has its folder and three descriptors of its metric; a start needs some more. */
static int check_open_files(uint32_t jobs, kj_error *err)
{
    enum { OF_A_TRIAL = 5, OF_OURS = 40 };
    struct rlimit limit;
    rlim_t needed = (rlim_t)jobs * OF_A_TRIAL + OF_OURS;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= needed)
        return 0;
    return kji_fail(err, KJ_EARG,
                    "%u jobs at once need %llu open files, the limit is %llu (ulimit -n raises it)",
                    jobs, (unsigned long long)needed, (unsigned long long)limit.rlim_cur);
}

static char *default_trials_dir(const char *study)
{
    char *dir = kji_format("kajitori-trials/%s", study);
    for (char *at = dir ? dir + strlen("kajitori-trials/") : NULL; at && *at; at++)
        if (*at == '/' || (*at == '.' && at[-1] == '/'))
            *at = '_';
    return dir;
}

static int copy_command(kji_tune_config *config, const kj_tune_options *options, kj_error *err)
{
    config->command = calloc(options->n_command + 1, sizeof *config->command);
    if (!config->command)
        return kji_fail_memory(err);
    for (uint64_t k = 0; k < options->n_command; k++) {
        config->command[k] = strdup(options->command[k]);
        if (!config->command[k])
            return kji_fail_memory(err);
        config->n_command++;
    }
    return 0;
}

static int copy_texts(kji_tune_config *config, const kj_tune_options *options, kj_error *err)
{
    config->study_name = options->study && *options->study
                             ? strdup(options->study)
                             : kji_tune_default_study(options->command, options->n_command);
    config->metric = strdup(options->metric);
    config->shim = find_shim(options->shim);
    if (config->study_name)
        config->trials_dir = options->trials_dir && *options->trials_dir
                                 ? strdup(options->trials_dir)
                                 : default_trials_dir(config->study_name);
    if (!config->study_name || !config->metric || !config->shim || !config->trials_dir)
        return kji_fail_memory(err);
    return copy_command(config, options, err);
}

int kji_tune_config_init(kji_tune_config *config, const kj_tune_options *options, kj_error *err)
{
    if (options->n_command == 0)
        return kji_fail(err, KJ_EARG, "no command to run; it goes behind \"--\"");
    if (!options->metric || !*options->metric)
        return kji_fail(err, KJ_EARG,
                        "no metric; for example stdout:/val_loss=(\\S+)/ or "
                        "events:logs/{trial}:validation/epoch_loss");
    if (options->jobs > MAX_JOBS)
        return kji_fail(err, KJ_EARG, "%u jobs at once; at most %d", options->jobs, (int)MAX_JOBS);
    config->jobs = options->jobs ? options->jobs : 1;
    config->grace_ms = options->grace_ms ? options->grace_ms : DEFAULT_GRACE_MS;
    config->n_trials = options->n_trials;
    config->on_event = options->on_event;
    config->userdata = options->userdata;
    int r = check_open_files(config->jobs, err);
    if (r >= 0)
        r = copy_texts(config, options, err);
    if (r >= 0)
        r = parse_params(config, options, err);
    if (r < 0)
        return r;
    samples s = {0};
    r = samples_init(&s, config, err);
    if (r >= 0)
        r = check_templates(config, &s, err);
    samples_done(&s);
    if (r >= 0)
        r = check_program(config->command[0], err);
    if (r >= 0)
        r = check_shim(config, err);
    return r < 0 ? r : check_trials_dir(config->trials_dir, err);
}

void kji_tune_config_done(kji_tune_config *config)
{
    for (size_t k = 0; k < config->n_params; k++)
        kji_param_spec_done(&config->params[k]);
    for (size_t k = 0; k < config->n_command; k++)
        free(config->command[k]);
    free(config->params);
    free(config->command);
    free(config->study_name);
    free(config->metric);
    free(config->trials_dir);
    free(config->shim);
    kji_closep(&config->worker_lock);
    kji_closep(&config->trials_fd);
}

char *kji_tune_space_json(const kji_tune_config *config)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = json_object_new_object();
    for (size_t k = 0; k < config->n_params; k++) {
        KJI_CLEANUP(kji_freep) char *text = kji_param_spec_text(&config->params[k]);
        if (!text)
            return NULL;
        json_object_object_add(json, config->params[k].name, json_object_new_string(text));
    }
    return kji_json_text(json);
}

static int space_changed(const kji_tune_config *config, const char *name, const char *old_text,
                         const char *new_text, kj_error *err)
{
    return kji_fail(err, KJ_ESTATE,
                    "the search space of study %s has changed: parameter %s was %s and is now %s; "
                    "a new search space is a new study: name it with --study NAME",
                    config->study_name, name, old_text, new_text);
}

int kji_tune_compare_space(const kji_tune_config *config, const char *stored_json, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *stored = NULL;
    int r = kji_json_parse(stored_json, strlen(stored_json), &stored, err);
    if (r < 0 || !json_object_is_type(stored, json_type_object))
        return kji_fail(err, KJ_EDATA, "the search space stored with study %s cannot be read",
                        config->study_name);
    for (size_t k = 0; k < config->n_params; k++) {
        const char *name = config->params[k].name;
        KJI_CLEANUP(kji_freep) char *now = kji_param_spec_text(&config->params[k]);
        if (!now)
            return kji_fail_memory(err);
        const char *before = kji_json_string(stored, name);
        if (!before || strcmp(before, now) != 0)
            return space_changed(config, name, before ? before : "not there", now, err);
        json_object_object_del(stored, name);
    }
    json_object_object_foreach(stored, left, value)
    {
        return space_changed(config, left, json_object_get_string(value), "not there", err);
    }
    return 0;
}
