/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines go the way of all commands. Their warnings wait until the last one is in, so that what
 * comes through a door meanwhile stands behind all of them.
 */
#include "schedule-file.h"

#include "errors.h"
#include "files.h"
#include "mem.h"
#include "run-impl.h"

#include <fcntl.h>
#include <string.h>

int kji_schedule_file_read(kji_schedule_file *schedule, const char *path, kj_error *err)
{
    kji_schedule_file file = {.path = strdup(path)};
    if (!file.path)
        return kji_fail_memory(err);
    int r = kji_read_file(AT_FDCWD, path, KJI_SCHEDULE_BYTES, &file.text, &file.size, err);
    if (r < 0) {
        kji_schedule_file_done(&file);
        return r == KJ_EMEM ? r : kji_fail_prefix(err, r, "no schedule");
    }
    *schedule = file;
    return 0;
}

void kji_schedule_file_done(kji_schedule_file *schedule)
{
    free(schedule->path);
    free(schedule->text);
    *schedule = (kji_schedule_file){0};
}

typedef struct refused_lines {
    char *text[KJI_SCHEDULE_WARNINGS];
    size_t n; /* also of those that are not told one by one */
} refused_lines;

static void refuse(refused_lines *refusals, const char *path, size_t number, const kj_error *why)
{
    if (refusals->n < KJI_SCHEDULE_WARNINGS)
        refusals->text[refusals->n] = kji_format("%s:%zu: %s", path, number, why->message);
    refusals->n++;
}

static void take_lines(kj_run *run, const kji_schedule_file *file, refused_lines *refusals)
{
    const kji_sender sender = {.door = "schedule", .uid = -1, .pid = -1};
    size_t number = 1;
    for (const char *at = file->text, *end = at + file->size; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        struct json_object *record = NULL;
        kj_error why = KJ_ERROR_INIT;
        if (kji_run_submit_line(run, &sender, at, size, NULL, &record, &why) < 0)
            refuse(refusals, file->path, number, &why);
        json_object_put(record);
        at += size + 1;
    }
}

static void warn(kj_run *run, const char *text)
{
    kji_run_warn(run, "run %s: %s", run->id, text);
    kji_run_unlock(run);
    kji_run_log_warnings(run);
    kji_run_lock(run);
}

void kji_schedule_file_take_in(kj_run *run)
{
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_SCHEDULE, __ATOMIC_RELAXED);
    if (!run->schedule.text)
        return;
    kji_schedule_file file = run->schedule;
    run->schedule = (kji_schedule_file){0};
    refused_lines refusals = {.n = 0};
    take_lines(run, &file, &refusals);
    for (size_t k = 0; k < refusals.n && k < KJI_SCHEDULE_WARNINGS; k++) {
        warn(run, refusals.text[k] ? refusals.text[k] : kj_error_text(KJ_EMEM));
        free(refusals.text[k]);
    }
    if (refusals.n > KJI_SCHEDULE_WARNINGS) {
        KJI_CLEANUP(kji_freep)
        char *text = kji_format("%s: %zu more lines are rejected", file.path,
                                refusals.n - KJI_SCHEDULE_WARNINGS);
        warn(run, text ? text : kj_error_text(KJ_EMEM));
    }
    kji_schedule_file_done(&file);
}
