/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive as numpy.savez writes it: one file of the .npy format for each array, stored without
 * compression. The points are four arrays of the same length (step, wall_time, value, series),
 * `series` being an index into the texts run and tag. libzip takes care of archives and members
 * beyond 4 GiB.
 *
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */
#include "events-verb.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

#define ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>')

enum { PREAMBLE = 10, ALIGNMENT = 64, A_DAY_IN_1980 = 315619200 };

/* Header and elements in one piece, for free. */
static char *make_npy(const char *type, uint64_t n, const void *elements, uint64_t size,
                      uint64_t *ret_size)
{
    char header[2 * ALIGNMENT];
    int length = snprintf(header + PREAMBLE, sizeof header - PREAMBLE,
                          "{'descr': '%c%s', 'fortran_order': False, 'shape': (%llu,), }", ORDER,
                          type, (unsigned long long)n);
    memset(header + PREAMBLE + length, ' ', sizeof header - PREAMBLE - (size_t)length);
    header[sizeof header - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01", 8); /* and version 1.0 */
    header[8] = (char)(sizeof header - PREAMBLE);
    header[9] = 0;
    char *npy = cli_check_memory(malloc(sizeof header + size));
    memcpy(npy, header, sizeof header);
    if (size > 0)
        memcpy(npy + sizeof header, elements, size);
    *ret_size = sizeof header + size;
    return npy;
}

static bool add_array(zip_t *archive, const char *name, const char *type, uint64_t n,
                      const void *elements, size_t element_size)
{
    uint64_t size;
    char *npy = make_npy(type, n, elements, n * element_size, &size);
    zip_source_t *source = zip_source_buffer(archive, npy, size, 1);
    if (!source) {
        free(npy);
        return false;
    }
    zip_int64_t index = zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return false;
    }
    /* A fixed time, so that the same points are the same bytes. */
    return zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
           zip_file_set_mtime(archive, (zip_uint64_t)index, A_DAY_IN_1980, 0) == 0;
}

static const char *name_of(const cli_series *series, bool run, uint64_t *ret_size)
{
    *ret_size = run ? strlen(series->run) : series->tag_size;
    return run ? series->run : series->tag;
}

/* Code points, and for a byte that is not UTF-8 what Python's surrogateescape has. Returns how
 * many; `ret_codes` may be NULL. */
static size_t code_points(const char *text, uint64_t size, uint32_t *ret_codes)
{
    size_t n = 0;
    for (uint64_t k = 0; k < size; n++) {
        unsigned code;
        size_t length = cli_decode(text + k, size - k, &code);
        if (ret_codes)
            ret_codes[n] = length ? code : 0xdc00u + (unsigned char)text[k];
        k += length ? length : 1;
    }
    return n;
}

/* Code points of the longest name, at least 1: numpy gives each one that length. */
static size_t width_of_names(const cli_points *points, bool runs)
{
    size_t width = 1;
    uint64_t size;
    for (uint32_t k = 0; k < points->n_series; k++) {
        const char *text = name_of(&points->all_series[k], runs, &size);
        size_t n = code_points(text, size, NULL);
        if (n > width)
            width = n;
    }
    return width;
}

static int check_names(const cli_points *points)
{
    enum { LIMIT = 1 << 28 };
    for (int runs = 0; runs < 2; runs++) {
        uint64_t size = 4 * points->n_series * (uint64_t)width_of_names(points, runs);
        if (size <= LIMIT)
            continue;
        cli_error("%u names, each in the length of the longest %s as npz has them, take %llu "
                  "bytes; choose some with --tag or --run, or take jsonl",
                  points->n_series, runs ? "run" : "tag", (unsigned long long)size);
        return CLI_FAILED;
    }
    return CLI_DONE;
}

static bool add_names(zip_t *archive, const char *name, const cli_points *points, bool runs)
{
    size_t width = width_of_names(points, runs);
    uint64_t size;
    uint32_t *codes = cli_check_memory(calloc(points->n_series * width + 1, sizeof *codes));
    for (uint32_t k = 0; k < points->n_series; k++) {
        const char *text = name_of(&points->all_series[k], runs, &size);
        code_points(text, size, codes + k * width);
    }
    char type[24];
    snprintf(type, sizeof type, "U%zu", width);
    bool done = add_array(archive, name, type, points->n_series, codes, width * sizeof *codes);
    free(codes);
    return done;
}

static bool add_all(zip_t *archive, const cli_points *points)
{
    return add_array(archive, "step.npy", "i8", points->n, points->step, 8) &&
           add_array(archive, "wall_time.npy", "f8", points->n, points->wall_time, 8) &&
           add_array(archive, "value.npy", "f8", points->n, points->value, 8) &&
           add_array(archive, "series.npy", "u4", points->n, points->series, 4) &&
           add_names(archive, "run.npy", points, true) &&
           add_names(archive, "tag.npy", points, false);
}

/* The finished archive goes out. */
static bool print_source(zip_source_t *source)
{
    char buffer[65536];
    zip_int64_t n = -1;
    if (zip_source_open(source) < 0)
        return false;
    while ((n = zip_source_read(source, buffer, sizeof buffer)) > 0)
        if (fwrite(buffer, 1, (size_t)n, stdout) != (size_t)n)
            break; /* main says so */
    zip_source_close(source);
    return n >= 0;
}

/* The archive is made in memory, since it may go into a pipe. */
static bool print_archive(const cli_points *points, zip_error_t *error)
{
    zip_source_t *source = zip_source_buffer_create(NULL, 0, 0, error);
    if (!source)
        return false;
    zip_source_keep(source);
    zip_t *archive = zip_open_from_source(source, ZIP_TRUNCATE, error);
    bool done = archive && add_all(archive, points) && zip_close(archive) == 0;
    if (!done && archive) {
        zip_error_set(error, zip_error_code_zip(zip_get_error(archive)),
                      zip_error_code_system(zip_get_error(archive)));
        zip_discard(archive);
    }
    done = done && print_source(source);
    zip_source_free(source);
    return done;
}

int cli_events_print_npz(void)
{
    cli_points points = {.n = 0};
    int status = cli_points_read(&points);
    if (status == CLI_DONE)
        status = check_names(&points);
    zip_error_t error;
    zip_error_init(&error);
    if (status == CLI_DONE && !print_archive(&points, &error)) {
        cli_error("cannot make the archive: %s", zip_error_strerror(&error));
        status = CLI_FAILED;
    }
    zip_error_fini(&error);
    cli_points_done(&points);
    return status;
}
