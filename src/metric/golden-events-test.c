/* SPDX-License-Identifier: Apache-2.0 */
/* Event files of real writers, hand-made ones and damaged ones, against their listings. */
#include "files.h"
#include "json.h"
#include "mem.h"
#include "metric-rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kj_events *open_events(const char *folder, uint32_t flags, uint32_t grace_ms)
{
    char spec[4200];
    snprintf(spec, sizeof spec, "events:%s", folder);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.flags = flags;
    options.grace_ms = grace_ms;
    kj_events *source = NULL;
    kj_error err = KJ_ERROR_INIT;
    if (kj_events_open(spec, &options, &source, &err) < 0)
        fail_msg("%s", err.message);
    return source;
}

static void drop_restarts(kji_rows *rows)
{
    size_t n = 0;
    for (size_t k = 0; k < rows->n; k++) {
        if (rows->rows[k].flags & KJ_POINT_RESTART) {
            assert_true(isnan(rows->rows[k].value));
            free(rows->rows[k].run);
            free(rows->rows[k].tag);
        } else {
            rows->rows[n++] = rows->rows[k];
        }
    }
    rows->n = n;
}

static void check_case(const char *folder, const char *name)
{
    char path[4096];
    kji_rows got = {0}, expected = {0};
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
    kji_rows_load(&expected, path);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    kj_events *source = open_events(path, 0, 0);
    got.stop_after = 3;
    kji_rows_drain(source, &got);
    drop_restarts(&got);
    assert_int_equal(got.n, expected.n);
    kji_rows_assert_same(&got, &expected, 0, expected.n, name);
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.points, expected.n);
    assert_int_equal(stats.kinds[KJ_EVENT_SCALAR], expected.n);
    assert_int_equal(stats.skipped_records, 0);
    assert_int_equal(stats.waiting_files, 0);
    kj_events_close(source);
    kji_rows_done(&got);
    kji_rows_done(&expected);
}

static size_t check_folder(const char *folder)
{
    char root[3000], path[4096];
    snprintf(root, sizeof root, "%s", kji_test_data(folder));
    DIR *dir = opendir(root);
    assert_non_null(dir);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        check_case(root, entry->d_name);
        n++;
    }
    closedir(dir);
    return n;
}

static void test_real_writers(void **state)
{
    (void)state;
    assert_int_equal(check_folder("events/cases"), 20);
}

static void test_hand_made_bytes(void **state)
{
    (void)state;
    assert_int_equal(check_folder("events/wire"), 12);
}

struct variant {
    const char *name;
    int64_t prefix, rows, size;
    const char *end;
    struct json_object *damage; /* [[begin, end], ...] or NULL */
};

enum { MAX_DAMAGES = 4 };

struct damages {
    kj_damage damage[MAX_DAMAGES];
    size_t n;
};

static int keep_damage(void *userdata, const kj_damage *damage)
{
    struct damages *damages = userdata;
    assert_true(damages->n < MAX_DAMAGES);
    assert_string_equal(damage->run, ".");
    assert_non_null(strstr(damage->file, ".tfevents."));
    damages->damage[damages->n++] = *damage;
    return 0;
}

/* What is waited for at once: the beginning of the damage up to the end of the file. */
static void check_waiting(kj_events *source, const struct variant *variant)
{
    struct damages damages = {0};
    assert_int_equal(kj_events_list_damage(source, keep_damage, &damages), 0);
    bool waits = strcmp(variant->end, "clean") != 0 || variant->prefix < variant->rows;
    size_t n = damages.n;
    if (waits) {
        const kj_damage *last = &damages.damage[--n];
        assert_int_equal(damages.n, 1);
        assert_int_equal(last->skipped, 0);
        assert_int_equal(last->end, variant->size);
        assert_int_equal(last->kind == KJ_DAMAGE_PARTIAL, strcmp(variant->end, "partial") == 0);
        if (strcmp(variant->end, "hole") == 0)
            assert_int_equal(last->kind, KJ_DAMAGE_HOLE);
    }
    bool malformed = strncmp(variant->name, "proto_", 6) == 0;
    assert_int_equal(n, malformed);
    if (malformed)
        assert_int_equal(damages.damage[0].kind, KJ_DAMAGE_MESSAGE);
}

/* What has been skipped in the end: the ranges of the manifest, which does not count malformed
 * messages in whole records. */
