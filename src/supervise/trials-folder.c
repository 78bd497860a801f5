/* SPDX-License-Identifier: Apache-2.0 */
#include "trials-folder.h"

#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

int kji_make_id(char id[KJI_ID_TEXT], kj_error *err)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return kji_fail_errno(err, KJ_EIO, errno, "no random bytes");
    snprintf(id, KJI_ID_TEXT, "%016" PRIx64, bits);
    return 0;
}

/*
 * A worker that was killed while it started a shim leaves a child that has the lock until it has
 * become the shim; so a refusal must last for a second to be one.
 */
static bool lock_for_good(int fd)
{
    enum { TRIES = 100 };
    for (int k = 0; k < TRIES; k++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

int kji_trials_folder_lock(kji_tune_config *config, kj_error *err)
{
    int r = kji_open_dir(config->trials_dir, false, &config->trials_fd, err);
    if (r < 0)
        return r;
    config->worker_lock =
        openat(config->trials_fd, "worker.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (config->worker_lock < 0)
        return kji_fail_errno(err, KJ_EPERM, errno, "%s/worker.lock", config->trials_dir);
    if (!lock_for_good(config->worker_lock)) {
        char pid[32] = "";
        ssize_t size = pread(config->worker_lock, pid, sizeof pid - 1, 0);
        pid[size > 0 ? strcspn(pid, "\n") : 0] = 0;
        return kji_fail(err, KJ_EBUSY,
                        "another kajitori tune (pid %s) works with the trials folder %s; more at "
                        "once is --jobs N, another study needs another --trials-dir",
                        *pid ? pid : "unknown", config->trials_dir);
    }
    char pid[32];
    int size = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(config->worker_lock, 0) < 0 ||
        pwrite(config->worker_lock, pid, (size_t)size, 0) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "%s/worker.lock", config->trials_dir);
    return 0;
}

static int refuse(const kji_tune_config *config, kj_error *err)
{
    return kji_fail(err, KJ_EEXIST,
                    "the trials folder %s belongs to another study, or to one whose database is "
                    "gone; remove it, or name another with --trials-dir",
                    config->trials_dir);
}

/* Reads study.json. KJ_ENOENT when the folder is new. */
static int read_ids(kji_tune_config *config, char **ret_study_id, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    size_t size;
    int r = kji_read_file(config->trials_fd, "study.json", 65536, &text, &size, err);
    if (r < 0)
        return r;
    r = kji_json_parse(text, size, &json, err);
    if (r < 0)
        return kji_fail_prefix(err, r, "%s/study.json", config->trials_dir);
    const char *study_id = kji_json_string(json, "id");
    const char *folder_id = kji_json_string(json, "folder_id");
    if (!study_id || !folder_id || strlen(folder_id) != KJI_ID_TEXT - 1)
        return kji_fail(err, KJ_EDATA, "%s/study.json: no id, or no folder_id", config->trials_dir);
    memcpy(config->folder_id, folder_id, KJI_ID_TEXT);
    *ret_study_id = strdup(study_id);
    return *ret_study_id ? 0 : kji_fail_memory(err);
}

static int write_ids(kji_tune_config *config, const char *study_id, kj_error *err)
{
    int r = kji_make_id(config->folder_id, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = json_object_new_object();
    json_object_object_add(json, "study", json_object_new_string(config->study_name));
    json_object_object_add(json, "id", json_object_new_string(study_id));
    json_object_object_add(json, "folder_id", json_object_new_string(config->folder_id));
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(json);
    if (!text)
        return kji_fail_memory(err);
    return kji_write_file_atomic(config->trials_fd, "study.json", text, strlen(text), err);
}

int kji_trials_folder_check_new(kji_tune_config *config, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *id = NULL;
    kj_error ignored = KJ_ERROR_INIT;
    return read_ids(config, &id, &ignored) == KJ_ENOENT ? 0 : refuse(config, err);
}

int kji_trials_folder_join(kji_tune_config *config, const char *study_id, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *id = NULL;
    kj_error failure = KJ_ERROR_INIT;
    int r = read_ids(config, &id, &failure);
    if (r == KJ_ENOENT)
        return write_ids(config, study_id, err);
    if (r < 0)
        return kji_forward(err, &failure);
    return strcmp(id, study_id) != 0 ? refuse(config, err) : 0;
}
