/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text:FILE:/PATTERN/, and stdout:/PATTERN/ for the output of the program that is run. Each line
 * that matches is a point.
 */
#include "errors.h"
#include "line-file.h"
#include "mem.h"
#include "text-pattern.h"

#include <string.h>

static const char tag_name[] = "value";
static const char text_syntax[] = "text:FILE:/PATTERN/";
static const char stdout_syntax[] = "stdout:/PATTERN/";

struct text {
    kji_pattern *pattern;
    kji_line_file file;
    int64_t n_matches; /* the step of the next one, when the pattern gives none */
};

/* Takes the slashes off and tries the pattern. */
static int check_pattern(const char *text, const char *syntax, char **ret_pattern, kj_error *err)
{
    size_t size = text ? strlen(text) : 0;
    if (size < 3 || text[0] != '/' || text[size - 1] != '/')
        return kji_fail(err, KJ_EARG, "a pattern stands between slashes; expected %s", syntax);
    KJI_CLEANUP(kji_freep) char *copy = strndup(text + 1, size - 2);
    if (!copy)
        return kji_fail_memory(err);
    kji_pattern *pattern;
    int r = kji_pattern_new(copy, &pattern, err);
    if (r < 0)
        return r;
    kji_pattern_free(pattern);
    *ret_pattern = kji_take(&copy);
    return 0;
}

static int stdout_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    *ret_tag = NULL;
    return check_pattern(rest, stdout_syntax, ret_where, err);
}

/* FILE and PATTERN of "FILE:/PATTERN/", for free. */
static int take_apart(const char *rest, char **ret_path, char **ret_pattern, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *path = NULL;
    const char *pattern;
    int r = kji_spec_split_where(rest, "file", text_syntax, &path, &pattern, err);
    if (r >= 0)
        r = check_pattern(pattern, text_syntax, ret_pattern, err);
    if (r >= 0)
        *ret_path = kji_take(&path);
    return r;
}

/* Both stay together in `where`: there is one tag only. */
static int text_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *path = NULL;
    KJI_CLEANUP(kji_freep) char *pattern = NULL;
    int r = take_apart(rest, &path, &pattern, err);
    if (r < 0)
        return r;
    *ret_tag = NULL;
    *ret_where = strdup(rest);
    return *ret_where ? 0 : kji_fail_memory(err);
}

static void use_line(void *userdata)
{
    struct text *text = userdata;
    kji_line_file *file = &text->file;
    kji_match_result result;
    enum kji_match match =
        kji_pattern_match(text->pattern, file->lines.line, file->lines.size, &result);
    if (match == KJI_MATCH_NONE)
        return;
    if (match == KJI_MATCH_TOO_HARD) {
        size_t size = file->lines.size < 60 ? file->lines.size : 60;
        kji_line_file_reject(file, "the pattern takes too much work on \"%.*s\"", (int)size,
                             file->lines.line);
        return;
    }
    int64_t counted = text->n_matches++;
    if (match != KJI_MATCH_POINT) {
        kji_line_file_reject(file, "%s \"%.*s\"",
                             match == KJI_MATCH_BAD_STEP ? "no whole number as step:"
                                                         : "no number as value:",
                             (int)(result.size < 60 ? result.size : 60), result.text);
        return;
    }
    file->batch.origin.step = result.has_step ? result.step : counted;
    kji_batch_add(&file->batch, tag_name, sizeof tag_name - 1, result.value);
}

static void restart(void *userdata)
{
    struct text *text = userdata;
    text->n_matches = 0;
}

static int open_text(struct text *text, const char *path, const char *pattern,
                     const kji_source_context *context, kj_error *err)
{
    const kji_line_user user = {use_line, restart, text};
    int r = kji_pattern_new(pattern, &text->pattern, err);
    return r < 0 ? r : kji_line_file_init(&text->file, path, context, KJI_CUT_TERMINAL, &user, err);
}

static int stdout_open(void *instance, const kji_source_context *context, kj_error *err)
{
    const char *path = context->options->text_path;
    if (!path || !*path)
        return kji_fail(err, KJ_EARG,
                        "a stdout: source needs the file to read (text_path); expected %s, or - "
                        "for FILE to read standard input",
                        text_syntax);
    return open_text(instance, path, context->spec->where, context, err);
}

static int text_open(void *instance, const kji_source_context *context, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *path = NULL;
    KJI_CLEANUP(kji_freep) char *pattern = NULL;
    int r = take_apart(context->spec->where, &path, &pattern, err);
    return r < 0 ? r : open_text(instance, path, pattern, context, err);
}

static void text_close(void *instance)
{
    struct text *text = instance;
    kji_pattern_free(text->pattern);
    kji_line_file_done(&text->file);
}

static int text_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct text *text = instance;
    return kji_line_file_step(&text->file, sink, finished, err);
}

static void text_count(const void *instance, kj_events_stats *stats)
{
    const struct text *text = instance;
    kji_line_file_count(&text->file, stats);
}

/* The line in use is counted again when it is used again. */
static void text_save(const void *instance, kji_strbuf *to)
{
    const struct text *text = instance;
    kji_cursor_open(to);
    kji_cursor_put_uint(to, (uint64_t)(text->n_matches - text->file.in_use));
    kji_line_file_save(&text->file, to);
    kji_cursor_close(to);
}

static void text_restore(void *instance, kji_cursor_items *items)
{
    struct text *text = instance;
    text->n_matches = (int64_t)kji_cursor_take_uint(items, INT64_MAX / 4);
    kji_line_file_restore(&text->file, items);
}

static int text_list_files(void *instance, kj_file_fn fn, void *userdata)
{
    struct text *text = instance;
    return kji_line_file_list(&text->file, fn, userdata);
}

static int text_list_damage(void *instance, kj_damage_fn fn, void *userdata)
{
    struct text *text = instance;
    return kji_line_file_list_damage(&text->file, fn, userdata);
}

const kji_source_kind kji_source_stdout = {
    .size = sizeof(kji_source_kind),
    .name = "stdout",
    .syntax = stdout_syntax,
    .instance_size = sizeof(struct text),
    .split = stdout_split,
    .open = stdout_open,
    .close = text_close,
    .step = text_step,
    .count = text_count,
    .list_files = text_list_files,
    .list_damage = text_list_damage,
    .save = text_save,
    .restore = text_restore,
};

const kji_source_kind kji_source_text = {
    .size = sizeof(kji_source_kind),
    .name = "text",
    .syntax = text_syntax,
    .instance_size = sizeof(struct text),
    .split = text_split,
    .open = text_open,
    .close = text_close,
    .step = text_step,
    .count = text_count,
    .list_files = text_list_files,
    .list_damage = text_list_damage,
    .save = text_save,
    .restore = text_restore,
};