static void check_skipped(kj_events *source, const struct variant *variant)
{
    struct damages damages = {0};
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(kj_events_list_damage(source, keep_damage, &damages), 0);
    size_t n = variant->damage ? json_object_array_length(variant->damage) : 0;
    bool malformed = strncmp(variant->name, "proto_", 6) == 0;
    bool waits = strcmp(variant->end, "partial") == 0 && !variant->damage;
    assert_int_equal(damages.n, n + malformed + waits);
    uint64_t bytes = 0;
    for (size_t k = 0; k < damages.n; k++) {
        const kj_damage *damage = &damages.damage[k];
        assert_int_equal(damage->skipped, k < n + malformed);
        bytes += damage->skipped ? damage->end - damage->begin : 0;
        if (k >= n)
            continue;
        struct json_object *range = json_object_array_get_idx(variant->damage, k);
        assert_int_equal(damage->begin, json_object_get_int64(json_object_array_get_idx(range, 0)));
        assert_int_equal(damage->end, json_object_get_int64(json_object_array_get_idx(range, 1)));
    }
    assert_int_equal(stats.skipped_bytes, bytes);
    assert_int_equal(stats.skipped_records, n + malformed);
    assert_int_equal(stats.waiting_files, waits);
}

/* What comes at once, then what comes when the file is known to be finished. */
static void check_finish(const char *folder, uint32_t flags, const struct variant *variant,
                         const kji_rows *expected)
{
    kji_rows got = {0};
    kj_events *source = open_events(folder, flags, 3600000);
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, variant->prefix);
    check_waiting(source, variant);
    kj_events_finish(source);
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, expected->n);
    kji_rows_assert_same(&got, expected, 0, expected->n, variant->name);
    check_skipped(source, variant);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* What comes when the grace time has passed; the source must wake up for it by itself. */
static void check_grace(const char *folder, const struct variant *variant, const kji_rows *expected)
{
    kji_rows got = {0};
    kj_events *source = open_events(folder, 0, 1);
    if (strcmp(variant->end, "partial") != 0)
        kji_rows_await(source, &got, expected->n);
    kji_rows_drain(source, &got);
    kji_rows_assert_same(&got, expected, 0, got.n, variant->name);
    kj_events_close(source);
    kji_rows_done(&got);
}

static size_t check_damaged(const char *base)
{
    char root[3000], path[4096];
    snprintf(root, sizeof root, "%s", kji_test_data(base));
    snprintf(path, sizeof path, "%s/manifest.json", root);
    char *text;
    size_t size, n = 0;
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 20, &text, &size, NULL), 0);
    struct json_object *manifest;
    assert_int_equal(kji_json_parse(text, size, &manifest, NULL), 0);
    json_object_object_foreach(manifest, name, entry)
    {
        struct variant variant = {.name = name, .end = kji_json_string(entry, "end")};
        kji_json_int(entry, "prefix", &variant.prefix);
        kji_json_int(entry, "rows", &variant.rows);
        kji_json_int(entry, "bytes", &variant.size);
        variant.damage = json_object_object_get(entry, "damage");
        kji_rows expected = {0};
        snprintf(path, sizeof path, "%s/%s.jsonl", root, name);
        kji_rows_load(&expected, path);
        assert_int_equal(expected.n, variant.rows);
        for (size_t k = 0; k < expected.n; k++)
            strcpy(expected.rows[k].run, "."); /* the listing names the run of the undamaged file */
        snprintf(path, sizeof path, "%s/%s", root, name);
        check_finish(path, 0, &variant, &expected);
        check_finish(path, KJ_EVENTS_CHECK_ALL, &variant, &expected);
        check_grace(path, &variant, &expected);
        kji_rows_done(&expected);
        n++;
    }
    json_object_put(manifest);
    free(text);
    return n;
}

static void test_damage(void **state)
{
    (void)state;
    assert_int_equal(check_damaged("events/damaged/torch"), 70);
    assert_int_equal(check_damaged("events/damaged/keras"), 1);
}

/* The names that TensorFlow's reader was asked to give, as our kinds. */
static enum kj_event_kind kind_of(const char *name)
{
    static const struct {
        const char *begin;
        enum kj_event_kind kind;
    } kinds[] = {
        {"file_version", KJ_EVENT_FILE_VERSION},
        {"session_log", KJ_EVENT_SESSION},
        {"graph_def", KJ_EVENT_GRAPH},
        {"meta_graph_def", KJ_EVENT_GRAPH},
        {"tagged_run_metadata", KJ_EVENT_RUN_METADATA},
        {"no_value", KJ_EVENT_NO_VALUE},
        {"image", KJ_EVENT_IMAGE},
        {"histo", KJ_EVENT_HISTOGRAM},
        {"tensor:images/", KJ_EVENT_IMAGE},
        {"tensor:histograms/", KJ_EVENT_HISTOGRAM},
        {"tensor:audio/", KJ_EVENT_AUDIO},
        {"tensor:text/", KJ_EVENT_TEXT},
        {"tensor:hparams/", KJ_EVENT_HPARAMS},
        {"tensor:graph_keras_model/", KJ_EVENT_GRAPH},
        {"tensor:graph_run_metadata_graph/", KJ_EVENT_RUN_METADATA},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strncmp(name, kinds[k].begin, strlen(kinds[k].begin)) == 0)
            return kinds[k].kind;
    if (strstr(name, "undecodable"))
        return KJ_EVENT_UNDECODABLE;
    return strstr(name, "(not scalar)") ? KJ_EVENT_TENSOR : KJ_EVENT_SCALAR;
}

