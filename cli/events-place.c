/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read: a folder or an event file, which become events:PLACE, or a spec as docs/metrics.md
 * has it, which begins with the name of a source and a colon. A path that exists is a path.
 */
#include "events-verb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_spec(const char *place)
{
    struct stat st;
    if (lstat(place, &st) == 0)
        return false;
    const char *name;
    for (uint32_t k = 0; (name = kj_events_source_name(k)); k++)
        if (strncmp(place, name, strlen(name)) == 0 && place[strlen(name)] == ':')
            return true;
    return false;
}

/* Files that another source reads. */
typedef struct other_name {
    const char *end, *source, *rest; /* it is named source:PATHrest */
} other_name;

static const other_name other_names[] = {
    {".jsonl", "jsonl", ""},
    {".csv", "csv", ""},
    {".tsv", "csv", ""},
    {"trainer_state.json", "trainer", ""},
    {".log", "text", ":/PATTERN/"},
    {".txt", "text", ":/PATTERN/"},
};

static int check_name(const char *path)
{
    size_t size = strlen(path);
    for (size_t k = 0; k < sizeof other_names / sizeof *other_names; k++) {
        const other_name *other = &other_names[k];
        size_t n = strlen(other->end);
        if (size >= n && strcmp(path + size - n, other->end) == 0)
            return cli_usage("%s is no event file; read it as %s:%s%s", path, other->source, path,
                             other->rest);
    }
    return CLI_DONE;
}

static int check_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        if (cli_events_given.follow && errno == ENOENT)
            return CLI_DONE;
        cli_error("%s: %s", path, errno == ENOENT ? "no such folder" : strerror(errno));
        return CLI_FAILED;
    }
    return S_ISREG(st.st_mode) && !strstr(path, ".tfevents.") ? check_name(path) : CLI_DONE;
}

/* "events:PATH" with its colons escaped, for free. */
static char *spec_of(const char *path)
{
    char *spec = cli_check_memory(malloc(2 * strlen(path) + 8));
    char *to = stpcpy(spec, "events:");
    for (; *path; *to++ = *path++)
        if (*path == ':' || *path == '\\')
            *to++ = '\\';
    *to = 0;
    return spec;
}

bool cli_events_read_input(void)
{
    const char *place = cli_events_given.place;
    static const char *const names[] = {"jsonl:-", "csv:-", "text:-"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t size = strlen(names[k]);
        if (strncmp(place, names[k], size) == 0 && (place[size] == ':' || place[size] == 0))
            return is_spec(place);
    }
    return false;
}

int cli_events_wait_ms(void)
{
    return cli_events_given.follow || cli_events_read_input() ? -1 : 0;
}

static int cannot_open(const kj_error *err)
{
    if (err->code != KJ_EDATA || !cli_events_given.cursor)
        return cli_fail(err);
    cli_error("the cursor %s: %s", cli_events_given.cursor, err->message);
    return cli_status_of(err->code);
}

int cli_events_open(uint32_t flags, const char *cursor, kj_events **ret_events)
{
    const char *place = cli_events_given.place;
    kj_error err = KJ_ERROR_INIT;
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    bool finished =
        cli_events_given.finished || (cli_events_read_input() && !cli_events_given.follow);
    options.flags = flags | (finished ? (uint32_t)KJ_EVENTS_FINISHED : 0);
    options.cursor = cursor;
    if (is_spec(place))
        return kj_events_open(place, &options, ret_events, &err) < 0 ? cannot_open(&err) : CLI_DONE;
    int status = check_path(place);
    if (status != CLI_DONE)
        return status;
    char *spec = spec_of(place);
    int r = kj_events_open(spec, &options, ret_events, &err);
    free(spec);
    return r < 0 ? cannot_open(&err) : CLI_DONE;
}

int cli_events_read_all(kj_events *events)
{
    kj_error err = KJ_ERROR_INIT;
    int r;
    do
        r = kj_events_step(events, cli_events_wait_ms(), NULL, NULL, &err);
    while (r > 0);
    return r < 0 ? cli_fail(&err) : CLI_DONE;
}

/* How files end that are not read to their end. */
typedef struct ends {
    uint64_t n_damaged, n_unreadable;
} ends;

static int count_end(void *userdata, const kj_file_info *file)
{
    ends *count = userdata;
    if (!file->present || file->state == KJ_DAMAGE_NONE || file->state == KJ_DAMAGE_PARTIAL)
        return 0;
    if (file->state == KJ_DAMAGE_UNREADABLE)
        count->n_unreadable++;
    else
        count->n_damaged++;
    return 0;
}

/* `n_waiting` has also the files of sources that list none. A file that cannot be read was told. */
static void note_waiting(kj_events *events, uint64_t n_waiting)
{
    ends count = {.n_damaged = 0};
    bool finished = cli_events_given.finished;
    kj_events_list_files(events, count_end, &count);
    if (count.n_damaged > 0)
        cli_note("%llu file%s damaged%s", (unsigned long long)count.n_damaged,
                 count.n_damaged == 1 ? " is" : "s are",
                 finished ? " up to the end" : "; --finished reads what is behind the damage");
    uint64_t others = count.n_damaged + count.n_unreadable;
    uint64_t n_torn = n_waiting > others ? n_waiting - others : 0;
    if (n_torn > 0)
        cli_note("%llu file%s an unfinished record at the end%s", (unsigned long long)n_torn,
                 n_torn == 1 ? " has" : "s have", finished ? "" : " (still being written?)");
}

void cli_events_note_damage(kj_events *events)
{
    kj_events_stats stats = {.size = sizeof stats};
    kj_events_get_stats(events, &stats);
    char bytes[40] = ""; /* a record that is no event is whole */
    if (stats.skipped_bytes > 0)
        snprintf(bytes, sizeof bytes, " (%llu bytes)", (unsigned long long)stats.skipped_bytes);
    if (stats.skipped_records > 0)
        cli_note("%llu damaged record%s%s skipped", (unsigned long long)stats.skipped_records,
                 stats.skipped_records == 1 ? "" : "s", bytes);
    note_waiting(events, stats.waiting_files);
}
