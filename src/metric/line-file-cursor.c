/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of lines in a cursor. The file is known again by hashes of its first bytes and of those
 * before the place, which line-file.c turns into bytes again at the first look.
 */
#include "line-file.h"

#include "mem.h"

static void save_mark(const kji_line_file *file, kji_strbuf *to)
{
    bool pending = file->mark.pending;
    kji_cursor_put_uint(to, pending ? file->mark.end : file->offset);
    kji_cursor_put_uint(to, pending ? file->mark.head_size : file->head_size);
    kji_cursor_put_uint(to, pending ? file->mark.tail_size : file->tail_size);
    kji_cursor_put_uint(to, pending ? file->mark.head_hash : kji_hash(file->head, file->head_size));
    kji_cursor_put_uint(to, pending ? file->mark.tail_hash : kji_hash(file->tail, file->tail_size));
}

void kji_line_file_save(const kji_line_file *file, kji_strbuf *to)
{
    kji_cursor_open(to);
    kji_cursor_put_uint(to, kji_line_file_committed(file));
    kji_cursor_put_uint(to, file->in_use ? file->batch.next : file->skip_points);
    kji_cursor_put_uint(to, file->n_lines);
    kji_cursor_put_uint(to, file->n_points);
    kji_cursor_put_uint(to, file->skipped_records);
    kji_cursor_put_uint(to, file->skipped_bytes);
    kji_cursor_put_uint(to, file->generation);
    save_mark(file, to);
    for (size_t k = 0; k < file->n_damage; k++) {
        kji_cursor_put_uint(to, file->damage[k].kind);
        kji_cursor_put_uint(to, file->damage[k].generation);
        kji_cursor_put_uint(to, file->damage[k].begin);
        kji_cursor_put_uint(to, file->damage[k].end);
        kji_cursor_put_uint(to, file->damage[k].record);
    }
    kji_cursor_close(to);
}

static void restore_mark(kji_line_file *file, kji_cursor_items *items)
{
    file->mark.end = kji_cursor_take_uint(items, KJI_OFFSET_LIMIT);
    file->mark.head_size = kji_cursor_take_uint(items, KJI_LINE_HEAD);
    file->mark.tail_size = kji_cursor_take_uint(items, KJI_LINE_TAIL);
    file->mark.head_hash = kji_cursor_take_uint(items, UINT64_MAX);
    file->mark.tail_hash = kji_cursor_take_uint(items, UINT64_MAX);
    file->mark.pending = file->offset > 0;
    kji_cursor_expect(items,
                      file->offset <= file->mark.end && file->mark.tail_size <= file->mark.end,
                      "an offset that cannot be");
}

static void restore_damage(kji_line_file *file, kji_cursor_items *items)
{
    kji_line_damage range = {0};
    range.kind = (uint32_t)kji_cursor_take_uint(items, KJ_DAMAGE_UNREADABLE);
    range.generation = (uint32_t)kji_cursor_take_uint(items, UINT32_MAX);
    range.begin = kji_cursor_take_uint(items, KJI_OFFSET_LIMIT);
    range.end = kji_cursor_take_uint(items, KJI_OFFSET_LIMIT);
    range.record = kji_cursor_take_uint(items, KJI_OFFSET_LIMIT);
    kji_cursor_expect(items, range.begin <= range.end && file->n_damage < KJI_LINE_DAMAGE,
                      "damage that cannot be");
    if (items->wrong)
        return;
    if (kji_reserve(&file->damage, &file->damage_capacity, file->n_damage + 1,
                    sizeof *file->damage))
        file->damage[file->n_damage++] = range;
    else
        items->wrong = kji_cursor_no_memory;
}

/* A pipe goes on where it is. */
void kji_line_file_restore(kji_line_file *file, kji_cursor_items *items)
{
    kji_cursor_items own = kji_cursor_take_array(items);
    file->offset = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->skip_points = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->n_lines = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->n_points = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->skipped_records = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->skipped_bytes = kji_cursor_take_uint(&own, KJI_OFFSET_LIMIT);
    file->generation = (uint32_t)kji_cursor_take_uint(&own, UINT32_MAX);
    restore_mark(file, &own);
    while (kji_cursor_more(&own))
        restore_damage(file, &own);
    if (own.wrong)
        items->wrong = own.wrong;
}
