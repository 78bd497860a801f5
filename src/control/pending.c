/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted array: new commands come at its end, old ones leave mostly at its beginning, where they
 * leave a gap: with thousands that wait, none is moved for one that is done. A command that was
 * sent again, under its command_id or by `recover`, closes the old one.
 */
#include "pending.h"

#include "journal-part.h"
#include "json.h"
#include "mem.h"

#include <string.h>

static void free_item(kji_pending *pending, kji_pending_command *item)
{
    pending->bytes -= strlen(item->line);
    pending->n_old -= item->is_old;
    free(item->line);
    free(item->command_id);
}

static void clear(kji_pending *pending)
{
    for (size_t k = 0; k < pending->n; k++)
        free_item(pending, &pending->item[k]);
    pending->item = pending->block;
    pending->n = pending->n_before = 0;
}

void kji_pending_done(kji_pending *pending)
{
    clear(pending);
    free(pending->block);
    *pending = (kji_pending){0};
}

/* Index of the first command with a number >= seq. */
static size_t place_of(const kji_pending *pending, int64_t seq)
{
    return kji_lower_bound(pending->item, pending->n, sizeof *pending->item,
                           offsetof(kji_pending_command, seq), seq);
}

const kji_pending_command *kji_pending_find(const kji_pending *pending, int64_t seq)
{
    size_t k = place_of(pending, seq);
    return k < pending->n && pending->item[k].seq == seq ? &pending->item[k] : NULL;
}

static void remove_at(kji_pending *pending, size_t index)
{
    kji_pending_command *item = pending->item;
    free_item(pending, &item[index]);
    pending->n--;
    if (index > pending->n / 2) {
        memmove(item + index, item + index + 1, (pending->n - index) * sizeof *item);
    } else {
        memmove(item + 1, item, index * sizeof *item);
        pending->item++;
        pending->n_before++;
    }
}

/* Makes room for one more. A gap that is half of the whole is closed, a smaller one stays. */
static bool reserve_one(kji_pending *pending)
{
    if (pending->n_before && pending->n_before >= pending->n &&
        pending->n_before + pending->n == pending->capacity) {
        memmove(pending->block, pending->item, pending->n * sizeof *pending->item);
        pending->item = pending->block;
        pending->n_before = 0;
    }
    if (!kji_reserve(&pending->block, &pending->capacity, pending->n_before + pending->n + 1,
                     sizeof *pending->block))
        return false;
    pending->item = pending->block + pending->n_before;
    return true;
}

static void remove_seq(kji_pending *pending, int64_t seq)
{
    size_t k = place_of(pending, seq);
    if (k < pending->n && pending->item[k].seq == seq)
        remove_at(pending, k);
}

/* The newest line of a command that is open already. */
static void replace(kji_pending *pending, size_t index, const char *text, size_t size)
{
    kji_pending_command *item = &pending->item[index];
    size_t before = strlen(item->line);
    char *line = pending->bytes - before + size > KJI_PENDING_BYTES ? NULL : strndup(text, size);
    if (!line) {
        remove_at(pending, index);
        return;
    }
    free(item->line);
    item->line = line;
    pending->bytes += strlen(line) - before;
}

static void insert(kji_pending *pending, size_t index, const char *text, size_t size,
                   const kji_pending_command *like)
{
    if (pending->n >= KJI_PENDING_MAX || pending->bytes + size > KJI_PENDING_BYTES ||
        !reserve_one(pending))
        return;
    kji_pending_command item = *like;
    item.line = strndup(text, size);
    if (!item.line)
        return;
    if (item.command_id)
        item.command_id = strdup(item.command_id);
    memmove(pending->item + index + 1, pending->item + index,
            (pending->n - index) * sizeof *pending->item);
    pending->item[index] = item;
    pending->n++;
    pending->n_old += item.is_old;
    pending->bytes += strlen(item.line);
}

