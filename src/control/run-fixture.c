/* SPDX-License-Identifier: Apache-2.0 */
#include "run-fixture.h"

#include "files.h"
#include "json.h"
#include "mem.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

fixture fix;

enum { PATIENCE_S = 20 }; /* after which a test that waits for something fails */

static void keep_warning(void *userdata, int level, const char *message)
{
    (void)userdata;
    assert_int_equal(level, KJ_LOG_WARNING);
    assert_true(pthread_equal(pthread_self(), fix.training));
    size_t used = strlen(fix.log);
    snprintf(fix.log + used, sizeof fix.log - used, "%s\n", message);
    fix.n_warnings++;
}

int fix_set_up(void **state)
{
    (void)state;
    fix = (fixture){.lr = 0.1, .units = 32, .mode = "train"};
    strcpy(fix.root, "/tmp/kji-run-XXXXXX");
    if (!mkdtemp(fix.root))
        return -1;
    snprintf(fix.runtime, sizeof fix.runtime, "%s/run", fix.root);
    snprintf(fix.state, sizeof fix.state, "%s/state", fix.root);
    snprintf(fix.fifo, sizeof fix.fifo, "%s/fifo", fix.root);
    fix.training = pthread_self();
    kj_log_set(keep_warning, NULL);
    return 0;
}

int fix_tear_down(void **state)
{
    (void)state;
    fix_close();
    kj_log_set(NULL, NULL);
    kji_test_remove_tree(fix.root);
    return 0;
}

static void check_thread(void)
{
    assert_true(pthread_equal(pthread_self(), fix.training));
}

static int get_lr(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)userdata, (void)err;
    check_thread();
    *ret_value = (kj_value){.type = KJ_TYPE_FLOAT, .f = fix.lr};
    return 0;
}

static int set_lr(void *userdata, const kj_value *value, kj_error *err)
{
    (void)userdata, (void)err;
    check_thread();
    fix.lr = value->f;
    return 0;
}

static int get_units(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)userdata, (void)err;
    *ret_value = (kj_value){.type = KJ_TYPE_INT, .i = fix.units};
    return 0;
}

static int set_units(void *userdata, const kj_value *value, kj_error *err)
{
    (void)userdata;
    if (fix.fail_units) {
        snprintf(err->message, sizeof err->message, "no room for %lld", (long long)value->i);
        return KJ_EFAILED;
    }
    fix.units = value->i;
    return 0;
}

static int get_mode(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)userdata, (void)err;
    *ret_value = (kj_value){.type = KJ_TYPE_STRING, .s = fix.mode};
    return 0;
}

static int set_mode(void *userdata, const kj_value *value, kj_error *err)
{
    (void)userdata, (void)err;
    snprintf(fix.mode, sizeof fix.mode, "%s", value->s);
    return 0;
}

static int tick(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    check_thread();
    kj_value n = {0};
    char result[60];
    fix.n_ticks++;
    if (kj_call_get_arg(call, "n", &n) && n.i < 0) {
        snprintf(err->message, sizeof err->message, "cannot tick backwards");
        return KJ_EARG;
    }
    fix.tick_sum += n.i;
    snprintf(result, sizeof result, "{\"ticks\": %d}", fix.n_ticks);
    return kj_call_set_result(call, result, err);
}

