/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer:WHERE[:KEY]. The state file of the Hugging Face Trainer: its `log_history` has an object
 * for each time it logged. The file is written whole at each checkpoint, into the folder of that
 * checkpoint, and at the end into the folder above; each holds all that was logged so far. So only
 * one of them is read: at first that of the greatest step, later whatever is written; and an entry
 * that stood in the same place before is known (row-memory.h).
 */
#include "clock.h"
#include "errors.h"
#include "files.h"
#include "json-points.h"
#include "line-file.h"
#include "mem.h"
#include "number.h"
#include "row-memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>

enum { MAX_STATE_BYTES = 256 << 20, MAX_FILES = 10000, MAX_WARNINGS = 10 };

static const char syntax[] = "trainer:FILE[:KEY]";
static const char state_name[] = "trainer_state.json";
static const char folder_prefix[] = "checkpoint-";

/* A file that has been seen. */
struct state_file {
    char *path;
    int64_t number;   /* of its checkpoint; INT64_MAX: not in one */
    struct stat last; /* as it was read */
    int64_t changed;  /* monotonic: when it was last seen to change */
    bool present;
    bool fresh;   /* written since */
    bool unready; /* what was read is not a whole state: it is being written */
    bool skipped; /* such a one, given up */
    uint64_t n_records, n_points;
};

/* What has been read, until its entries are handed over. */
struct state {
    char *text;
    size_t size;
    struct json_object *json, *history; /* the second is in the first */
    int64_t step;
    size_t file;
    size_t next; /* entry */
    bool in_use; /* that one's points are being handed over */
};

struct trainer {
    const kj_events_options *options;
    kji_watch *watch;
    kj_events_stats *stats;
    const char *root;
    kji_run *run;
    int wd;
    bool dirty;
    bool started;      /* something has been read */
    int64_t next_poll; /* monotonic */
    struct state_file *files;
    size_t n_files, files_capacity;
    struct state state;
    kji_batch batch;
    kji_row_memory rows;
    uint32_t generation; /* one more for each time that entries were others than before */
    size_t skip_points;  /* of the next new entry: delivered by the reader of the cursor */
    int n_warnings;
};

static int trainer_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    int r = kji_spec_split_tag(rest, "file", syntax, "key", ret_where, ret_tag, err);
    if (r == 0)
        kji_spec_trim_slashes(*ret_where);
    return r;
}

/* As the Trainer calls it in TensorBoard: "eval/loss" is eval_loss here, "train/loss" is loss. */
static int take_tensorboard_name(const kji_source_context *context)
{
    const char *tag = context->spec->tag;
    if (!tag)
        return 0;
    KJI_CLEANUP(kji_freep) char *key = NULL;
    if (strncmp(tag, "train/", 6) == 0)
        key = strdup(tag + 6);
    else if (strncmp(tag, "eval/", 5) == 0 || strncmp(tag, "test/", 5) == 0)
        key = kji_format("%.4s_%s", tag, tag + 5);
    else
        return 0;
    return key && kji_tag_table_alias(context->tags, key) ? 0 : KJ_EMEM;
}

static int trainer_open(void *instance, const kji_source_context *context, kj_error *err)
{
    struct trainer *trainer = instance;
    trainer->options = context->options;
    trainer->watch = context->watch;
    trainer->stats = context->stats;
    trainer->root = context->spec->where;
    trainer->wd = -1;
    trainer->dirty = true;
    trainer->batch = (kji_batch)KJI_BATCH_INIT;
    trainer->run = kji_tag_table_run(context->tags, ".");
    if (!trainer->run || take_tensorboard_name(context) < 0)
        return kji_fail_memory(err);
    return 0;
}

static void drop_state(struct state *state)
{
    json_object_put(state->json);
    free(state->text);
    *state = (struct state){0};
}

static void trainer_close(void *instance)
{
    struct trainer *trainer = instance;
    drop_state(&trainer->state);
    for (size_t k = 0; k < trainer->n_files; k++)
        free(trainer->files[k].path);
    free(trainer->files);
    kji_batch_done(&trainer->batch);
    kji_row_memory_done(&trainer->rows);
}

static void warn(struct trainer *trainer, const char *path, const char *what)
{
    if (trainer->n_warnings++ < MAX_WARNINGS)
        kji_log(KJ_LOG_WARNING, "%s: %s%s", path, what,
                trainer->n_warnings == MAX_WARNINGS ? " (further ones are not reported)" : "");
}

/* Takes the path over. */
static int add_file(struct trainer *trainer, char *path, int64_t number)
{
    if (!path || !kji_reserve(&trainer->files, &trainer->files_capacity, trainer->n_files + 1,
                              sizeof *trainer->files)) {
        free(path);
        return KJ_EMEM;
    }
    trainer->files[trainer->n_files++] = (struct state_file){.path = path, .number = number};
    return 0;
}