static void put(kji_pending *pending, int64_t seq, const char *text, size_t size,
                const char *command_id, bool is_old)
{
    kji_pending_command item = {.seq = seq, .command_id = (char *)command_id, .is_old = is_old};
    size_t k = place_of(pending, seq);
    bool is_there = k < pending->n && pending->item[k].seq == seq;
    if (is_there && pending->item[k].is_old == is_old) {
        replace(pending, k, text, size);
        return;
    }
    if (is_there)
        remove_at(pending, k);
    insert(pending, place_of(pending, seq), text, size, &item);
}

static bool is_number(int64_t seq)
{
    return seq > 0 && seq <= KJI_JOURNAL_NUMBER_MAX;
}

static void note_seq(kji_pending *pending, int64_t seq)
{
    if (is_number(seq) && seq > pending->last_seq)
        pending->last_seq = seq;
}

/* Whether the record says that its command was taken in. */
static bool is_obeyed(struct json_object *record)
{
    const char *state = kji_json_string(record, "state");
    return state && strcmp(state, "rejected") != 0 &&
           !json_object_object_get_ex(record, "dry_run", NULL);
}

/* The old command that this one repeats needs no recovery any more. */
static void close_repeated(kji_pending *pending, struct json_object *record, int64_t seq)
{
    const char *id = kji_json_string(record, "command_id");
    int64_t recovered;
    if (pending->n_old == 0 || !is_obeyed(record))
        return;
    if (kji_json_int(record, "recovered", &recovered))
        remove_seq(pending, recovered);
    for (size_t k = pending->n; id && k-- > 0;) {
        const kji_pending_command *item = &pending->item[k];
        if (item->is_old && item->seq != seq && item->command_id &&
            strcmp(item->command_id, id) == 0)
            remove_at(pending, k);
    }
}

static void take_record(kji_pending *pending, struct json_object *record, int64_t seq,
                        const char *text, size_t size, bool is_old)
{
    const char *state = kji_json_string(record, "state");
    note_seq(pending, seq);
    if (!state || !is_number(seq))
        return;
    if (strcmp(state, "accepted") == 0 || strcmp(state, "scheduled") == 0 ||
        strcmp(state, "applied") == 0)
        put(pending, seq, text, size, kji_json_string(record, "command_id"), is_old);
    else
        remove_seq(pending, seq);
}

static void take_list(kji_pending *pending, struct json_object *line, const char *key, bool is_old)
{
    struct json_object *list;
    int64_t seq;
    if (!json_object_object_get_ex(line, key, &list) || !json_object_is_type(list, json_type_array))
        return;
    for (size_t k = 0; k < json_object_array_length(list); k++) {
        struct json_object *record = json_object_array_get_idx(list, k);
        KJI_CLEANUP(kji_freep) char *text = NULL;
        if (json_object_is_type(record, json_type_object) && kji_json_int(record, "seq", &seq) &&
            (text = kji_json_text(record)))
            take_record(pending, record, seq, text, strlen(text), is_old);
    }
}

void kji_pending_make_old(kji_pending *pending)
{
    for (size_t k = 0; k < pending->n; k++)
        pending->item[k].is_old = true;
    pending->n_old = pending->n;
}

static void take_event(kji_pending *pending, struct json_object *line, const char *event)
{
    int64_t seq;
    if (kji_json_int(line, "last_seq", &seq))
        note_seq(pending, seq);
    if (strcmp(event, "run_started") == 0) {
        kji_pending_make_old(pending);
    } else if (strcmp(event, "run_ended") == 0) {
        clear(pending);
    } else if (strcmp(event, "continued") == 0) {
        take_list(pending, line, "recoverable", true);
        take_list(pending, line, "waiting", false);
    }
}

void kji_pending_take(kji_pending *pending, struct json_object *line, const char *text, size_t size)
{
    int64_t seq;
    if (!json_object_is_type(line, json_type_object))
        return;
    const char *event = kji_json_string(line, "event");
    if (event) {
        take_event(pending, line, event);
    } else if (kji_json_int(line, "seq", &seq)) {
        close_repeated(pending, line, seq);
        take_record(pending, line, seq, text, size, false);
    }
}
