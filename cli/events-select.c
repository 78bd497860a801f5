/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --run and --tag. A word chooses the one of exactly this name, or, as a glob (* ? [...]), all that
 * fit; a name that holds such characters is found either way.
 */
#include "events-verb.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_WORDS = 1000, MAX_NAMED = 12 };

/* Which words of --tag and --run have matched. */
static bool tag_found[MAX_WORDS], run_found[MAX_WORDS];

static bool fits(const char *word, const char *name, uint64_t size)
{
    if (strlen(word) == size && memcmp(word, name, size) == 0)
        return true;
    return strpbrk(word, "*?[") && fnmatch(word, name, 0) == 0;
}

/* Whether one of the words fits; all of them when there is none. */
static bool is_chosen(const char *const *words, bool *found, const char *name, uint64_t size)
{
    bool chosen = !words;
    for (size_t k = 0; words && words[k]; k++) {
        if (!fits(words[k], name, size))
            continue;
        chosen = true;
        if (k < MAX_WORDS)
            found[k] = true;
    }
    return chosen;
}

bool cli_events_wants_run(const char *run)
{
    return is_chosen((const char *const *)cli_events_given.runs, run_found, run, strlen(run));
}

bool cli_events_wants(const char *run, const char *tag, uint64_t tag_size)
{
    return cli_events_wants_run(run) &&
           is_chosen((const char *const *)cli_events_given.tags, tag_found, tag, tag_size);
}

static const char *first_missing(const char **words, const bool *found)
{
    for (size_t k = 0; words && words[k] && k < MAX_WORDS; k++)
        if (!found[k])
            return words[k];
    return NULL;
}

/* The names that are nearest to `wanted`, each once. */
typedef struct nearest {
    const char *wanted; /* NULL: the TAG that the SPEC names */
    bool are_runs;
    uint64_t n; /* all that differ from the one before */
    int n_named;
    char *names[MAX_NAMED];
    int distances[MAX_NAMED];
    const char *last_run;
    bool is_run_and_tag; /* `wanted` is RUN/TAG of one that is there */
} nearest;

static bool is_run_and_tag(const char *wanted, const kj_tag_info *tag)
{
    size_t size = strlen(tag->run);
    return wanted && strncmp(wanted, tag->run, size) == 0 && wanted[size] == '/' &&
           strcmp(wanted + size + 1, tag->tag) == 0;
}

static int distance(const char *wanted, const char *name)
{
    if (!wanted)
        return 0;
    int d = cli_distance(wanted, name);
    return strstr(name, wanted) && d > 1 ? 1 : d;
}

static void insert_name(nearest *list, char *name, int d)
{
    int at = list->n_named;
    while (at > 0 && list->distances[at - 1] > d)
        at--;
    if (at == MAX_NAMED) {
        free(name);
        return;
    }
    if (list->n_named == MAX_NAMED)
        free(list->names[--list->n_named]);
    size_t after = (size_t)(list->n_named - at);
    memmove(list->names + at + 1, list->names + at, after * sizeof *list->names);
    memmove(list->distances + at + 1, list->distances + at, after * sizeof *list->distances);
    list->names[at] = name;
    list->distances[at] = d;
    list->n_named++;
}

/* How the list has a name, for free. Takes `clean`. */
static char *shown(char *clean)
{
    enum { MOST = 60 };
    size_t size = strlen(clean);
    if (size == 0) {
        free(clean);
        return cli_check_memory(strdup("(empty tag)"));
    }
    if (size > MOST) {
        size = MOST - 3;
        while ((clean[size] & 0xc0) == 0x80)
            size--;
        strcpy(clean + size, "...");
    }
    return clean;
}

