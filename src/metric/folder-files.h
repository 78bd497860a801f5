/* SPDX-License-Identifier: Apache-2.0 */
/* The event files of one folder: those that are there, and those that were. */
#ifndef KJI_FOLDER_FILES_H
#define KJI_FOLDER_FILES_H

#include "event-dir.h"

/* FOLDER/NAME, for free; NULL when memory is gone. */
char *kji_path_below(const char *folder, const char *name);

/* Index of the file among the first `n` of the folder, or where it belongs. */
size_t kji_folder_find_file(const kji_event_folder *folder, size_t n, const char *name,
                            kji_event_file **ret_file);

/* At index `at` of its folder; not yet present. NULL when memory is gone. */
kji_event_file *kji_folder_add_file(kji_event_dir *dir, kji_event_folder *folder, size_t at,
                                    const char *name);

/* A file that is new, but has the inode of one that has gone from the folder, is that one under
 * another name, and goes on where it was. */
void kji_folder_inherit(const kji_event_folder *folder, kji_event_file *file);

/* It is there; if it was not, it is looked at. */
void kji_folder_set_present(kji_event_dir *dir, kji_event_file *file);

/* After a listing: new files come where they belong; those that it did not tell have gone, if it
 * told the whole. */
void kji_folder_note_files(kji_event_dir *dir, kji_event_folder *folder, bool whole);

#endif
