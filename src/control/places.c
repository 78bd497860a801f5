/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include "errors.h"
#include "mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

char *kji_absolute_path(const char *path)
{
    if (*path == '/')
        return strdup(path);
    KJI_CLEANUP(kji_freep) char *cwd = getcwd(NULL, 0);
    return cwd ? kji_format("%s/%s", cwd, path) : NULL;
}

bool kji_run_id_valid(const char *id)
{
    size_t size = strlen(id);
    return size >= 1 && size <= KJI_RUN_ID_MAX && *id != '.' && *id != '-' &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

void kji_places_free(char **paths, size_t n)
{
    for (size_t k = 0; k < n; k++)
        free(paths[k]);
    free(paths);
}

/* Appends `path` (owned; NULL = memory is gone) unless it is there already. */
static int add(char **paths, size_t *n, char *path, kj_error *err)
{
    if (!path)
        return kji_fail_memory(err);
    for (size_t k = 0; k < *n; k++) {
        if (strcmp(paths[k], path) == 0) {
            free(path);
            return 0;
        }
    }
    paths[(*n)++] = path;
    return 0;
}

enum { MAX_PLACES = 3 };

/* Of a shell that became another user by `su` or `sudo` it may still be the first one's: a folder
 * of ours in there would lock its owner out. */
static bool is_another_users(const char *dir)
{
    struct stat st;
    return stat(dir, &st) == 0 && st.st_uid != geteuid();
}

static int add_all(const char *override, bool listing, char **paths, size_t *n, kj_error *err)
{
    const char *chosen = override && *override ? override : env("KAJITORI_RUNTIME_DIR");
    if (chosen)
        return add(paths, n, kji_absolute_path(chosen), err);
    const char *xdg = env("XDG_RUNTIME_DIR");
    int r = 0;
    if (xdg && *xdg == '/' && !is_another_users(xdg))
        r = add(paths, n, kji_format("%s/kajitori", xdg), err);
    if (r >= 0 && listing)
        r = add(paths, n, kji_format("/run/user/%ld/kajitori", (long)geteuid()), err);
    if (r >= 0)
        r = add(paths, n, kji_format("/tmp/kajitori-%ld", (long)geteuid()), err);
    return r;
}

static int list_places(const char *override, bool listing, char ***ret_paths, size_t *ret_n,
                       kj_error *err)
{
    char **paths = calloc(MAX_PLACES, sizeof *paths);
    if (!paths)
        return kji_fail_memory(err);
    size_t n = 0;
    int r = add_all(override, listing, paths, &n, err);
    if (r < 0) {
        kji_places_free(paths, n);
        return r;
    }
    *ret_paths = paths;
    *ret_n = n;
    return 0;
}

int kji_runtime_choices(const char *override, char ***ret_paths, size_t *ret_n, kj_error *err)
{
    return list_places(override, false, ret_paths, ret_n, err);
}

int kji_runtime_dir(const char *override, char **ret_path, kj_error *err)
{
    char **paths;
    size_t n;
    int r = kji_runtime_choices(override, &paths, &n, err);
    if (r < 0)
        return r;
    *ret_path = paths[0];
    paths[0] = NULL;
    kji_places_free(paths, n);
    return 0;
}

int kji_runtime_dirs(const char *override, char ***ret_paths, size_t *ret_n, kj_error *err)
{
    char **paths;
    size_t n, kept = 0;
    int r = list_places(override, true, &paths, &n, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < n; k++) {
        struct stat st;
        if (stat(paths[k], &st) == 0 && S_ISDIR(st.st_mode))
            paths[kept++] = paths[k];
        else
            free(paths[k]);
    }
    *ret_paths = paths;
    *ret_n = kept;
    return 0;
}

int kji_state_dir(const char *override, char **ret_path, kj_error *err)
{
    const char *chosen = override && *override ? override : env("KAJITORI_STATE_DIR");
    const char *xdg = env("XDG_STATE_HOME"), *home = env("HOME");
    char *path;
    if (chosen)
        path = kji_absolute_path(chosen);
    else if (xdg && *xdg == '/')
        path = kji_format("%s/kajitori", xdg);
    else if (home)
        path = kji_format("%s/.local/state/kajitori", home);
    else
        return kji_fail(err, KJ_ENOENT,
                        "no folder for journals: set KAJITORI_STATE_DIR, XDG_STATE_HOME or HOME");
    if (!path)
        return kji_fail_memory(err);
    *ret_path = path;
    return 0;
}

int kji_mailbox_root(const char *override, char **ret_path, kj_error *err)
{
    const char *chosen = override && *override ? override : env("KAJITORI_MAILBOX_DIR");
    char *path = chosen ? kji_absolute_path(chosen) : NULL;
    if (chosen && !path)
        return kji_fail_memory(err);
    *ret_path = path;
    return 0;
}
