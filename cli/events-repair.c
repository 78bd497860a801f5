/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --repair OUT: the event files again, below OUT, without the bytes that belong to no good record.
 * The reader tells which bytes those are, at most a thousand ranges of a file; so what came out is
 * read in its turn, and cut again, until nothing is left to cut. Other files of the folder are not
 * copied.
 */
#include "events-verb.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18, MAX_ROUNDS = 10000 };

typedef struct range {
    uint64_t begin, end;
} range;

typedef struct mending {
    kj_events *events;
    bool in_place; /* OUT itself, in a later round */
    const char *file;
    range *ranges; /* of that file */
    size_t n_ranges, capacity;
    uint64_t left_out, n_files, n_cut; /* bytes; files; files that were cut in this round */
    int status;
} mending;

static int fail(mending *state, const char *what, const char *path)
{
    cli_error("cannot %s %s: %s", what, path, strerror(errno));
    return state->status = CLI_FAILED;
}

static int add_range(void *userdata, const kj_damage *damage)
{
    mending *state = userdata;
    if (!damage->skipped || strcmp(damage->file, state->file) != 0)
        return 0;
    if (state->n_ranges == state->capacity) {
        state->capacity = state->capacity ? 2 * state->capacity : 16;
        state->ranges =
            cli_check_memory(reallocarray(state->ranges, state->capacity, sizeof *state->ranges));
    }
    state->ranges[state->n_ranges++] = (range){damage->begin, damage->end};
    return 0;
}

/* Makes the folders above `path`, which begins with OUT. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int r = mkdir(path, 0777);
        *slash = '/';
        if (r < 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

static int copy_bytes(int from, int to, uint64_t begin, uint64_t end)
{
    static char piece[PIECE];
    while (begin < end) {
        size_t want = end - begin < PIECE ? (size_t)(end - begin) : PIECE;
        ssize_t n = pread(from, piece, want, (off_t)begin);
        if (n == 0)
            errno = ESTALE; /* it has become shorter */
        if (n <= 0)
            return -1;
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(to, piece + done, (size_t)(n - done))) <= 0)
                return -1;
        begin += (uint64_t)n;
    }
    return 0;
}

/* What lies before `end` and in none of the ranges. */
static int copy_good(mending *state, int from, int to, uint64_t end)
{
    uint64_t at = 0;
    for (size_t k = 0; k < state->n_ranges; k++) {
        range cut = state->ranges[k];
        if (cut.end > end)
            cut.end = end;
        if (cut.begin < at || cut.begin >= cut.end)
            continue;
        if (copy_bytes(from, to, at, cut.begin) < 0)
            return -1;
        state->left_out += cut.end - cut.begin;
        at = cut.end;
    }
    return copy_bytes(from, to, at, end);
}

/* The good bytes of `from` to a new file, with its mode and times. */
static int write_copy(mending *state, const kj_file_info *file, int from, const char *path)
{
    struct stat st;
    if (fstat(from, &st) < 0)
        return -1;
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0777);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    bool done =
        to >= 0 && copy_good(state, from, to, file->committed) == 0 && futimens(to, times) == 0;
    int errnum = errno;
    if (to >= 0 && close(to) < 0 && done) {
        errnum = errno;
        done = false;
    }
    if (to >= 0 && !done)
        unlink(path);
    errno = errnum;
    return done ? 0 : -1;
}

/* Whoever looks at OUT sees whole files only. */
static int copy_file(mending *state, const kj_file_info *file, const char *path)
{
    char part[PATH_MAX];
    int folder = (int)(strrchr(path, '/') - path);
    if (snprintf(part, sizeof part, "%.*s/.part", folder, path) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return fail(state, "write", path);
    }
    int from = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (from < 0)
        return fail(state, "read", file->path);
    int r = write_copy(state, file, from, part);
    close(from);
    return r < 0 || rename(part, path) < 0 ? fail(state, "write", path) : CLI_DONE;
}

static uint64_t torn_bytes(const kj_file_info *file)
{
    return file->file_size > file->committed ? file->file_size - file->committed : 0;
}

static void say_left_out(const kj_file_info *file, uint64_t before, uint64_t after)
{
    char *name = cli_clean(file->path, strlen(file->path));
    printf("%s: left out %llu bytes\n", name, (unsigned long long)(after - before));
    free(name);
}

/* The first round: a file of the place becomes one of OUT. */
static int mend_file(mending *state, const kj_file_info *file)
{
    const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
    bool at_root = strcmp(file->run, ".") == 0;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s%s%s", cli_events_given.repair,
                     at_root ? "" : file->run, at_root ? "" : "/", name);
    if (n >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return fail(state, "write", file->path);
    }
    if (make_folders(path) < 0)
        return fail(state, "make the folder of", path);
    uint64_t before = state->left_out;
    int status = copy_file(state, file, path);
    state->left_out += torn_bytes(file);
    if (status == CLI_DONE && state->left_out > before)
        say_left_out(file, before, state->left_out);
    return status;
}

