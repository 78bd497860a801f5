/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdout:/PATTERN/. A growing text, by default the output of the program that is run; each line
 * that matches is a point. The file is watched through its folder, since it need not exist yet.
 */
#include "clock.h"
#include "errors.h"
#include "files.h"
#include "mem.h"
#include "source-kind.h"
#include "text-pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { BUFFER_SIZE = 64 << 10, MAX_WARNINGS = 10 };

static const char tag_name[] = "value";

struct text {
    kji_pattern *pattern;
    kji_lines lines;
    char *path, *folder;
    kji_run *run;
    const kj_events_options *options;
    kji_watch *watch;
    int wd;

    dev_t dev;
    ino_t ino;
    uint64_t offset;   /* of the first byte not yet taken */
    uint64_t n_lines;  /* complete ones */
    int64_t n_matches; /* the step of the next one, when the pattern gives none */
    int n_warnings;
    bool told; /* that it cannot be read */
    char buffer[BUFFER_SIZE];
};

static int text_split(const char *rest, char **ret_where, char **ret_tag, kj_error *err)
{
    size_t size = strlen(rest);
    if (size < 3 || rest[0] != '/' || rest[size - 1] != '/')
        return kji_fail(err, KJ_EARG,
                        "a pattern stands between slashes; expected stdout:/PATTERN/");
    KJI_CLEANUP(kji_freep) char *where = strndup(rest + 1, size - 2);
    if (!where)
        return kji_fail_memory(err);
    kji_pattern *pattern;
    int r = kji_pattern_new(where, &pattern, err);
    if (r < 0)
        return r;
    kji_pattern_free(pattern);
    *ret_tag = NULL;
    *ret_where = kji_take(&where);
    return 0;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static int text_open(void *instance, const kji_source_context *context, kj_error *err)
{
    struct text *text = instance;
    text->options = context->options;
    text->watch = context->watch;
    text->wd = -1;
    if (!context->options->text_path || !*context->options->text_path)
        return kji_fail(err, KJ_EARG, "a stdout: source needs the file to read (text_path)");
    int r = kji_pattern_new(context->spec->where, &text->pattern, err);
    if (r < 0)
        return r;
    text->path = strdup(context->options->text_path);
    text->folder = folder_of(context->options->text_path);
    text->run = kji_tag_table_run(context->tags, ".");
    if (!text->path || !text->folder || !text->run || !kji_lines_init(&text->lines))
        return kji_fail_memory(err);
    return 0;
}

static void text_close(void *instance)
{
    struct text *text = instance;
    kji_pattern_free(text->pattern);
    kji_lines_done(&text->lines);
    free(text->folder);
    free(text->path);
}

static void warn(struct text *text, const char *what, const char *captured, size_t size)
{
    if (text->n_warnings++ >= MAX_WARNINGS)
        return;
    kji_log(KJ_LOG_WARNING, "%s: line %llu: %s \"%.*s\": skipped%s", text->path,
            (unsigned long long)text->n_lines + 1, what, (int)(size < 60 ? size : 60), captured,
            text->n_warnings == MAX_WARNINGS ? " (further ones are not reported)" : "");
}

/* 0, 1 or KJ_EMEM as from the sink. */
static int use_line(struct text *text, kji_sink *sink)
{
    kji_match_result result;
    const kji_lines *lines = &text->lines;
    enum kji_match match = kji_pattern_match(text->pattern, lines->line, lines->size, &result);
    if (match == KJI_MATCH_NONE)
        return 0;
    if (match == KJI_MATCH_TOO_HARD) {
        warn(text, "the pattern takes too much work on", lines->line, lines->size);
        return 0;
    }
    int64_t counted = text->n_matches++;
    if (match != KJI_MATCH_POINT) {
        warn(text, match == KJI_MATCH_BAD_STEP ? "no whole number as step:" : "no number as value:",
             result.text, result.size);
        return 0;
    }
    const kji_origin origin = {text->run, text->path, text->n_lines,
                               result.has_step ? result.step : counted, kji_wall_time()};
    return kji_sink_scalar(sink, &origin, tag_name, sizeof tag_name - 1, result.value);
}

static int end_line(struct text *text, kji_sink *sink)
{
    int r = use_line(text, sink);
    text->n_lines++;
    sink->stats->records++;
    kji_lines_clear(&text->lines);
    return r;
}

static int take_bytes(struct text *text, kji_sink *sink, const char *bytes, size_t size)
{
    while (size) {
        bool complete;
        size_t taken = kji_lines_take(&text->lines, bytes, size, &complete);
        bytes += taken;
        size -= taken;
        text->offset += taken;
        sink->stats->bytes += taken;
        int r = complete ? end_line(text, sink) : 0;
        if (r != 0)
            return r;
    }
    return 0;
}

static void begin_anew(struct text *text, const struct stat *st)
{
    if (text->offset)
        kji_log(KJ_LOG_INFO, "%s: replaced or truncated, read again from its beginning",
                text->path);
    text->dev = st->st_dev;
    text->ino = st->st_ino;
    text->offset = text->n_lines = 0;
    text->n_matches = 0;
    kji_lines_clear(&text->lines);
}

/* For the time being: it is looked at again. */
static int cannot_read(struct text *text)
{
    char reason[128];
    if (!text->told)
        kji_log(KJ_LOG_WARNING, "%s: cannot be read: %s; tried again later", text->path,
                strerror_r(errno, reason, sizeof reason));
    text->told = true;
    return 0;
}

static int read_text(struct text *text, kji_sink *sink, kj_error *err)
{
    KJI_CLEANUP(kji_closep)
    int fd = open(text->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (fd < 0 && errno == EACCES)
        return kji_fail_errno(err, KJ_EPERM, errno, "cannot read %s", text->path);
    if (fd < 0)
        return errno == ENOENT ? 0 : cannot_read(text);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    if (st.st_dev != text->dev || st.st_ino != text->ino || (uint64_t)st.st_size < text->offset)
        begin_anew(text, &st);
    /* Not what is appended meanwhile: it may come faster than it is read. */
    while (text->offset < (uint64_t)st.st_size) {
        ssize_t n = pread(fd, text->buffer, sizeof text->buffer, (off_t)text->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_read(text);
        text->told = false;
        if (n == 0)
            return 0;
        int r = take_bytes(text, sink, text->buffer, (size_t)n);
        if (r != 0)
            return r < 0 ? kji_fail_memory(err) : r;
    }
    return 0;
}

static void take_event(void *userdata, const struct inotify_event *event)
{
    struct text *text = userdata;
    if (event->wd == text->wd && event->mask & (IN_IGNORED | IN_MOVE_SELF | IN_DELETE_SELF))
        text->wd = -1;
}

static int text_step(void *instance, kji_sink *sink, bool finished, kj_error *err)
{
    struct text *text = instance;
    kji_watch_drain(text->watch, take_event, text);
    int wd = kji_watch_nearest(text->watch, text->folder);
    if (wd != text->wd)
        kji_watch_remove(text->watch, text->wd);
    text->wd = wd;
    int r = read_text(text, sink, err);
    if (r < 0)
        return r;
    if (r == 0 && finished && text->lines.started) {
        r = end_line(text, sink);
        if (r < 0)
            return kji_fail_memory(err);
    }
    bool network = kji_is_network_path(text->folder);
    kji_watch_arm(text->watch,
                  r == 1 ? 0 : (int64_t)kji_source_poll_ms(text->options, text->watch, network));
    return 0;
}

static void text_count(const void *instance, kj_events_stats *stats)
{
    const struct text *text = instance;
    stats->files = text->ino != 0;
    stats->waiting_files = text->lines.started;
}

const kji_source_kind kji_source_text = {
    .size = sizeof(kji_source_kind),
    .name = "stdout",
    .syntax = "stdout:/PATTERN/",
    .instance_size = sizeof(struct text),
    .split = text_split,
    .open = text_open,
    .close = text_close,
    .step = text_step,
    .count = text_count,
};
