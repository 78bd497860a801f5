/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that happens passes through here, once: into the journal, then to those who watch. */
#include "errors.h"
#include "json.h"
#include "mask.h"
#include "mem.h"
#include "run-impl.h"
#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* For the log hook: not through the journal, which may be what failed. Takes `text` over. */
static void keep_warning(kj_run *run, char *text)
{
    if (text && run->n_warnings < KJI_WARNINGS_MAX)
        run->warnings[run->n_warnings++] = text;
    else
        free(text);
    kji_run_pend(run, KJI_PENDING_WARNING);
    kji_run_wake_training(run);
}

/* Journals `record`; the line for free, NULL when memory is gone. */
static char *journal(kj_run *run, struct json_object *record)
{
    char *line = NULL;
    kj_error err = KJ_ERROR_INIT;
    int r = record ? kji_journal_append(&run->journal, record, &line, &err) : KJ_EMEM;
    if (r > 0) /* the folder may be a new one */
        kji_run_write_json(run, run->journal.dir_fd, NULL);
    if (r != 0)
        keep_warning(
            run, kji_format("run %s: %s", run->id, r == KJ_EMEM ? kj_error_text(r) : err.message));
    return line;
}

/* Takes `text` over. */
static void tell(kj_run *run, int kind, int64_t seq, bool is_last, char *text)
{
    if (!text)
        return;
    kji_feed_event event = {
        .text = text, .size = (uint32_t)strlen(text), .seq = seq, .is_last = is_last};
    kji_feed_put(&run->feed, kind, &event);
    if (run->feed.n_readers)
        kji_helper_wake(&run->helper);
}

/* What the program has to say to whoever sends this verb. */
static void add_remark(const kj_run *run, const kji_command *command, struct json_object *record)
{
    struct json_object *remark;
    bool is_obeyed = command->state != KJI_REJECTED && command->state != KJI_FAILED &&
                     command->state != KJI_EXPIRED;
    if (is_obeyed && json_object_object_get_ex(run->remarks, command->verb_name, &remark))
        json_object_object_add(record, "remark", json_object_get(remark));
}

void kji_run_record(kj_run *run, kji_command *command, int state)
{
    command->state = state;
    struct json_object *record = kji_command_record(command);
    add_remark(run, command, record);
    char *line = journal(run, record);
    json_object_put(record);
    if (line && command->command_id && !command->dry_run)
        kji_seen_put(&run->seen, command->command_id, line);
    if (line)
        command->size = strlen(line);
    tell(run, command->sender.flood ? KJI_FEED_LINE : KJI_FEED_SENT, command->seq,
         state != KJI_ACCEPTED && state != KJI_SCHEDULED && state != KJI_APPLIED, line);
}

void kji_run_finish(kj_run *run, kji_command *command, int state)
{
    kji_run_record(run, command, state);
    kji_command_free(command);
}

void kji_run_event(kj_run *run, const char *event, struct json_object *fields)
{
    struct json_object *record = json_object_new_object();
    json_object_object_add(record, "event", json_object_new_string(event));
    if (fields) {
        json_object_object_foreach(fields, key, value)
            json_object_object_add(record, key, kji_mask_json(NULL, value));
        json_object_put(fields);
    }
    free(journal(run, record));
    json_object_put(record);
}

void kji_run_tell_flood(kj_run *run, kji_fifo *fifo)
{
    kji_flood *flood = &fifo->flood;
    if (flood->n_hidden == 0)
        return;
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "door", json_object_new_string(fifo->door));
    json_object_object_add(fields, "lines", json_object_new_int64(flood->n_hidden));
    json_object_object_add(fields, "text", kji_json_new_text(flood->text, KJI_FLOOD_SHOWN));
    flood->n_hidden = 0;
    kji_run_event(run, "flood", fields);
}

const char *kji_run_state(const kj_run *run)
{
    if (kji_run_is_stopping(run))
        return "stopping";
    return run->paused ? "paused" : "running";
}

void kji_run_tell_state(kj_run *run, const char *state)
{
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "state", json_object_new_string(state));
    json_object_object_add(fields, "step", json_object_new_int64(kji_run_step(run)));
    json_object_object_add(fields, "epoch", json_object_new_int64(kji_run_epoch(run)));
    tell(run, KJI_FEED_STATE, 0, false, kji_json_text(fields));
    json_object_put(fields);
}

enum { WARNING_SIZE = 1000 };

static void journal_warning(kj_run *run, const char *text)
{
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "text", json_object_new_string(text));
    kji_run_event(run, "warning", fields);
}

void kji_run_warn(kj_run *run, const char *format, ...)
{
    char text[WARNING_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(text, strlen(text));
    struct json_object *clean = kji_json_new_text(masked, sizeof text);
    if (!clean)
        return;
    keep_warning(run, strdup(json_object_get_string(clean)));
    journal_warning(run, json_object_get_string(clean));
    json_object_put(clean);
}

void kji_run_journal_warnings(kj_run *run, size_t n)
{
    for (size_t k = 0; k < n; k++)
        journal_warning(run, run->warnings[k]);
}

void kji_run_log_warnings(kj_run *run)
{
    char *warnings[KJI_WARNINGS_MAX];
    kji_run_lock(run);
    size_t n = run->n_warnings;
    memcpy(warnings, run->warnings, sizeof warnings);
    run->n_warnings = 0;
    __atomic_fetch_and(&run->cell.pending, ~(uint32_t)KJI_PENDING_WARNING, __ATOMIC_RELAXED);
    kji_run_unlock(run);
    for (size_t k = 0; k < n; k++) {
        kji_log(KJ_LOG_WARNING, "%s", warnings[k]);
        free(warnings[k]);
    }
}