/* PyTorch's hparams are values without content, of which the plugin tells what they are. */
static void fold_hparams(uint64_t kinds[KJ_EVENT_KINDS])
{
    kinds[KJ_EVENT_NO_VALUE] += kinds[KJ_EVENT_HPARAMS];
    kinds[KJ_EVENT_HPARAMS] = 0;
}

static void check_kinds(const char *name, struct json_object *files, uint32_t flags)
{
    char path[4096];
    uint64_t expected[KJ_EVENT_KINDS] = {0};
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    for (size_t k = 0; k < json_object_array_length(files); k++) {
        struct json_object *file = json_object_array_get_idx(files, k);
        json_object_object_foreach(json_object_object_get(file, "kinds"), kind, n)
        {
            expected[kind_of(kind)] += (uint64_t)json_object_get_int64(n);
        }
    }
    snprintf(path, sizeof path, "%s/%s", kji_test_data("events/cases"), name);
    kj_events *source = open_events(path, flags, 0);
    kj_events_step(source, 0, NULL, NULL, NULL);
    kj_events_get_stats(source, &stats);
    kj_events_close(source);
    fold_hparams(expected);
    fold_hparams(stats.kinds);
    for (uint32_t k = 0; k < KJ_EVENT_KINDS; k++)
        if (stats.kinds[k] != expected[k])
            fail_msg("%s: %llu of kind %s, expected %llu", name, (unsigned long long)stats.kinds[k],
                     kj_event_kind_name(k), (unsigned long long)expected[k]);
}

static void test_kinds(void **state)
{
    (void)state;
    char *text, path[4096];
    size_t size, n = 0;
    snprintf(path, sizeof path, "%s/manifest.json", kji_test_data("events/cases"));
    assert_int_equal(kji_read_file(AT_FDCWD, path, 1 << 20, &text, &size, NULL), 0);
    struct json_object *manifest;
    assert_int_equal(kji_json_parse(text, size, &manifest, NULL), 0);
    json_object_object_foreach(manifest, name, files)
    {
        snprintf(path, sizeof path, "%s/%s", kji_test_data("events/cases"), name);
        if (access(path, F_OK) < 0) /* two large ones are left out here */
            continue;
        check_kinds(name, files, 0);
        check_kinds(name, files, KJ_EVENTS_CHECK_ALL);
        n++;
    }
    assert_int_equal(n, 20);
    json_object_put(manifest);
    free(text);
}

static void test_restarts(void **state)
{
    (void)state;
    kji_rows got = {0};
    kj_events *source = open_events(kji_test_data("events/cases/torch_purge_resume"), 0, 0);
    kji_rows_drain(source, &got);
    int64_t steps[8];
    size_t n = 0;
    for (size_t k = 0; k < got.n && n < 8; k++)
        if (got.rows[k].flags & KJ_POINT_RESTART)
            steps[n++] = got.rows[k].step;
    assert_int_equal(n, 2);
    assert_int_equal(steps[0], 5);
    assert_int_equal(steps[1], 9);
    kj_events_close(source);
    kji_rows_done(&got);
}

/* Of three files of a run, the one that is named. */
static void test_one_file(void **state)
{
    (void)state;
    static const char name[] = "events.out.tfevents.1796045549.gpu12.15877.13";
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", kji_test_data("events/cases/torch_purge_resume/run"),
             name);
    kji_rows got = {0};
    kj_events *source = open_events(path, 0, 0);
    kji_rows_drain(source, &got);
    drop_restarts(&got);
    assert_int_equal(got.n, 14);
    assert_string_equal(got.rows[0].run, ".");
    assert_int_equal(got.rows[0].step, 5);
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.files, 1);
    kj_events_close(source);
    kji_rows_done(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_writers), cmocka_unit_test(test_hand_made_bytes),
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_restarts),     cmocka_unit_test(test_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