/* Looks at a file; `path` is taken over. */
static int note_file(struct trainer *trainer, char *path, int64_t number)
{
    struct stat st;
    struct state_file *file = NULL;
    if (!path)
        return KJ_EMEM;
    for (size_t k = 0; k < trainer->n_files && !file; k++)
        if (strcmp(trainer->files[k].path, path) == 0)
            file = &trainer->files[k];
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (!file && trainer->n_files >= MAX_FILES)) {
        free(path);
        return 0;
    }
    if (file) {
        free(path);
    } else {
        int r = add_file(trainer, path, number);
        if (r < 0)
            return r;
        file = &trainer->files[trainer->n_files - 1];
    }
    file->present = true;
    if (st.st_dev != file->last.st_dev || st.st_ino != file->last.st_ino ||
        st.st_size != file->last.st_size || st.st_mtim.tv_sec != file->last.st_mtim.tv_sec ||
        st.st_mtim.tv_nsec != file->last.st_mtim.tv_nsec) {
        file->fresh = true;
        file->changed = kji_monotonic_ms();
    }
    file->last = st;
    return 0;
}

static int note_checkpoint(struct trainer *trainer, const char *name)
{
    int64_t number;
    const char *digits = name + sizeof folder_prefix - 1;
    if (strncmp(name, folder_prefix, sizeof folder_prefix - 1) != 0 ||
        !kji_parse_int64(digits, strlen(digits), &number))
        return 0;
    KJI_CLEANUP(kji_freep) char *folder = kji_format("%s/%s", trainer->root, name);
    if (!folder)
        return KJ_EMEM;
    kji_watch_add(trainer->watch, folder);
    return note_file(trainer, kji_format("%s/%s", folder, state_name), number);
}

static int scan(struct trainer *trainer)
{
    for (size_t k = 0; k < trainer->n_files; k++)
        trainer->files[k].present = false;
    DIR *dir = opendir(trainer->root);
    if (!dir)
        return note_file(trainer, strdup(trainer->root), INT64_MAX);
    int r = note_file(trainer, kji_format("%s/%s", trainer->root, state_name), INT64_MAX);
    for (const struct dirent *entry; r == 0 && (entry = readdir(dir));)
        r = note_checkpoint(trainer, entry->d_name);
    closedir(dir);
    return r;
}

/* 1: it is there; 0: not a state, or not yet; KJ_EMEM. */
static int load(struct trainer *trainer, size_t k, bool finished, struct state *ret_state)
{
    struct state_file *file = &trainer->files[k];
    struct state state = {.file = k};
    kj_error err = KJ_ERROR_INIT;
    file->fresh = false;
    int r = kji_read_file(AT_FDCWD, file->path, MAX_STATE_BYTES, &state.text, &state.size, &err);
    if (r >= 0)
        r = kji_json_parse(state.text, state.size, &state.json, &err);
    if (r >= 0 && (!json_object_is_type(state.json, json_type_object) ||
                   !json_object_object_get_ex(state.json, "log_history", &state.history) ||
                   !json_object_is_type(state.history, json_type_array)))
        r = kji_fail(&err, KJ_EDATA, "no state of a Trainer: it has no list log_history");
    file->unready = r < 0;
    file->skipped = false;
    if (r >= 0) {
        kji_json_int(state.json, "global_step", &state.step);
        *ret_state = state;
        return 1;
    }
    drop_state(&state);
    if (r == KJ_EMEM)
        return r;
    if (finished) {
        file->unready = false;
        file->skipped = true;
        trainer->stats->skipped_records++;
        trainer->stats->skipped_bytes += (uint64_t)file->last.st_size;
        warn(trainer, file->path, err.message);
    }
    return 0;
}

/* The fresh file of the greatest number, or of the least one; n_files: none. */
static size_t next_fresh(const struct trainer *trainer, bool greatest)
{
    size_t found = trainer->n_files;
    for (size_t k = 0; k < trainer->n_files; k++) {
        const struct state_file *file = &trainer->files[k];
        if (!file->fresh || !file->present)
            continue;
        if (found == trainer->n_files || (file->number > trainer->files[found].number) == greatest)
            found = k;
    }
    return found;
}

