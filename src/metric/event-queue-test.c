/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of event files and the table of folders, with many of them in any order. */
#include "event-dir.h"
#include "mem.h"
#include "rng.h"

#include "kji-test.h"

#include <stdio.h>
#include <string.h>

enum { N_FILES = 500, N_FOLDERS = 100000 };

static kji_event_folder folders[3];
static kji_event_file *files[N_FILES];
static kji_event_queue queue;
static kji_rng rng;

static int set_up(void **state)
{
    (void)state;
    kji_rng_seed(&rng, 1);
    queue = (kji_event_queue){0};
    assert_true(kji_event_queue_reserve(&queue, N_FILES));
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++)
        folders[k].place = k;
    for (size_t k = 0; k < N_FILES; k++) {
        files[k] = kji_event_file_new(kji_format("x/%03zu", k), NULL);
        files[k]->folder = &folders[kji_rng_uint32(&rng) % 3];
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_FILES; k++)
        kji_event_file_free(files[k]);
    kji_event_queue_done(&queue);
    return 0;
}

static int64_t least_due(void)
{
    int64_t least = INT64_MAX;
    for (size_t k = 0; k < N_FILES; k++)
        if (files[k]->timed_at && files[k]->due_ms < least)
            least = files[k]->due_ms;
    return least;
}

static void test_times_against_an_oracle(void **state)
{
    (void)state;
    for (int k = 0; k < 20000; k++) {
        kji_event_file *file = files[kji_rng_uint32(&rng) % N_FILES];
        int64_t due = kji_rng_uint32(&rng) % 4 ? kji_rng_uint32(&rng) % 1000 : INT64_MAX;
        kji_event_queue_set_due(&queue, file, due);
        assert_int_equal(file->timed_at != 0, due != INT64_MAX);
        assert_true(kji_event_queue_due(&queue) == least_due());
    }
    kji_event_queue_wake(&queue, 500);
    assert_true(kji_event_queue_due(&queue) > 500);
    assert_true(kji_event_queue_due(&queue) == least_due());
    size_t n = 0;
    for (kji_event_file *file; (file = kji_event_queue_first(&queue)); n++) {
        assert_true(file->due_ms <= 500 && file->timed_at == 0);
        kji_event_queue_remove_first(&queue);
    }
    assert_true(n > 0);
}

/* Some are added, some taken, in turn: always the first of those that are there. */
static void test_dirty_ones_in_the_order_of_delivery(void **state)
{
    (void)state;
    for (int k = 0; k < 2000; k++) {
        for (uint32_t more = kji_rng_uint32(&rng) % 5; more > 0; more--)
            kji_event_queue_add(&queue, files[kji_rng_uint32(&rng) % N_FILES]);
        kji_event_file *first = kji_event_queue_first(&queue);
        for (size_t j = 0; j < N_FILES && first; j++) {
            if (!files[j]->dirty || files[j] == first)
                continue;
            size_t place = files[j]->folder->place, of_first = first->folder->place;
            assert_true(of_first < place ||
                        (of_first == place && strcmp(first->name, files[j]->name) < 0));
        }
        if (first && kji_rng_uint32(&rng) % 2)
            kji_event_queue_remove_first(&queue);
    }
}

static kji_event_folder *new_folder(const char *run, ino_t ino)
{
    kji_event_folder *folder = calloc(1, sizeof *folder);
    folder->path = strdup(run);
    folder->run = folder->path;
    folder->depth = strcmp(run, ".") != 0;
    folder->ino = ino;
    folder->present = true;
    return folder;
}

/* In many rounds, as when runs begin one after the other, and one great one. */
static void test_many_folders(void **state)
{
    (void)state;
    kji_folder_table table = {0};
    assert_true(kji_folder_table_add(&table, new_folder(".", 1)));
    for (uint32_t k = 0; k < N_FOLDERS; k++) {
        char run[20];
        snprintf(run, sizeof run, "run-%u", k * 2654435761U); /* each once, in no order */
        assert_true(kji_folder_table_add(&table, new_folder(run, k + 2)));
        if (k < 100)
            assert_true(kji_folder_table_settle(&table));
    }
    assert_true(kji_folder_table_settle(&table));
    assert_string_equal(table.folders[0]->run, ".");
    for (size_t k = 1; k < table.n_folders; k++) {
        kji_event_folder *folder = table.folders[k];
        assert_int_equal(folder->place, k);
        assert_true(k == 1 || strcmp(table.folders[k - 1]->run, folder->run) < 0);
        assert_ptr_equal(kji_folder_table_find(&table, folder->run), folder);
        assert_null(kji_folder_table_twin(&table, 0, folder->ino, folder->path));
        assert_ptr_equal(kji_folder_table_twin(&table, 0, folder->ino, "other"), folder);
    }
    assert_null(kji_folder_table_find(&table, "run"));
    kji_folder_table_set_inode(&table, table.folders[5], 0, 7777777);
    assert_ptr_equal(kji_folder_table_twin(&table, 0, 7777777, ""), table.folders[5]);
    kji_folder_table_done(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_times_against_an_oracle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dirty_ones_in_the_order_of_delivery, set_up,
                                        tear_down),
        cmocka_unit_test(test_many_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