void fix_add_all(kj_run *run)
{
    kj_param lr = {.size = sizeof lr,
                   .type = KJ_TYPE_FLOAT,
                   .name = "lr",
                   .unit = "1",
                   .help = "learning rate",
                   .flags = KJ_PARAM_MIN | KJ_PARAM_MAX | KJ_PARAM_MIN_EXCLUSIVE,
                   .max = 1,
                   .get = get_lr,
                   .set = set_lr};
    kj_param units = {.size = sizeof units,
                      .type = KJ_TYPE_INT,
                      .name = "units",
                      .flags = KJ_PARAM_MIN,
                      .min = 1,
                      .effect = KJ_EFFECT_RESTART,
                      .get = get_units,
                      .set = set_units};
    kj_param mode = {.size = sizeof mode,
                     .type = KJ_TYPE_STRING,
                     .name = "mode",
                     .get = get_mode,
                     .set = set_mode};
    kj_param fixed = {.size = sizeof fixed,
                      .type = KJ_TYPE_INT,
                      .name = "fixed",
                      .flags = KJ_PARAM_READ_ONLY,
                      .get = get_units};
    kj_arg args[] = {
        {.size = sizeof *args, .type = KJ_TYPE_INT, .name = "n", .help = "how many"},
        {.size = sizeof *args, .type = KJ_TYPE_BOOL, .name = "loud"},
    };
    kj_verb verb = {.size = sizeof verb,
                    .name = "tick",
                    .help = "tick [n=N]: counts",
                    .args = args,
                    .n_args = 2,
                    .run = tick};
    assert_int_equal(kj_run_add_param(run, &lr, NULL), 0);
    assert_int_equal(kj_run_add_param(run, &units, NULL), 0);
    assert_int_equal(kj_run_add_param(run, &mode, NULL), 0);
    assert_int_equal(kj_run_add_param(run, &fixed, NULL), 0);
    assert_int_equal(kj_run_add_verb(run, &verb, NULL), 0);
    assert_int_equal(kj_run_add_param(run, &lr, NULL), KJ_EEXIST);
    assert_int_equal(kj_run_add_verb(run, &verb, NULL), KJ_EEXIST);
}

kj_run *fix_open_other(const char *fifo, uint32_t flags, const char *run_id)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.name = "test run";
    options.run_id = run_id;
    options.fifo_path = fifo;
    options.flags = flags;
    options.runtime_dir = fix.runtime;
    options.state_dir = fix.state;
    if (kj_run_open(&options, &run, &err) < 0)
        fail_msg("%s", err.message);
    return run;
}

void fix_open(const char *fifo, uint32_t flags)
{
    fix.run = fix_open_other(fifo, flags, "test");
    fix_add_all(fix.run);
}

void fix_close(void)
{
    kj_run_close(fix.run);
    fix.run = NULL;
}

void fix_write(const char *fifo_path, const char *text)
{
    int fd = open(fifo_path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(kji_write_all(fd, text, strlen(text), NULL), 0);
    close(fd);
}

const char *fix_ctl(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/ctl", kj_run_dir(fix.run));
    return path;
}

void fix_wait_seq(int64_t seq)
{
    for (time_t end = time(NULL) + PATIENCE_S; time(NULL) < end; sched_yield()) {
        pthread_mutex_lock(&fix.run->lock);
        int64_t last = fix.run->last_seq;
        pthread_mutex_unlock(&fix.run->lock);
        if (last >= seq)
            return;
    }
    fail_msg("command %lld never came", (long long)seq);
}

void fix_connect_to(int fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", kj_run_dir(fix.run), name);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
}

void fix_connect_as(int fd)
{
    fix_connect_to(fd, "sock");
}

int fix_connect(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fix_connect_as(fd);
    return fd;
}

void fix_send(int fd, const char *line)
{
    assert_int_equal(kji_write_all(fd, line, strlen(line), NULL), 0);
    assert_int_equal(kji_write_all(fd, "\n", 1, NULL), 0);
}

struct json_object *fix_receive(int fd)
{
    KJI_CLEANUP(kji_strbuf_done) kji_strbuf line = KJI_STRBUF_INIT;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        char bytes[4096];
        if (poll(&ready, 1, PATIENCE_S * 1000) <= 0)
            fail_msg("no answer after \"%s\"", line.text);
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK); /* what follows the line stays there */
        if (n <= 0)
            return NULL;
        char *newline = memchr(bytes, '\n', (size_t)n);
        n = recv(fd, bytes, newline ? (size_t)(newline + 1 - bytes) : (size_t)n, 0);
        assert_true(n > 0);
        kji_strbuf_add(&line, bytes, newline ? (size_t)n - 1 : (size_t)n);
        if (newline)
            break;
    }
    struct json_object *json = NULL;
    assert_int_equal(kji_json_parse(line.text, line.size, &json, NULL), 0);
    return json;
}