/* The first time: that of the greatest step, which the file outside of checkpoints may be. */
static int load_newest(struct trainer *trainer, bool finished)
{
    struct state *best = &trainer->state;
    for (size_t k; (k = next_fresh(trainer, true)) < trainer->n_files;) {
        struct state state;
        bool is_checkpoint = trainer->files[k].number != INT64_MAX;
        int r = load(trainer, k, finished, &state);
        if (r < 0)
            return r;
        if (r > 0 && (!best->json || state.step > best->step)) {
            drop_state(best);
            *best = state;
        } else if (r > 0) {
            drop_state(&state);
        }
        if (r > 0 && is_checkpoint)
            break; /* the others are older */
    }
    if (!best->json)
        return 0;
    for (size_t k = 0; k < trainer->n_files; k++)
        trainer->files[k].fresh = false;
    trainer->started = true;
    return 1;
}

/* 1: trainer->state is there; 0: there is nothing new. */
static int load_next(struct trainer *trainer, bool finished)
{
    if (!trainer->started)
        return load_newest(trainer, finished);
    for (size_t k; (k = next_fresh(trainer, false)) < trainer->n_files;) {
        int r = load(trainer, k, finished, &trainer->state);
        if (r != 0)
            return r;
    }
    return 0;
}

static int use_entry(struct trainer *trainer, struct json_object *entry)
{
    const struct state *state = &trainer->state;
    kji_batch *batch = &trainer->batch;
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(entry);
    kji_batch_clear(batch);
    if (!text)
        return KJ_EMEM;
    size_t n_known = kji_row_memory_count(&trainer->rows);
    if (kji_row_memory_knows(&trainer->rows, state->next, kji_hash(text, strlen(text))))
        return 0;
    trainer->generation += state->next < n_known;
    batch->origin = (kji_origin){.run = trainer->run,
                                 .file = trainer->files[state->file].path,
                                 .record = state->next,
                                 .step = (int64_t)state->next,
                                 .wall_time = NAN,
                                 .generation = trainer->generation};
    kji_json_points points = {
        .batch = batch, .line = state->text, .line_size = state->size, .path = KJI_STRBUF_INIT};
    trainer->stats->records++;
    trainer->files[state->file].n_records++;
    if (!json_object_is_type(entry, json_type_object)) {
        trainer->stats->skipped_records++;
        warn(trainer, batch->origin.file, "an entry of log_history is no object: skipped");
        return 0;
    }
    kji_json_points_origin(&points, entry);
    kji_json_points_walk(&points, entry);
    batch->next = trainer->skip_points < batch->n ? trainer->skip_points : batch->n;
    trainer->skip_points = 0;
    if (points.n_refused)
        warn(trainer, batch->origin.file, "integers of more than 64 bits are left out");
    kji_json_points_done(&points);
    return 0;
}

/* The entries that are new. 0, 1 or KJ_EMEM as from the sink. */
static int deliver(struct trainer *trainer, kji_sink *sink)
{
    struct state *state = &trainer->state;
    size_t n = state->json ? json_object_array_length(state->history) : 0;
    while (state->next < n) {
        int r = 0;
        if (!state->in_use)
            r = use_entry(trainer, json_object_array_get_idx(state->history, state->next));
        state->in_use = r == 0;
        if (r == 0)
            r = kji_batch_deliver(&trainer->batch, sink);
        if (r < 0 || trainer->batch.next < trainer->batch.n)
            return r;
        state->in_use = false;
        state->next = trainer->rows.mistaken ? 0 : state->next + 1;
        trainer->files[state->file].n_points += trainer->batch.n;
        if (r != 0)
            return r;
    }
    if (state->json)
        trainer->stats->bytes += state->size;
    drop_state(state);
    return 0;
}

/* Checkpoints write much beside the state: only what may concern it makes us look. */
static void take_event(void *userdata, const struct inotify_event *event)
{
    struct trainer *trainer = userdata;
    const char *slash = strrchr(trainer->root, '/');
    if (event->wd == trainer->wd && event->mask & (IN_IGNORED | IN_MOVE_SELF | IN_DELETE_SELF))
        trainer->wd = -1;
    if (event->len == 0 || trainer->n_files == 0 || strcmp(event->name, state_name) == 0 ||
        strncmp(event->name, folder_prefix, sizeof folder_prefix - 1) == 0 ||
        strcmp(event->name, slash ? slash + 1 : trainer->root) == 0)
        trainer->dirty = true;
}

static int look(struct trainer *trainer)
{
    kji_watch_drain(trainer->watch, take_event, trainer);
    int wd = kji_watch_nearest(trainer->watch, trainer->root);
    if (wd != trainer->wd) {
        kji_watch_remove(trainer->watch, trainer->wd);
        trainer->dirty = true;
    }
    trainer->wd = wd;
    int64_t now = kji_monotonic_ms();
    if (!trainer->dirty && now < trainer->next_poll)
        return 0;
    trainer->dirty = false;
    trainer->next_poll = now + kji_source_poll_ms(trainer->options, trainer->watch,
                                                  kji_is_network_path(trainer->root));
    return scan(trainer);
}

