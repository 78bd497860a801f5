/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event file in a cursor. What stands at `committed` is looked at anew, with a grace time that
 * begins anew, since the clock that measured it was that of another process.
 */
#include "event-file-cursor.h"

#include "clock.h"
#include "mem.h"

#include <string.h>

static void save_ranges(const kji_event_file *file, kji_strbuf *to)
{
    kji_cursor_open_numbers(to);
    for (size_t k = 0; k < file->n_ranges; k++) {
        const kji_damage_range *range = &file->ranges[k];
        kji_cursor_add_uint(to, range->begin);
        kji_cursor_add_uint(to, range->end);
        kji_cursor_add_uint(to, range->record);
        kji_cursor_add_uint(to, range->kind);
    }
    kji_cursor_close_numbers(to);
}

static void save_numbers(const kji_event_file *file, kji_strbuf *to)
{
    const kji_file_mark *mark = &file->mark;
    kji_cursor_open_numbers(to);
    kji_cursor_add_uint(to, file->dev);
    kji_cursor_add_uint(to, file->ino);
    kji_cursor_add_uint(to, file->size);
    kji_cursor_add_int(to, file->mtime_ns);
    kji_cursor_add_uint(to, mark->committed);
    kji_cursor_add_uint(to, mark->values_done);
    kji_cursor_add_uint(to, mark->records);
    kji_cursor_add_uint(to, mark->points);
    kji_cursor_add_uint(to, mark->skipped_records);
    kji_cursor_add_uint(to, mark->skipped_bytes);
    kji_cursor_add_uint(to, mark->generation);
    kji_cursor_add_uint(to, mark->head_offset);
    kji_cursor_add_uint(to, mark->last_offset);
    kji_cursor_add_uint(to, mark->last_end);
    kji_cursor_close_numbers(to);
}

void kji_event_file_save(const kji_event_file *file, kji_strbuf *to)
{
    const kji_file_mark *mark = &file->mark;
    kji_cursor_open(to);
    kji_cursor_put_uint(to, file->run->number);
    kji_cursor_put_name(to, file->name, strlen(file->name));
    save_numbers(file, to);
    if (mark->head_size || file->n_ranges) {
        kji_cursor_put_hex(to, mark->head, mark->head_size);
        kji_cursor_put_hex(to, mark->last_tail, sizeof mark->last_tail);
    }
    if (file->n_ranges)
        save_ranges(file, to);
    kji_cursor_close(to);
}

static void restore_range(kji_event_file *file, kji_cursor_numbers *numbers)
{
    kji_cursor_items *items = numbers->items;
    kji_damage_range range = {.begin = kji_cursor_next_uint(numbers, KJI_OFFSET_LIMIT)};
    range.end = kji_cursor_next_uint(numbers, KJI_OFFSET_LIMIT);
    range.record = kji_cursor_next_uint(numbers, KJI_OFFSET_LIMIT);
    range.kind = (enum kj_damage_kind)kji_cursor_next_uint(numbers, KJ_DAMAGE_UNREADABLE);
    uint64_t behind = file->n_ranges ? file->ranges[file->n_ranges - 1].end : 0;
    kji_cursor_expect(items,
                      behind <= range.begin && range.begin <= range.end &&
                          range.end <= file->mark.committed && file->n_ranges < KJI_MAX_RANGES,
                      "damage that cannot be");
    if (items->wrong)
        return;
    if (kji_reserve(&file->ranges, &file->ranges_capacity, file->n_ranges + 1,
                    sizeof *file->ranges))
        file->ranges[file->n_ranges++] = range;
    else
        items->wrong = kji_cursor_no_memory;
}

static void restore_numbers(kji_event_file *file, kji_cursor_items *items)
{
    kji_file_mark *mark = &file->mark;
    kji_cursor_numbers numbers = kji_cursor_take_numbers(items);
    file->dev = kji_cursor_next_uint(&numbers, UINT64_MAX);
    file->ino = kji_cursor_next_uint(&numbers, UINT64_MAX);
    file->size = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    file->mtime_ns = kji_cursor_next_int(&numbers);
    mark->committed = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->values_done = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->records = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->points = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->skipped_records = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->skipped_bytes = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->generation = (uint32_t)kji_cursor_next_uint(&numbers, UINT32_MAX);
    mark->head_offset = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->last_offset = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    mark->last_end = kji_cursor_next_uint(&numbers, KJI_OFFSET_LIMIT);
    kji_cursor_expect_last(&numbers);
}

/* What the file is recognised by. The header of the last record follows from its length. */
static void restore_fingerprint(kji_file_mark *mark, kji_cursor_items *items)
{
    size_t head_size = 0;
    kji_cursor_take_hex(items, mark->head, sizeof mark->head, &head_size);
    kji_cursor_take_hex(items, mark->last_tail, sizeof mark->last_tail, NULL);
    kji_cursor_expect(items,
                      head_size == 0 || (mark->head_offset <= mark->last_offset &&
                                         mark->last_offset + KJI_FRAME_EXTRA <= mark->last_end &&
                                         mark->last_end <= mark->committed),
                      "a record is where none can be");
    if (items->wrong || head_size == 0)
        return;
    mark->head_size = (uint32_t)head_size;
    kji_frame_seal_head(mark->last_end - mark->last_offset - KJI_FRAME_EXTRA, mark->last_head);
}

void kji_event_file_restore(kji_event_file *file, kji_cursor_items *items)
{
    restore_numbers(file, items);
    if (kji_cursor_more(items))
        restore_fingerprint(&file->mark, items);
    if (kji_cursor_more(items)) {
        kji_cursor_numbers ranges = kji_cursor_take_numbers(items);
        while (kji_cursor_more_numbers(&ranges))
            restore_range(file, &ranges);
    }
    kji_cursor_expect_end(items);
    file->changed_ms = kji_monotonic_ms() - kji_event_file_age_ms(file->mtime_ns);
}