static struct json_object *take_member(struct json_object *object, const char *key)
{
    struct json_object *member;
    if (!json_object_object_get_ex(object, key, &member))
        return NULL;
    json_object_get(member);
    json_object_put(object);
    return member;
}

struct json_object *fix_call(int fd, const char *method, const char *params)
{
    KJI_CLEANUP(kji_freep)
    char *request = kji_format("{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"%s\", "
                               "\"params\": %s}",
                               method, params ? params : "{}");
    fix_send(fd, request);
    for (;;) {
        struct json_object *answer = fix_receive(fd);
        assert_non_null(answer);
        if (!json_object_object_get_ex(answer, "id", NULL)) {
            json_object_put(answer);
            continue;
        }
        struct json_object *result = take_member(answer, "result");
        return result ? result : take_member(answer, "error");
    }
}

struct json_object *fix_command(int fd, const char *line)
{
    struct json_object *params = json_object_new_object();
    json_object_object_add(params, "line", json_object_new_string(line));
    struct json_object *answer = fix_call(fd, "command", json_object_to_json_string(params));
    json_object_put(params);
    return answer;
}

void fix_expect_state(int fd, const char *line, const char *state)
{
    struct json_object *record = fix_command(fd, line);
    if (strcmp(fix_text(record, "state"), state) != 0)
        fail_msg("%s: not %s but %s", line, state, json_object_to_json_string(record));
    json_object_put(record);
}

void fix_expect_rejected(int fd, const char *line, const char *part_of_message)
{
    struct json_object *error = fix_command(fd, line);
    assert_int_equal(fix_int(error, "code"), KJ_EREJECTED);
    if (!strstr(fix_text(error, "message"), part_of_message))
        fail_msg("%s: \"%s\" is not in \"%s\"", line, part_of_message, fix_text(error, "message"));
    json_object_put(error);
}

struct json_object *fix_wait_event(int fd, const char *event, const char *state)
{
    for (;;) {
        struct json_object *message = fix_receive(fd);
        assert_non_null(message);
        struct json_object *params = take_member(message, "params");
        if (params && strcmp(fix_text(params, "event"), event) == 0 &&
            (!*state || strcmp(fix_text(params, "state"), state) == 0))
            return params;
        json_object_put(params ? params : message);
    }
}

struct json_object *fix_journal(void)
{
    KJI_CLEANUP(kji_freep)
    char *path = kji_format("%s/runs/%s/journal.jsonl", fix.state, "test");
    KJI_CLEANUP(kji_freep) char *text = NULL;
    struct json_object *list = json_object_new_array();
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 26, &text, NULL, NULL), 0);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        struct json_object *line = NULL;
        assert_int_equal(kji_json_parse(at, (size_t)(end - at), &line, NULL), 0);
        json_object_array_add(list, line);
        assert_int_equal(fix_int(line, "n"), json_object_array_length(list));
    }
    return list;
}

struct json_object *fix_last_record(struct json_object *journal, int64_t seq)
{
    for (size_t k = json_object_array_length(journal); k-- > 0;) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        int64_t value;
        if (kji_json_int(line, "seq", &value) && value == seq)
            return line;
    }
    fail_msg("no line of command %lld", (long long)seq);
    return NULL;
}

struct json_object *fix_find_event(struct json_object *journal, const char *event)
{
    for (size_t k = 0; k < json_object_array_length(journal); k++) {
        struct json_object *line = json_object_array_get_idx(journal, k);
        if (strcmp(fix_text(line, "event"), event) == 0)
            return line;
    }
    return NULL;
}

const char *fix_text(struct json_object *object, const char *key)
{
    const char *text = kji_json_string(object, key);
    return text ? text : "";
}

int64_t fix_int(struct json_object *object, const char *key)
{
    int64_t value;
    if (!kji_json_int(object, key, &value))
        fail_msg("no integer \"%s\" in %s", key, json_object_to_json_string(object));
    return value;
}