static int trainer_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct trainer *trainer = instance;
    trainer->dirty = trainer->dirty || finished;
    for (size_t k = 0; finished && k < trainer->n_files; k++)
        trainer->files[k].fresh = trainer->files[k].fresh || trainer->files[k].unready;
    int r = look(trainer);
    if (r == 0)
        r = deliver(trainer, sink);
    while (r == 0 && (r = load_next(trainer, finished)) > 0)
        r = deliver(trainer, sink);
    if (r < 0)
        return kji_fail_memory(err);
    int64_t wait = trainer->next_poll - kji_monotonic_ms();
    kji_watch_arm(trainer->watch, r == 1 ? 0 : wait);
    return 0;
}

static void trainer_count(const void *instance, kj_events_stats *stats)
{
    const struct trainer *trainer = instance;
    for (size_t k = 0; k < trainer->n_files; k++) {
        stats->files += trainer->files[k].present;
        stats->waiting_files += trainer->files[k].present && trainer->files[k].unready;
    }
    stats->runs = trainer->n_files > 0;
}

/* The entry in use is read, and known, again. */
static void trainer_save(const void *instance, kji_strbuf *to)
{
    const struct trainer *trainer = instance;
    bool in_use = trainer->state.in_use && trainer->batch.n;
    kji_cursor_open(to);
    kji_cursor_put_uint(to, trainer->generation);
    kji_cursor_put_uint(to, in_use ? trainer->batch.next : trainer->skip_points);
    kji_row_memory_save(&trainer->rows,
                        in_use ? trainer->state.next : kji_row_memory_count(&trainer->rows), to);
    kji_cursor_close(to);
}

/* The newest state is read again. */
static void trainer_restore(void *instance, kji_cursor_items *items)
{
    struct trainer *trainer = instance;
    trainer->generation = (uint32_t)kji_cursor_take_uint(items, UINT32_MAX);
    trainer->skip_points = kji_cursor_take_uint(items, UINT32_MAX);
    kji_row_memory_restore(&trainer->rows, items);
}

static uint64_t skipped_bytes(const struct state_file *file)
{
    return file->skipped ? (uint64_t)file->last.st_size : 0;
}

static int trainer_list_files(void *instance, kj_file_fn fn, void *userdata)
{
    const struct trainer *trainer = instance;
    for (size_t k = 0; k < trainer->n_files; k++) {
        const struct state_file *file = &trainer->files[k];
        const kj_file_info info = {.size = sizeof info,
                                   .state = file->unready ? KJ_DAMAGE_PARTIAL : KJ_DAMAGE_NONE,
                                   .run = trainer->run->name,
                                   .path = file->path,
                                   .file_size = (uint64_t)file->last.st_size,
                                   .committed = file->unready ? 0 : (uint64_t)file->last.st_size,
                                   .records = file->n_records,
                                   .points = file->n_points,
                                   .skipped_records = file->skipped,
                                   .skipped_bytes = skipped_bytes(file),
                                   .generation = trainer->generation,
                                   .present = file->present,
                                   .quiet_ms = kji_monotonic_ms() - file->changed};
        int r = fn(userdata, &info);
        if (r != 0)
            return r;
    }
    return 0;
}

static int trainer_list_damage(void *instance, kj_damage_fn fn, void *userdata)
{
    const struct trainer *trainer = instance;
    for (size_t k = 0; k < trainer->n_files; k++) {
        const struct state_file *file = &trainer->files[k];
        if (!file->present || !(file->unready || file->skipped))
            continue;
        const kj_damage damage = {.size = sizeof damage,
                                  .kind = file->skipped ? KJ_DAMAGE_MESSAGE : KJ_DAMAGE_PARTIAL,
                                  .run = trainer->run->name,
                                  .file = file->path,
                                  .end = (uint64_t)file->last.st_size,
                                  .skipped = file->skipped,
                                  .generation = trainer->generation};
        int r = fn(userdata, &damage);
        if (r != 0)
            return r;
    }
    return 0;
}

const kji_source_kind kji_source_trainer = {
    .size = sizeof(kji_source_kind),
    .name = "trainer",
    .syntax = syntax,
    .instance_size = sizeof(struct trainer),
    .split = trainer_split,
    .open = trainer_open,
    .close = trainer_close,
    .step = trainer_step,
    .count = trainer_count,
    .list_files = trainer_list_files,
    .list_damage = trainer_list_damage,
    .save = trainer_save,
    .restore = trainer_restore,
};