static int add_name(void *userdata, const kj_tag_info *tag)
{
    nearest *list = userdata;
    if (list->wanted && !tag->selected)
        return 0;
    bool same_run = list->last_run && strcmp(list->last_run, tag->run) == 0;
    list->last_run = tag->run;
    if (list->are_runs && same_run)
        return 0;
    list->n++;
    list->is_run_and_tag |= !list->are_runs && is_run_and_tag(list->wanted, tag);
    char *clean =
        list->are_runs ? cli_clean(tag->run, strlen(tag->run)) : cli_clean(tag->tag, tag->tag_size);
    int d = distance(list->wanted, clean);
    clean = shown(clean);
    if (!list->are_runs && strcmp(tag->run, ".") != 0) {
        char *name = NULL;
        if (asprintf(&name, "%s (in %s)", clean, tag->run) < 0)
            name = NULL;
        free(clean);
        clean = cli_check_memory(name);
    }
    insert_name(list, clean, d);
    return 0;
}

/* `awaited`: it may still come, and is no error. */
static void say_missing(const nearest *list, bool awaited)
{
    char text[1000] = "", more[40] = "", wanted[300] = "such tag";
    size_t size = 0;
    uint64_t n_named = 0;
    for (int k = 0; k < list->n_named && size + strlen(list->names[k]) + 3 < sizeof text; k++) {
        size += (size_t)sprintf(text + size, "%s%s", k ? ", " : "", list->names[k]);
        n_named++;
    }
    if (list->n > n_named)
        snprintf(more, sizeof more, " and %llu more", (unsigned long long)(list->n - n_named));
    if (list->wanted)
        snprintf(wanted, sizeof wanted, "%s '%s'", list->are_runs ? "run" : "tag", list->wanted);
    const char *run = cli_events_given.runs && !list->are_runs ? cli_events_given.runs[0] : NULL;
    (awaited ? cli_note
             : cli_error)("%s: no %s%s%s%s; %sthere is: %s%s", cli_events_given.place, wanted,
                          run ? " in run " : "", run ? run : "", awaited ? " yet" : "",
                          list->is_run_and_tag ? "give --run RUN --tag TAG; " : "", text, more);
}

static int check_place(const kj_events *events, bool awaited)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(events, &stats);
    struct stat st;
    if (stats.files > 0 || stats.points > 0 || stat(cli_events_given.place, &st) == 0)
        return CLI_DONE;
    if (awaited)
        cli_note("%s: there is nothing yet", cli_events_given.place);
    else
        cli_error("%s: there is nothing yet; --follow waits for it", cli_events_given.place);
    return CLI_FAILED;
}

static int count_unselected(void *userdata, const kj_tag_info *tag)
{
    uint64_t *n = userdata;
    if (tag->selected)
        *n = 0;
    else
        ++*n;
    return tag->selected != 0;
}

/* Whether the SPEC names a TAG that is not there, though others are. */
static bool misses_its_tag(kj_events *events)
{
    uint64_t n_unselected = 0;
    kj_events_list_tags(events, count_unselected, &n_unselected, NULL);
    return n_unselected > 0;
}

static int check_found(kj_events *events, bool awaited)
{
    kj_error err = KJ_ERROR_INIT;
    if (check_place(events, awaited) != CLI_DONE)
        return CLI_FAILED;
    const char *run = first_missing(cli_events_given.runs, run_found);
    const char *tag = first_missing(cli_events_given.tags, tag_found);
    if (!run && misses_its_tag(events))
        tag = NULL;
    else if (!run && !tag)
        return CLI_DONE;
    nearest list = {.wanted = run ? run : tag, .are_runs = run != NULL};
    if (kj_events_list_tags(events, add_name, &list, &err) < 0)
        return cli_fail(&err);
    if (list.n == 0 && !awaited)
        cli_error("%s: there are no scalars in it", cli_events_given.place);
    else if (list.n > 0)
        say_missing(&list, awaited);
    for (int k = 0; k < list.n_named; k++)
        free(list.names[k]);
    return CLI_FAILED;
}

int cli_events_check_found(kj_events *events)
{
    return check_found(events, false);
}

static int look_up(void *userdata, const kj_tag_info *tag)
{
    (void)userdata;
    if (tag->selected)
        cli_events_wants(tag->run, tag->tag, tag->tag_size);
    return 0;
}

void cli_events_note_missing(kj_events *events)
{
    kj_events_list_tags(events, look_up, NULL, NULL);
    check_found(events, true);
}
