/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --plot: one chart for each tag, with the runs over one another. What cannot be drawn (NaN,
 * infinities, with --log also what is not above 0) is counted below the chart.
 */
#include "chart.h"
#include "events-verb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char marks[] = "*+xo#@%&=ABCDEFGHIJKLMNPQRSTUVWYZ"; /* again from the first */
enum { NAMED_RUNS = 10 };

/* The points of each series together: those of series k are order[first[k]] .. order[first[k+1]].
 */
typedef struct sorted_points {
    const cli_points *points;
    uint64_t *order, *first;
} sorted_points;

static sorted_points sort_points(const cli_points *points)
{
    sorted_points sorted = {
        .points = points,
        .order = cli_check_memory(calloc(points->n + 1, sizeof *sorted.order)),
        .first = cli_check_memory(calloc((size_t)points->n_series + 2, sizeof *sorted.first)),
    };
    for (uint64_t k = 0; k < points->n; k++)
        sorted.first[points->series[k] + 2]++;
    for (uint32_t k = 2; k < points->n_series + 2; k++)
        sorted.first[k] += sorted.first[k - 1];
    for (uint64_t k = 0; k < points->n; k++)
        sorted.order[sorted.first[points->series[k] + 1]++] = k;
    return sorted;
}

/* What is drawn of a value; NaN when it cannot be. */
static double height_of(double value)
{
    if (!isfinite(value) || (cli_events_given.log_scale && value <= 0))
        return NAN;
    return cli_events_given.log_scale ? log10(value) : value;
}

static bool same_tag(const cli_series *a, const cli_series *b)
{
    return a->tag_size == b->tag_size && memcmp(a->tag, b->tag, a->tag_size) == 0;
}

typedef struct extent {
    double x[2], y[2];
    uint64_t n_drawn, n_nan, n_infinite, n_below;
} extent;

static void widen(double range[2], double value)
{
    range[0] = value < range[0] ? value : range[0];
    range[1] = value > range[1] ? value : range[1];
}

static void measure_series(const sorted_points *sorted, uint32_t series, extent *seen)
{
    for (uint64_t k = sorted->first[series]; k < sorted->first[series + 1]; k++) {
        double value = sorted->points->value[sorted->order[k]], y = height_of(value);
        seen->n_nan += isnan(value);
        seen->n_infinite += isinf(value) != 0;
        seen->n_below += isfinite(value) && isnan(y);
        if (isnan(y))
            continue;
        seen->n_drawn++;
        widen(seen->x, (double)sorted->points->step[sorted->order[k]]);
        widen(seen->y, y);
    }
}

static void draw_series(const sorted_points *sorted, uint32_t series, cli_chart *chart, char mark)
{
    double last_x = NAN, last_y = NAN;
    for (uint64_t k = sorted->first[series]; k < sorted->first[series + 1]; k++) {
        double x = (double)sorted->points->step[sorted->order[k]];
        double y = height_of(sorted->points->value[sorted->order[k]]);
        if (!isnan(y))
            cli_chart_add(chart, x, y, mark);
        if (chart->braille && !isnan(y) && !isnan(last_y) && x > last_x)
            cli_chart_add_line(chart, last_x, last_y, x, y);
        last_x = x;
        last_y = y;
    }
}

static void put_title(const cli_points *points, const uint32_t *members, uint32_t n, bool braille)
{
    char *tag =
        cli_clean(points->all_series[members[0]].tag, points->all_series[members[0]].tag_size);
    printf("%s", *tag ? tag : "(empty tag)");
    free(tag);
    for (uint32_t k = 0; k < n && k < NAMED_RUNS; k++) {
        const char *name = points->all_series[members[k]].run;
        char *run = cli_clean(name, strlen(name));
        if (braille)
            printf("  %s", run);
        else
            printf("  %c %s", marks[k % (sizeof marks - 1)], run);
        free(run);
    }
    if (n > NAMED_RUNS)
        printf("  and %u more", n - NAMED_RUNS);
    putchar('\n');
}

static void put_left_out(const extent *seen)
{
    const char *before = "not drawn: ";
    const struct {
        uint64_t n;
        const char *what;
    } rows[] = {
        {seen->n_nan, "NaN"}, {seen->n_infinite, "infinite"}, {seen->n_below, "not above 0"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (rows[k].n == 0)
            continue;
        printf("%s%llu %s", before, (unsigned long long)rows[k].n, rows[k].what);
        before = ", ";
    }
    if (before[0] == ',')
        putchar('\n');
}

static void plot_tag(const sorted_points *sorted, const uint32_t *members, uint32_t n)
{
    extent seen = {.x = {INFINITY, -INFINITY}, .y = {INFINITY, -INFINITY}};
    bool braille = n == 1 && cli_has_utf8();
    for (uint32_t k = 0; k < n; k++)
        measure_series(sorted, members[k], &seen);
    put_title(sorted->points, members, n, braille);
    if (seen.n_drawn > 0) {
        cli_chart chart;
        cli_chart_init(&chart, cli_terminal_width(), braille, seen.x, seen.y);
        for (uint32_t k = 0; k < n; k++)
            draw_series(sorted, members[k], &chart, marks[k % (sizeof marks - 1)]);
        cli_chart_print(&chart, cli_events_given.log_scale);
        cli_chart_done(&chart);
    }
    put_left_out(&seen);
}

static void plot_all(const cli_points *points)
{
    sorted_points sorted = sort_points(points);
    bool *done = cli_check_memory(calloc((size_t)points->n_series + 1, sizeof *done));
    uint32_t *members = cli_check_memory(calloc((size_t)points->n_series + 1, sizeof *members));
    for (uint32_t k = 0; k < points->n_series; k++) {
        uint32_t n = 0;
        if (done[k])
            continue;
        for (uint32_t j = k; j < points->n_series; j++) {
            if (!same_tag(&points->all_series[k], &points->all_series[j]))
                continue;
            done[j] = true;
            members[n++] = j;
        }
        if (k > 0)
            putchar('\n');
        plot_tag(&sorted, members, n);
    }
    free(members);
    free(done);
    free(sorted.first);
    free(sorted.order);
}

int cli_events_print_plot(void)
{
    cli_points points = {.n = 0};
    int status = cli_points_read(&points);
    if (status == CLI_DONE && points.n == 0)
        cli_note("%s: no scalars", cli_events_given.place);
    if (status == CLI_DONE)
        plot_all(&points);
    cli_points_done(&points);
    return status;
}
