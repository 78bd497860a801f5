/* SPDX-License-Identifier: Apache-2.0 */
#include "trial-dir.h"

#include "errors.h"
#include "files.h"
#include "json.h"
#include "mem.h"
#include "strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { MAX_JSON = 1 << 20, MAX_ENVIRON = 4 << 20 };

static int open_trial(int trials_fd, const char *name)
{
    return openat(trials_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int kji_trial_dir_create(int trials_fd, int64_t number, int *ret_fd, int *ret_lock_fd,
                         kj_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, number);
    if (mkdirat(trials_fd, name, 0700) < 0)
        return kji_fail_errno(err, errno == EEXIST ? KJ_EEXIST : KJ_EIO, errno,
                              "cannot make the folder of trial %s", name);
    KJI_CLEANUP(kji_closep) int fd = open_trial(trials_fd, name);
    KJI_CLEANUP(kji_closep)
    int lock = fd < 0 ? -1 : openat(fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot lock the folder of trial %s", name);
    *ret_fd = fd;
    *ret_lock_fd = lock;
    fd = lock = -1;
    return 0;
}

int kji_trial_dir_open(int trials_fd, int64_t number, int *ret_fd, kj_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, number);
    int fd = open_trial(trials_fd, name);
    if (fd < 0)
        return kji_fail_errno(err, errno == ENOENT ? KJ_ENOENT : KJ_EIO, errno,
                              "folder of trial %s", name);
    *ret_fd = fd;
    return 0;
}

bool kji_trial_dir_is_gone(int dir_fd)
{
    struct stat st;
    return fstat(dir_fd, &st) < 0 || st.st_nlink == 0;
}

bool kji_trial_dir_is_alive(int dir_fd)
{
    KJI_CLEANUP(kji_closep) int lock = openat(dir_fd, "lock", O_RDONLY | O_CLOEXEC);
    return lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int kji_trial_dir_write_record(int dir_fd, const kji_trial_record *record, int64_t number,
                               const char *study, const char *params_json, const char *metric,
                               kj_error *err)
{
    struct json_object *params = NULL;
    int r = kji_json_parse(params_json, strlen(params_json), &params, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_json_putp) struct json_object *json = json_object_new_object();
    json_object_object_add(json, "study", json_object_new_string(study));
    json_object_object_add(json, "trial", json_object_new_int64(number));
    json_object_object_add(json, "run_id", json_object_new_string(record->run_id));
    json_object_object_add(json, "start_time", kji_json_new_double(record->start_time));
    json_object_object_add(json, "metric", json_object_new_string(metric));
    json_object_object_add(json, "stale", json_object_new_boolean(record->has_stale));
    json_object_object_add(json, "params", params);
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(json);
    if (!text)
        return kji_fail_memory(err);
    return kji_write_file_atomic(dir_fd, "trial.json", text, strlen(text), err);
}

static int read_json(int dir_fd, const char *name, struct json_object **ret_json, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = NULL;
    size_t size;
    int r = kji_read_file(dir_fd, name, MAX_JSON, &text, &size, err);
    if (r >= 0)
        r = kji_json_parse(text, size, ret_json, err);
    return r;
}

int kji_trial_dir_read_record(int dir_fd, kji_trial_record *ret_record, char **ret_metric,
                              kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = read_json(dir_fd, "trial.json", &json, err);
    if (r < 0)
        return r;
    kji_trial_record record = {0};
    const char *run_id = kji_json_string(json, "run_id");
    const char *metric = kji_json_string(json, "metric");
    struct json_object *member;
    if (!metric || !run_id || strlen(run_id) >= sizeof record.run_id ||
        !json_object_object_get_ex(json, "start_time", &member) ||
        !kji_json_get_double(member, &record.start_time))
        return kji_fail(err, KJ_EDATA, "trial.json: no run_id, metric or start_time");
    strcpy(record.run_id, run_id);
    record.has_stale =
        json_object_object_get_ex(json, "stale", &member) && json_object_get_boolean(member);
    *ret_metric = strdup(metric);
    if (!*ret_metric)
        return kji_fail_memory(err);
    *ret_record = record;
    return 0;
}

int kji_trial_dir_write_metric_run(int dir_fd, const char *name, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = json_object_new_object();
    json_object_object_add(json, "run", json_object_new_string(name));
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(json);
    if (!text)
        return kji_fail_memory(err);
    return kji_write_file_atomic(dir_fd, "metric.json", text, strlen(text), err);
}

int kji_trial_dir_read_metric_run(int dir_fd, char **ret_name, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = read_json(dir_fd, "metric.json", &json, err);
    if (r < 0)
        return r;
    const char *name = kji_json_string(json, "run");
    if (!name)
        return kji_fail(err, KJ_EDATA, "metric.json: no run");
    *ret_name = strdup(name);
    return *ret_name ? 0 : kji_fail_memory(err);
}

int kji_trial_dir_read_shim(int dir_fd, pid_t *ret_pid, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = read_json(dir_fd, "shim.json", &json, err);
    if (r < 0)
        return r;
    int64_t pid;
    if (!kji_json_int(json, "shim_pid", &pid) || pid <= 1)
        return kji_fail(err, KJ_EDATA, "shim.json: no shim_pid");
    *ret_pid = (pid_t)pid;
    return 0;
}

int kji_trial_dir_read_exit(int dir_fd, kji_trial_exit *ret_exit, kj_error *err)
{
    KJI_CLEANUP(kji_json_putp) struct json_object *json = NULL;
    int r = read_json(dir_fd, "exit.json", &json, err);
    if (r < 0)
        return r;
    int64_t exit_code, signal_number, native;
    if (!kji_json_int(json, "exit_code", &exit_code) ||
        !kji_json_int(json, "signal", &signal_number) || !kji_json_int(json, "errno", &native))
        return kji_fail(err, KJ_EDATA, "exit.json: exit_code, signal or errno is missing");
    *ret_exit = (kji_trial_exit){(int)exit_code, (int)signal_number, (int)native};
    return 0;
}

/* Where the last `lines` lines of text begin. */
static const char *last_lines(const char *text, const char *end, int lines)
{
    const char *from = end;
    while (from > text) {
        if (from[-1] == '\n' && --lines == 0)
            break;
        from--;
    }
    return from;
}

static void add_output_byte(kji_strbuf *out, unsigned char c)
{
    if (c == '\n')
        kji_strbuf_puts(out, " | ");
    else
        kji_strbuf_putc(out, c < 0x20 || c == 0x7f ? ' ' : (char)c);
}

char *kji_trial_dir_output_end(int dir_fd, int lines, size_t limit)
{
    KJI_CLEANUP(kji_closep) int fd = openat(dir_fd, "output.log", O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return strdup("");
    KJI_CLEANUP(kji_freep) char *text = malloc(limit + 1);
    if (!text)
        return NULL;
    off_t from = st.st_size > (off_t)limit ? st.st_size - (off_t)limit : 0;
    ssize_t size = pread(fd, text, limit, from);
    while (size > 0 && strchr(" \t\r\n", text[size - 1]))
        size--;
    if (size <= 0)
        return strdup("");
    kji_strbuf out = KJI_STRBUF_INIT;
    for (const char *at = last_lines(text, text + size, lines); at < text + size; at++)
        add_output_byte(&out, (unsigned char)*at);
    return kji_strbuf_take(&out);
}

/* Whether /proc/PID/environ, `size` bytes of NUL-ended texts, has exactly `wanted`. */
static bool has_variable(const char *environ_text, size_t size, const char *wanted)
{
    size_t wanted_size = strlen(wanted) + 1;
    for (size_t at = 0; at + wanted_size <= size;) {
        if (memcmp(environ_text + at, wanted, wanted_size) == 0)
            return true;
        at += strnlen(environ_text + at, size - at) + 1;
    }
    return false;
}

int kji_trial_dir_sweep(const char *run_id)
{
    if (!*run_id)
        return 0;
    KJI_CLEANUP(kji_freep) char *wanted = kji_format("KAJITORI_RUN_ID=%s", run_id);
    DIR *proc = opendir("/proc");
    int n = 0;
    for (struct dirent *entry; wanted && proc && (entry = readdir(proc));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        char path[64];
        snprintf(path, sizeof path, "/proc/%.20s/environ", entry->d_name);
        KJI_CLEANUP(kji_freep) char *text = NULL;
        size_t size;
        if (kji_read_file(AT_FDCWD, path, MAX_ENVIRON, &text, &size, NULL) < 0 ||
            !has_variable(text, size, wanted))
            continue;
        pid_t pid = (pid_t)atol(entry->d_name);
        if (pid != getpid() && kill(pid, SIGKILL) == 0)
            n++;
    }
    if (proc)
        closedir(proc);
    return n;
}
