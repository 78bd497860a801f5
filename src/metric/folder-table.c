/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders come one by one, in the order in which the file system lists them. To put each into a
 * sorted array would be quadratic, so they are appended, found by hash, and merged in when a round
 * of listing is over.
 */
#include "folder-table.h"

#include "mem.h"

#include <string.h>

static void free_folder(kji_event_folder *folder)
{
    for (size_t k = 0; k < folder->n_files; k++)
        kji_event_file_free(folder->files[k]);
    free(folder->files);
    free(folder->path);
    free(folder);
}

void kji_folder_table_done(kji_folder_table *table)
{
    for (size_t k = 0; k < table->n_folders; k++)
        free_folder(table->folders[k]);
    free(table->folders);
    free(table->by_run);
    free(table->by_inode);
    *table = (kji_folder_table){0};
}

static kji_event_folder **run_chain(const kji_folder_table *table, const char *run)
{
    return &table->by_run[kji_hash(run, strlen(run)) & (table->n_chains - 1)];
}

static kji_event_folder **inode_chain(const kji_folder_table *table, dev_t dev, ino_t ino)
{
    uint64_t mixed = ((uint64_t)ino ^ ((uint64_t)dev << 32)) * 0x9e3779b97f4a7c15ULL;
    return &table->by_inode[(mixed >> 32) & (table->n_chains - 1)];
}

static void link_run(kji_folder_table *table, kji_event_folder *folder)
{
    kji_event_folder **chain = run_chain(table, folder->run);
    folder->next_of_run = *chain;
    *chain = folder;
}

static void link_inode(kji_folder_table *table, kji_event_folder *folder)
{
    kji_event_folder **chain = inode_chain(table, folder->dev, folder->ino);
    folder->next_of_inode = *chain;
    *chain = folder;
}

static void link_all(kji_folder_table *table)
{
    for (size_t k = 0; k < table->n_folders; k++) {
        link_run(table, table->folders[k]);
        if (table->folders[k]->ino)
            link_inode(table, table->folders[k]);
    }
}

static bool grow(kji_folder_table *table)
{
    if (table->n_folders < table->n_chains)
        return true;
    size_t n = table->n_chains ? table->n_chains * 2 : 64;
    kji_event_folder **by_run = calloc(n, sizeof(kji_event_folder *));
    kji_event_folder **by_inode = calloc(n, sizeof(kji_event_folder *));
    if (!by_run || !by_inode) {
        free(by_run);
        free(by_inode);
        return false;
    }
    free(table->by_run);
    free(table->by_inode);
    table->by_run = by_run;
    table->by_inode = by_inode;
    table->n_chains = n;
    link_all(table);
    return true;
}

bool kji_folder_table_add(kji_folder_table *table, kji_event_folder *folder)
{
    if (!grow(table) || !kji_reserve(&table->folders, &table->capacity, table->n_folders + 1,
                                     sizeof(kji_event_folder *)))
        return false;
    table->folders[table->n_folders++] = folder;
    link_run(table, folder);
    if (folder->ino)
        link_inode(table, folder);
    return true;
}

kji_event_folder *kji_folder_table_find(const kji_folder_table *table, const char *run)
{
    kji_event_folder *folder = *run_chain(table, run);
    while (folder && strcmp(folder->run, run) != 0)
        folder = folder->next_of_run;
    return folder;
}

kji_event_folder *kji_folder_table_twin(const kji_folder_table *table, dev_t dev, ino_t ino,
                                        const char *path)
{
    kji_event_folder *folder = *inode_chain(table, dev, ino);
    while (folder && (folder->ino != ino || folder->dev != dev || !folder->present ||
                      strcmp(folder->path, path) == 0))
        folder = folder->next_of_inode;
    return folder;
}

void kji_folder_table_set_inode(kji_folder_table *table, kji_event_folder *folder, dev_t dev,
                                ino_t ino)
{
    if (folder->dev == dev && folder->ino == ino)
        return;
    if (folder->ino) {
        kji_event_folder **at = inode_chain(table, folder->dev, folder->ino);
        while (*at != folder)
            at = &(*at)->next_of_inode;
        *at = folder->next_of_inode;
    }
    folder->dev = dev;
    folder->ino = ino;
    if (ino)
        link_inode(table, folder);
}

static bool is_forgettable(const kji_event_folder *folder)
{
    return !folder->present && !folder->first_child && folder->n_files == 0 && !folder->dirty &&
           !folder->links_due && folder->wd < 0 && folder->depth > 0;
}

static void unlink_forgotten(kji_event_folder *parent)
{
    for (kji_event_folder **at = &parent->first_child; *at;)
        if ((*at)->forgotten)
            *at = (*at)->next_sibling;
        else
            at = &(*at)->next_sibling;
}

void kji_folder_table_forget(kji_folder_table *table)
{
    size_t n = 0, n_settled = table->n_settled;
    for (size_t k = 0; k < table->n_folders; k++)
        table->folders[k]->forgotten = is_forgettable(table->folders[k]);
    for (size_t k = 0; k < table->n_folders; k++)
        unlink_forgotten(table->folders[k]);
    for (size_t k = 0; k < table->n_folders; k++) {
        kji_event_folder *folder = table->folders[k];
        if (folder->forgotten) {
            table->n_settled -= k < n_settled;
            free_folder(folder);
        } else {
            folder->place = n;
            table->folders[n++] = folder;
        }
    }
    table->n_folders = n;
    memset(table->by_run, 0, table->n_chains * sizeof(kji_event_folder *));
    memset(table->by_inode, 0, table->n_chains * sizeof(kji_event_folder *));
    link_all(table);
}

/* The root comes first, then by path. */
static int by_run(const void *a, const void *b)
{
    const kji_event_folder *x = *(kji_event_folder *const *)a, *y = *(kji_event_folder *const *)b;
    if (x->depth == 0 || y->depth == 0)
        return x->depth - y->depth;
    return strcmp(x->run, y->run);
}

bool kji_folder_table_settle(kji_folder_table *table)
{
    size_t n_new = table->n_folders - table->n_settled, old = table->n_settled;
    if (n_new == 0)
        return true;
    KJI_CLEANUP(kji_freep) kji_event_folder **added = malloc(n_new * sizeof(kji_event_folder *));
    if (!added)
        return false;
    memcpy(added, table->folders + old, n_new * sizeof(kji_event_folder *));
    qsort(added, n_new, sizeof(kji_event_folder *), by_run);
    for (size_t to = table->n_folders; n_new > 0;) { /* merged from the end */
        kji_event_folder **last = &added[n_new - 1];
        if (old > 0 && by_run(&table->folders[old - 1], last) > 0) {
            table->folders[--to] = table->folders[--old];
        } else {
            table->folders[--to] = *last;
            n_new--;
        }
        table->folders[to]->place = to;
    }
    table->n_settled = table->n_folders;
    return true;
}
