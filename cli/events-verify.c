/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --verify: all checksums, as of files to which nothing will be appended any more. What is damaged
 * makes the exit status 1. The beginning of a record at the end of a file is what a writer at work
 * leaves, and is told; it is a failure with --finished.
 */
#include "events-verb.h"

#include <stdlib.h>
#include <string.h>

typedef struct verdict {
    struct json_object *damage;
    uint64_t n_damaged, n_unfinished;
} verdict;

static const char *what_of(const kj_damage *damage)
{
    if (damage->kind == KJ_DAMAGE_UNREADABLE)
        return "unreadable";
    return damage->kind == KJ_DAMAGE_PARTIAL && !damage->skipped ? "unfinished" : "damaged";
}

static int add_damage(void *userdata, const kj_damage *damage)
{
    verdict *found = userdata;
    if (!cli_events_wants_run(damage->run))
        return 0;
    bool unfinished = damage->kind == KJ_DAMAGE_PARTIAL && !damage->skipped;
    const char *kind = kj_damage_kind_name(damage->kind);
    found->n_unfinished += unfinished;
    found->n_damaged += !unfinished;
    struct json_object *row = cli_check_memory(json_object_new_object());
    json_object_object_add(row, "file", json_object_new_string(damage->file));
    json_object_object_add(row, "begin", json_object_new_int64((int64_t)damage->begin));
    json_object_object_add(row, "end", json_object_new_int64((int64_t)damage->end));
    json_object_object_add(row, "record", json_object_new_int64((int64_t)damage->record));
    json_object_object_add(row, "kind", json_object_new_string(kind ? kind : "?"));
    json_object_object_add(row, "what", json_object_new_string(what_of(damage)));
    json_object_array_add(found->damage, row);
    return 0;
}

static struct json_object *object_of(const verdict *found, const kj_events_stats *stats)
{
    struct json_object *object = cli_check_memory(json_object_new_object());
    json_object_object_add(object, "whole",
                           json_object_new_boolean(!found->n_damaged && !found->n_unfinished));
    json_object_object_add(object, "files", json_object_new_int64((int64_t)stats->files));
    json_object_object_add(object, "bytes", json_object_new_int64((int64_t)stats->bytes));
    json_object_object_add(object, "records", json_object_new_int64((int64_t)stats->records));
    json_object_object_add(object, "damage", json_object_get(found->damage));
    return object;
}

static const char *const columns[] = {"begin", "end", "record", "kind", "what", "file", NULL};

static void print_damage(struct json_object *damage)
{
    cli_table *table = cli_table_new(columns);
    for (size_t k = 0; k < json_object_array_length(damage); k++) {
        struct json_object *row = json_object_array_get_idx(damage, k);
        cli_table_add_row(table);
        for (int c = 0; columns[c]; c++)
            cli_table_set(table, c, json_object_get(json_object_object_get(row, columns[c])));
    }
    cli_table_print(table);
    cli_table_free(table);
}

static void print_verdict(const verdict *found, const kj_events_stats *stats)
{
    if (cli.format & (CLI_JSON | CLI_JSONL | CLI_YAML)) {
        struct json_object *object = object_of(found, stats);
        cli_print_object(object);
        json_object_put(object);
    } else if (cli.format == CLI_TABLE && !found->n_damaged && !found->n_unfinished) {
        printf("whole: %llu file%s, %llu records, %llu bytes\n", (unsigned long long)stats->files,
               stats->files == 1 ? "" : "s", (unsigned long long)stats->records,
               (unsigned long long)stats->bytes);
    } else {
        print_damage(found->damage);
    }
    if (found->n_damaged + found->n_unfinished < stats->skipped_records)
        cli_note("%llu records were skipped, not all of them are listed",
                 (unsigned long long)stats->skipped_records);
}

int cli_events_print_verify(void)
{
    kj_events *events;
    int status = cli_events_open(KJ_EVENTS_CHECK_ALL | KJ_EVENTS_FINISHED, NULL, &events);
    if (status != CLI_DONE)
        return status;
    status = cli_events_read_all(events);
    if (status == CLI_DONE) {
        kj_events_stats stats = {.size = sizeof stats};
        kj_events_get_stats(events, &stats);
        verdict found = {.damage = cli_check_memory(json_object_new_array())};
        kj_events_list_damage(events, add_damage, &found);
        print_verdict(&found, &stats);
        json_object_put(found.damage);
        if (found.n_damaged > 0 || (cli_events_given.finished && found.n_unfinished > 0))
            status = CLI_FAILED;
    }
    kj_events_close(events);
    return status;
}