/* A later round: a file of OUT is replaced. */
static int mend_again(mending *state, const kj_file_info *file)
{
    uint64_t before = state->left_out;
    if (copy_file(state, file, file->path) != CLI_DONE)
        return state->status;
    state->left_out += torn_bytes(file);
    say_left_out(file, before, state->left_out);
    return CLI_DONE;
}

static int take_file(void *userdata, const kj_file_info *file)
{
    mending *state = userdata;
    if (!file->present || (!state->in_place && !cli_events_wants_run(file->run)))
        return 0;
    state->file = file->path;
    state->n_ranges = 0;
    if (file->skipped_records > 0)
        kj_events_list_damage(state->events, add_range, state);
    bool cut = state->n_ranges > 0 || torn_bytes(file) > 0;
    state->n_cut += cut;
    if (state->in_place)
        return cut ? mend_again(state, file) : CLI_DONE;
    state->n_files++;
    return mend_file(state, file);
}

/* What cannot be read cannot be copied, and nothing is without it. */
static int refuse_unreadable(void *userdata, const kj_damage *damage)
{
    mending *state = userdata;
    if (damage->kind != KJ_DAMAGE_UNREADABLE || !cli_events_wants_run(damage->run))
        return 0;
    cli_error("%s cannot be read; nothing was written", damage->file);
    return state->status = CLI_FAILED;
}

/* One round over what `events` has read. */
static int mend(mending *state)
{
    int status = cli_events_read_all(state->events);
    state->n_cut = 0;
    state->status = CLI_DONE;
    if (status == CLI_DONE && !state->in_place)
        kj_events_list_damage(state->events, refuse_unreadable, state);
    if (status == CLI_DONE && state->status == CLI_DONE)
        kj_events_list_files(state->events, take_file, state);
    if (status == CLI_DONE)
        status = state->status;
    if (status == CLI_DONE && !state->in_place)
        status = cli_events_check_found(state->events);
    kj_events_close(state->events);
    return status;
}

/* The real name of `path`, or of the nearest folder above it that is there; for free. */
static char *real_name(const char *path)
{
    char *name = cli_check_memory(strdup(path)), *real;
    while (!(real = realpath(name, NULL)) && errno == ENOENT && strcmp(name, ".") != 0) {
        char *slash = strrchr(name, '/');
        if (slash)
            slash[slash == name] = 0;
        else
            strcpy(name, ".");
    }
    free(name);
    return real;
}

/* Whether the copies would be among the runs of the place. */
static bool is_in_place(const char *out)
{
    char *place = realpath(cli_events_given.place, NULL), *real = real_name(out);
    size_t size = place ? strlen(place) : 0;
    bool in_place =
        place && real && strncmp(real, place, size) == 0 && (real[size] == '/' || real[size] == 0);
    free(place);
    free(real);
    return in_place;
}

static int check_out(const char *out)
{
    if (!*out)
        return cli_usage("--repair OUT: the name is empty");
    if (is_in_place(out))
        return cli_usage("--repair %s: it lies in %s, where it would be more runs", out,
                         cli_events_given.place);
    DIR *folder = opendir(out);
    if (!folder && errno == ENOENT)
        return CLI_DONE;
    if (!folder)
        return cli_usage("--repair %s: %s", out, strerror(errno));
    bool empty = true;
    for (const struct dirent *entry; empty && (entry = readdir(folder));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(folder);
    return empty ? CLI_DONE : cli_usage("--repair %s: it is not empty", out);
}

int cli_events_repair(void)
{
    const uint32_t flags = KJ_EVENTS_CHECK_ALL | KJ_EVENTS_FINISHED;
    const char *out = cli_events_given.repair;
    mending state = {.n_files = 0};
    int status = check_out(out);
    if (status == CLI_DONE)
        status = cli_events_open(flags, NULL, &state.events);
    if (status == CLI_DONE)
        status = mend(&state);
    cli_events_given.place = out;
    state.in_place = true;
    for (int round = 0; status == CLI_DONE && state.n_cut > 0 && round < MAX_ROUNDS; round++) {
        status = cli_events_open(flags, NULL, &state.events);
        if (status == CLI_DONE)
            status = mend(&state);
    }
    free(state.ranges);
    if (status == CLI_DONE && cli.format == CLI_TABLE)
        printf("%s: %llu file%s, %llu bytes left out\n", out, (unsigned long long)state.n_files,
               state.n_files == 1 ? "" : "s", (unsigned long long)state.left_out);
    return status;
}
